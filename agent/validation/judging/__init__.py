"""From outcomes to a verdict. Pure."""
