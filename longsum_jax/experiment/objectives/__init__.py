"""Training objectives, one class per file."""
