"""Conversions of a trained model: longer inputs, other attentions."""
