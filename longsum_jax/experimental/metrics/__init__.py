"""Metrics over models."""
