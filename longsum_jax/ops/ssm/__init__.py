"""Diagonal state-space models as functions of arrays."""
