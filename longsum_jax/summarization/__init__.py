"""Summaries of documents of any length: strategies, segments, sources, files."""
