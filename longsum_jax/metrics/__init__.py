"""ROUGE and the baselines beside it."""
