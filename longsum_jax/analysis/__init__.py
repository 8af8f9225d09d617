"""Statistics of texts, figures, and device memory."""
