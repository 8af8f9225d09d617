"""Research beside the library: no promises between versions (README.md)."""
