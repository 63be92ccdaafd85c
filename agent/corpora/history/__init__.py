"""What past commits added, as a corpus of its own and as evidence for the code of today."""
