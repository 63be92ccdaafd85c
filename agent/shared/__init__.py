"""What every package uses: secrets, caches, tokens, files, events, the console."""
