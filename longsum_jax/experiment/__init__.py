"""A training run from its config."""
