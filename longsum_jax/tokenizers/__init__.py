"""Tokenizers, trained here or read from checkpoints."""
