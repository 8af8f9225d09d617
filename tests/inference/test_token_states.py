import numpy as np
import pytest

from longsum_jax.inference.rows import text_windows
from longsum_jax.inference.token_states import SurroundingTokens, token_states


class Reader:
    """States of a token: its id, its place in the window, the window's first token and length."""

    class config:  # noqa: N801
        d_model = 4
        pad_token_id = 0

    def encode(self, ids, mask, layer=None, bucket=64):
        assert layer == 3
        assert ids.size
        places = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        lengths = np.broadcast_to(mask.sum(1, keepdims=True), ids.shape)
        firsts = np.broadcast_to(ids[:, 1:2], ids.shape)
        return np.stack([ids, places, firsts, lengths], -1).astype(np.float32)


@pytest.mark.parametrize(("length", "size"), [(9, 3), (10, 4), (4, 4), (5, 4), (7, 1), (0, 4)])
def test_every_token_is_kept_once_from_where_it_has_most_neighbours(length, size):
    windows = text_windows(length, size)
    retained = [place for window in windows for place in range(window.first, window.last)]
    assert retained == list(range(length))
    for window in windows:
        assert window.stop - window.start == min(size, length)
        for place in range(window.first, window.last):
            holding = [each for each in windows if each.start <= place < each.stop]
            neighbours = [_neighbours(place, each, length) for each in holding]
            assert _neighbours(place, window, length) >= max(neighbours) - 1


def _neighbours(place, window, length):
    """Tokens on the side with fewer of them, where the text goes on there."""
    before = place - window.start if window.start else length
    after = window.stop - 1 - place if window.stop < length else length
    return min(before, after)


def test_states_of_windows():
    special = SurroundingTokens((101,), (102, 103))
    texts = [list(range(1, 10)), [], [7, 8], [4, 5, 6]]  # the last as long as what surrounds it
    options = {"limit": 6, "layer": 3, "batch_size": 2}
    long, empty, short, full = token_states(Reader(), texts, special, **options)
    ids, places, firsts, lengths = long.T.astype(int)
    assert ids.tolist() == [101, *range(1, 10), 102, 103]
    assert (lengths == 6).all()
    # In front a special token, then the tokens of the window from its first on.
    text = slice(1, -2)
    assert (places[text] - 1 + firsts[text] == ids[text]).all()
    assert (places[0], places[-2:].tolist()) == (0, [4, 5])
    assert empty[:, 0].tolist() == [101, 102, 103]
    assert short[:, 0].tolist() == [101, 7, 8, 102, 103]
    assert full[:, 0].tolist() == [101, 4, 5, 6, 102, 103]
    (whole,) = token_states(Reader(), texts[:1], special, limit=None, layer=3, batch_size=1)
    assert whole[:, 1].tolist() == list(range(12))


def test_empty_texts_without_special_tokens():
    options = {"limit": 4, "layer": 3, "batch_size": 2}
    for texts in ([[]], [[], [7, 8]]):
        empty, *others = token_states(Reader(), texts, SurroundingTokens((), ()), **options)
        assert empty.shape == (0, 4)
        assert [states[:, 0].tolist() for states in others] == texts[1:]
