"""One property per file."""
