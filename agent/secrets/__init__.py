"""What looks like a secret: found in texts, masked in what leaves, refused in what comes back."""
