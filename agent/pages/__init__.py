"""`agent report`: a run folder, or the result of one solve, as one static HTML file."""
