"""What happens to a result: it is kept, written into the work tree, undone or published."""
