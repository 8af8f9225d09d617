"""Attention layers, by name in ``registry``."""
