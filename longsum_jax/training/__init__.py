"""The loop, its step, optimizers and partitioning; knows no data set and no model."""
