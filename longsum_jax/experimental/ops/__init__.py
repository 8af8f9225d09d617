"""Operations of experimental attentions."""
