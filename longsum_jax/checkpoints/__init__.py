"""Hugging Face directories in and out, and the checkpoints of training runs."""
