from longsum_jax.tokenizers.base import NO_TOKEN, first_tokens


def test_first_tokens_of_words():
    words = [(0, 3), (4, 5), (6, 10), (10, 11), (12, 13)]
    # One token with the space before it, two of a word, one for two words, and none at the end.
    spans = [(0, 3), (5, 8), (8, 11)]
    assert first_tokens(words, spans) == [0, NO_TOKEN, 1, 2, NO_TOKEN]
    assert first_tokens(words, []) == [NO_TOKEN] * 5
    assert first_tokens([], spans) == []
