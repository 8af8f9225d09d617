"""Examples of every objective."""
