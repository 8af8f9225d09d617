"""Flax modules that hold parameters and call ops."""
