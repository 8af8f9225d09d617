import pytest

from longsum_jax.text.hyphens import hyphenated_words, keeps_hyphen


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("intro", "duction", False),
        ("Note", "book", False),  # the compound occurs without a hyphen as well
        ("hour", "hand", True),
        ("state-of-the", "art", True),
        ("Anglo", "Saxon", True),
        ("4", "year", True),
    ],
)
def test_hyphens_of_compounds_stay(first, second, expected):
    words = hyphenated_words("A notebook, a note-book and an Hour-hand.")
    assert keeps_hyphen(first, second, words) == expected
