"""Marks of Markdown that are removed for display."""

import time

import pytest

from longsum_jax.text.markdown_marks import pieces_without_marks

SHOWN = {
    "# Head #": "Head",
    "Title\n=====\nText": "Title\nText",
    "A\n\n---\nB": "A\n\nB",
    "- one\n  * two\n+ [x] three": "\u2022 one\n  \u2022 two\n\u2022 three",
    "> said **Ann**": "said Ann",
    "**Bold *and slanted* words**": "Bold and slanted words",
    "_so_ and __So it is__": "so and So it is",
    "`a_b*c*` and ``x`y`z``": "a_b*c* and x`y`z",
    "[a page](docs/a_(b).md)": "a page",
    "![a picture](a.png)": "a picture",
    "5 \\* 3": "5 * 3",
    "`*a*` and \\*b\\*": "*a* and *b*",
    "```py\n# a *b*\n```\nc": "# a *b*\nc",
    "|a  |b|\n|---|:-:|\n| 1 | 2 |": "a |b\n1 | 2",
}
UNCHANGED = (
    "2*3*4 and 5 * 6 * 7",
    "snake_case_name, __init__ and _private",
    "f(*args, **kwargs), #1 and a > b",
    "[1](see there) or [Ann]: yes",
    "well-known -- 5 - 3",
)


@pytest.mark.parametrize("text", SHOWN)
def test_marks_are_removed(text):
    assert pieces_without_marks(text, [len(text)]) == [SHOWN[text]]


@pytest.mark.parametrize("text", UNCHANGED)
def test_other_characters_remain(text):
    assert pieces_without_marks(text, [len(text)]) == [text]


def test_marks_may_cross_pieces():
    assert pieces_without_marks("A **b. C** d.", [6, 13]) == ["A b.", " C d."]
    assert pieces_without_marks("Plain. Text.", [6, 12]) == ["Plain.", " Text."]


@pytest.mark.parametrize(
    "text",
    [" " * 20_000 + "x|", "~" * 20_000 + "`", "*a \n" * 5_000],
    ids=["spaces", "fence", "stars"],
)
def test_time_is_linear_in_the_length(text):
    start = time.process_time()
    assert pieces_without_marks(text, [len(text)]) == [text]
    assert time.process_time() - start < 3
