"""Research without promises between versions; README.md is its contract."""
