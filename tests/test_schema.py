import math
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.schema import (
    Count,
    PositiveFloat,
    Rate,
    Share,
    Size,
    check_ranges,
    compare_trees,
    field_docs,
    first_names,
    from_dict,
)


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5


@dataclass(frozen=True)
class Outer:
    steps: int
    kind: Literal["a", "b"] = "a"
    lengths: tuple[int, ...] = ()
    block: str | int | None = None
    flag: bool = False
    inner: Inner = field(default_factory=Inner)
    anything: Any = None


def test_values_become_what_the_fields_want():
    values = {
        "steps": 3,
        "kind": "b",
        "lengths": [1, 2],
        "block": 7,
        "inner": {"rate": 1},
        "anything": {1},
    }
    made = from_dict(Outer, values, "config")
    assert made == Outer(3, "b", (1, 2), 7, False, Inner(1.0), {1})
    assert isinstance(made.inner.rate, float)
    assert from_dict(
        Outer, {"steps": 1, "block": None, "inner": Inner(2.0)}, "config"
    ).inner == Inner(2.0)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, "config: missing steps"),
        (
            {"steps": 1, "lenghts": ()},
            'config: unknown key "lenghts"; did you mean "lengths"? known: anything, block, ',
        ),
        ({"steps": "3"}, "config.steps: expected int, got '3'"),
        ({"steps": True}, "config.steps: expected int, got True"),
        ({"steps": 1.0}, "config.steps: expected int, got 1.0"),
        ({"steps": 1, "kind": "c"}, 'config.kind: "c" is not allowed; known: a, b'),
        ({"steps": 1, "lengths": [1, "2"]}, "config.lengths: expected int, got '2'"),
        ({"steps": 1, "lengths": 5}, "config.lengths: expected tuple, got 5"),
        ({"steps": 1, "block": 1.5}, "config.block: expected str, got 1.5"),
        ({"steps": 1, "flag": 1}, "config.flag: expected bool, got 1"),
        (
            {"steps": 1, "inner": {"rte": 1.0}},
            'config.inner: unknown key "rte"; did you mean "rate"? known: rate',
        ),
        ({"steps": 1, "inner": 5}, "config.inner: expected the keys rate, got 5"),
    ],
)
def test_values_that_do_not_fit(values, problem):
    with pytest.raises(InputError) as caught:
        from_dict(Outer, values, "config")
    assert str(caught.value).startswith(problem)


def test_suggestions():
    assert (
        did_you_mean("beams", ["num_beams", "top_k"])
        == 'did you mean "num_beams"? known: num_beams, top_k'
    )
    assert did_you_mean("zzz", ["b", "a"]) == "known: a, b"


def test_differences_of_trees_keep_their_order():
    expected = {"c": (1, 2), "a": (3,), "b": (4,), "d": ()}
    result = {"z": (1,), "b": [4], "a": (5,), "y": (1,), "c": (2, 1)}
    assert compare_trees(expected, result) == (["d"], ["z", "y"], ["c", "a"])
    assert compare_trees(expected, expected) == ([], [], [])


def test_long_lists_of_names_are_cut():
    assert first_names(list("abc"), 3) == "a, b, c"
    assert first_names(list("abcde"), 3) == "a, b, c and 2 more"


@dataclass(frozen=True)
class Numbers:
    share: Share = 0.5
    rate: Rate = 0.0
    eps: PositiveFloat = 1e-6
    sizes: tuple[Size, ...] = (1,)
    seed: Count | None = None
    plain: int = 0
    scale: float = 1.0

    def __post_init__(self):
        check_ranges(self, "numbers")


@dataclass(frozen=True)
class OtherDefaults(Numbers):
    rate: float = 0.25


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"share": 1.5}, "numbers.share=1.5 must be at least 0 and at most 1"),
        ({"share": math.nan}, "numbers.share=nan must be at least 0 and at most 1"),
        ({"rate": 1.0}, "numbers.rate=1.0 must be at least 0 and below 1"),
        ({"eps": 0.0}, "numbers.eps=0.0 must be above 0"),
        ({"eps": -1e-6}, "numbers.eps=-1e-06 must be above 0"),
        ({"eps": math.inf}, "numbers.eps=inf must be a finite number above 0"),
        ({"sizes": (4, 0)}, "numbers.sizes=0 must be at least 1 and at most 65536"),
        ({"sizes": (10**12,)}, "numbers.sizes=1000000000000 must be at least 1 and at most 65536"),
        ({"seed": -1}, "numbers.seed=-1 must be at least 0"),
        ({"seed": 2**31}, "numbers.seed=2147483648 must be at most 2147483647"),
        ({"plain": -(2**31)}, "numbers.plain=-2147483648 must be at least -2147483647"),
        ({"plain": 10**400}, "numbers.plain=a whole number of more than 80 digits must be at most"),
        ({"scale": -math.inf}, "numbers.scale=-inf must be a finite number"),
    ],
)
def test_numbers_out_of_range(values, problem):
    with pytest.raises(InputError) as caught:
        Numbers(**values)
    assert str(caught.value).startswith(problem)


def test_another_default_keeps_the_range():
    assert OtherDefaults().rate == 0.25
    with pytest.raises(InputError, match=r"numbers\.rate=2\.0 must be at least 0 and below 1"):
        OtherDefaults(rate=2.0)


def test_a_number_of_400_digits_is_no_float():
    with pytest.raises(InputError, match=r"here\.scale is a whole number of more than 80 digits"):
        from_dict(Numbers, {"scale": 10**400}, "here")


def test_a_message_is_one_printable_line_of_bounded_length():
    message = str(InputError('model_type "a\nb\ud800\x1b[31m" ' + "x" * 10_000))
    assert message.isprintable()
    assert message.startswith('model_type "a\\nb\\ud800\\x1b[31m" xxx')
    assert len(message) < 4100


def test_descriptions_of_fields():
    @dataclass
    class Described:
        """Options.

        Attributes:
            first, second: text that is
                ``long``.
            third: value: 3.

        Raises:
            InputError: never.
        """

    text = "text that is long."
    assert field_docs(Described) == {"first": text, "second": text, "third": "value: 3."}
