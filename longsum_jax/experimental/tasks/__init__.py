"""Tasks without a summary: claims, cloze questions, choices, tags."""
