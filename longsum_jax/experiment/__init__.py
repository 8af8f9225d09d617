"""Makes a training run from its config."""
