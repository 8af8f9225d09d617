"""Attentions as functions of arrays."""
