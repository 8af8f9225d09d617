import numpy as np
import pytest

from longsum_jax.errors import InputError, check_whole, counted, terminal_text


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


@pytest.mark.parametrize("value", [2, 3, np.int64(2), np.uint8(7)])
def test_whole_numbers(value):
    check_whole("size", value, 2)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (1, "size=1 must be at least 2"),
        (np.int32(-3), "size=-3 must be at least 2"),
        (2.0, "size=2.0 must be a whole number, at least 2"),
        ("2", "size='2' must be a whole number, at least 2"),
        (None, "size=None must be a whole number, at least 2"),
        (True, "size=True must be a whole number, at least 2"),
    ],
)
def test_what_is_no_whole_number(value, problem):
    with pytest.raises(InputError) as error:
        check_whole("size", value, 2)
    assert str(error.value) == problem


def test_no_mark_of_direction_reaches_a_terminal():
    marks = map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A)))
    assert terminal_text("a".join(marks)) == "a" * 8
