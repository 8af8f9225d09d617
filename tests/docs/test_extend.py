"""The recipes of docs/extend work as they stand: every block of a page runs, in order."""

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).resolve().parents[2] / "docs" / "extend"


@pytest.fixture
def registries():
    """Takes out again what a recipe registers."""
    from longsum_jax.evaluation.registry import METRICS
    from longsum_jax.experiment.objectives.registry import OBJECTIVES
    from longsum_jax.layers.attention.registry import CROSS_ATTENTIONS, ENCODER_ATTENTIONS
    from longsum_jax.models.registry import FAMILIES

    found = [ENCODER_ATTENTIONS, CROSS_ATTENTIONS, FAMILIES, OBJECTIVES, METRICS]
    before = [dict(registry) for registry in found]
    yield
    for registry, entries in zip(found, before, strict=True):
        registry.clear()
        registry.update(entries)


def blocks(page):
    """Returns the Python blocks of a page, with their lines where they stand on it."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        first = text.count("\n", 0, found.start(1))
        yield "\n" * first + found[1]


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_recipe(page, registries, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "recipe"}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), namespace)


def test_every_recipe_has_blocks():
    for page in PAGES.glob("*.md"):
        assert page.stem == "index" or list(blocks(page)), page.name
