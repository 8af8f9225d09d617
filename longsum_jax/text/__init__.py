"""Plain Python and numpy: documents, sentences, tokenizers, gap sentences."""
