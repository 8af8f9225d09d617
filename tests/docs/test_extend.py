"""The recipes of docs/extend work as they stand: every block of a page runs, in order."""

import re
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

PAGES = Path(__file__).resolve().parents[2] / "docs" / "extend"


@pytest.fixture
def registries():
    """Takes out again what a recipe registers."""
    from longsum_jax.data.tasks import BASE_OBJECTIVES
    from longsum_jax.evaluation.registry import METRICS
    from longsum_jax.experiment.objectives.registry import OBJECTIVES
    from longsum_jax.layers.attention.registry import CROSS_ATTENTIONS, ENCODER_ATTENTIONS
    from longsum_jax.models.registry import FAMILIES
    from longsum_jax.readers import KINDS
    from longsum_jax.summarization.registry import STRATEGIES

    result = [
        ENCODER_ATTENTIONS,
        CROSS_ATTENTIONS,
        FAMILIES,
        OBJECTIVES,
        BASE_OBJECTIVES,
        METRICS,
        KINDS,
        STRATEGIES,
    ]
    before = [dict(registry) for registry in result]
    yield
    for registry, entries in zip(result, before, strict=True):
        registry.clear()
        registry.update(entries)


def blocks(page):
    """Returns the Python blocks of a page, with their lines where they stand on it."""
    text = page.read_text(encoding="utf-8")
    for result in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        first = text.count("\n", 0, result.start(1))
        yield "\n" * first + result[1]


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


def test_the_objective_of_the_recipe_stays_finite():
    """Also where a model is so sure of a token that its probability is 1 in float32."""
    logits = 100 * jax.nn.one_hot(jnp.array([[4, 5, 4]]), 8)
    config = SimpleNamespace(decoder_start_token_id=0, pad_token_id=0)
    module = SimpleNamespace(apply=lambda variables, *args, **kwargs: variables["params"])
    setup = SimpleNamespace(
        config=config, family=SimpleNamespace(module_class=lambda config: module)
    )
    namespace = {"__name__": "recipe"}
    exec(next(blocks(PAGES / "objective.md")), namespace)
    loss_fn = namespace["Unlikelihood"](setup).loss_fn()
    batch = {name: jnp.array([[4, 5, -100]]) for name in ("input_ids", "attention_mask", "labels")}
    loss, gradient = jax.value_and_grad(lambda x: loss_fn(x, batch, None).loss_sum)(logits)
    assert jnp.isfinite(loss)
    assert jnp.isfinite(gradient).all()
