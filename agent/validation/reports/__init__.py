"""What runs say of themselves, read as the foreign data it is."""
