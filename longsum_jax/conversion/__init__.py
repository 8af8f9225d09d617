"""Changes of a model that need no training: longer inputs, other attentions."""
