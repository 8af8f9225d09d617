import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

import shapes
from fuzz_readers import READERS

from longsum_jax.errors import InputError
from longsum_jax.readers import pandoc
from longsum_jax.readers.registry import KINDS


@pytest.mark.parametrize("power", [1, 2])
def test_growth_is_measured_up_to_the_limit(monkeypatch, power):
    monkeypatch.setattr(shapes, "_seconds", lambda name, n: n**power * 1.3e-6)
    growth = shapes.grow("rows: keys")
    assert growth.exponent == pytest.approx(power)
    assert growth.end == "time"
    assert growth.number == 2 ** (20 if power == 1 else 10)


def test_a_slow_run_is_measured_again(monkeypatch):
    """The first run of the largest number takes four times as long as the others."""
    seconds = {2**20: [5.2, 1.3, 1.3, 1.4], 2**19: [0.65, 0.7, 0.65, 0.65]}
    monkeypatch.setattr(shapes, "_seconds", lambda name, n: seconds.get(n, [n * 1.3e-6]).pop(0))
    growth = shapes.grow("rows: keys")
    assert (growth.number, growth.seconds) == (2**20, 1.3)
    assert growth.exponent == pytest.approx(1)


def test_a_refusal_ends_the_doubling(monkeypatch):
    def seconds(name, number):
        if number > 100:
            raise InputError("too many")
        return 0.0

    monkeypatch.setattr(shapes, "_seconds", seconds)
    growth = shapes.grow("rows: keys")
    assert (growth.number, growth.end) == (64, "refused at 128: too many")


@pytest.mark.parametrize("name", shapes.SHAPES)
def test_shapes_belong_to_readers(name):
    assert name.partition(":")[0] in READERS
    assert shapes.SHAPES[name](1)


@pytest.mark.parametrize("name", shapes.SHAPES)
def test_the_smallest_file_is_read(name):
    """Otherwise a refusal would not be the answer of a limit."""
    assert shapes._seconds(name, 1) >= 0


def test_every_reader_and_kind_of_document_has_a_shape():
    assert {name.partition(":")[0] for name in shapes.SHAPES} == READERS.keys()
    names = [name for name in shapes.SHAPES if name.startswith("documents: ")]
    kinds = {name.removeprefix("documents: ").partition(",")[0] for name in names}
    assert kinds == KINDS.keys() - pandoc.MARKUPS.keys()  # pandoc has limits of its own
