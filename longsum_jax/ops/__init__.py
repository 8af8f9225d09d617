"""Pure functions of arrays; no Flax, no configs."""
