"""One file per model family: config, stack, heads, presets, names in checkpoints."""
