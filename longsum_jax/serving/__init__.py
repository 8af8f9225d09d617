"""Summaries over HTTP: an engine that owns the model, and an application over it."""
