import pytest

from longsum_jax.errors import counted


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "token", "1 token"),
        (0, "token", "0 tokens"),
        (1234, "page", "1,234 pages"),
        (2, "summary", "2 summaries"),
        (1, "line of contents", "1 line of contents"),
        (2, "line of contents", "2 lines of contents"),
    ],
)
def test_one_and_many(number, noun, text):
    assert counted(number, noun) == text
