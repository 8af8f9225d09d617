"""Loaded models: encode, compute logits, generate, extract, answer, save."""
