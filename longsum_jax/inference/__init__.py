"""Loaded models: encode, generate, summarize."""
