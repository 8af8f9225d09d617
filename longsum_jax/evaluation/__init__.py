"""Metrics, and predictions scored by them."""
