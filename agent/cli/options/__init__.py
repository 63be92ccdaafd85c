"""Options with their help, by what they are about; commands share them."""
