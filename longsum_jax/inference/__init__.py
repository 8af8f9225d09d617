"""Loaded models: encode, generate, summarise."""
