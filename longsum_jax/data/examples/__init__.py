"""Training examples for every objective."""
