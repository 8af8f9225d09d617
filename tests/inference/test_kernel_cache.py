import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.inference import runner
from longsum_jax.layers.s4d import KERNELS
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.model import Model

IDS = np.random.default_rng(0).integers(2, 64, (2, 100))
KERNEL_BYTES = 2 * 16 * (128 + 1) * 8  # of 128 tokens: two layers of 16 channels


@pytest.fixture(scope="module")
def compiled(draw_params):
    """A LOCOST of two layers with random weights and other options, made once."""

    @functools.cache
    def model(**options):
        sizes = {
            "d_model": 16,
            "d_state": 8,
            "d_kv": 8,
            "d_ff": 16,
            "num_heads": 2,
            "vocab_size": 64,
        }
        layers = {"num_layers": 2, "num_decoder_layers": 1}
        family = get_family("locost")
        config = family.config(sizes | layers | options)
        return Model(
            family, config, draw_params(family.init_params(config)), None, {"max_new_tokens": 3}
        )

    return model


@pytest.fixture
def make(compiled, with_programs_of):
    """Such a model that has kept nothing so far, with a tree of parameters of its own."""

    def model(**options):
        model = compiled(**options)
        return with_programs_of(model, model.with_params(jax.tree.map(jnp.asarray, model.params)))

    return model


@pytest.fixture
def without(with_programs_of):
    """The same as a model, keeping nothing."""

    def twin(model):
        again = with_programs_of(model, model.with_params(model.params))
        again._runner.kernels.limit = 0
        return again

    return twin


def kept(model):
    return list(model._runner.kernels._entries)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"encoder_attention": "window,s4d"},
        {"page_length": 64},
        {"page_length": 64, "page_recompute": True},
    ],
)
def test_kept_kernels_change_no_states(make, without, options):
    model = make(**options)
    twin = without(model)
    exact = twin.encode(IDS)
    for _ in range(2):  # made, and used again
        np.testing.assert_allclose(
            model.encode(IDS), exact, rtol=0, atol=1e-6 * np.abs(exact).max()
        )
    assert (kept(model), kept(twin)) == ([128], [])


@pytest.mark.slow
def test_kept_kernels_change_no_outputs(make, without):
    model = make()
    twin = without(model)
    exact = twin.logits(IDS, None, IDS[:, :3])
    np.testing.assert_allclose(
        model.logits(IDS, None, IDS[:, :3]), exact, rtol=0, atol=1e-5 * np.abs(exact).max()
    )
    np.testing.assert_array_equal(model.generate(IDS), twin.generate(IDS))
    assert (kept(model), kept(twin)) == ([128], [])


@pytest.mark.slow
def test_other_parameters_have_other_kernels(make, without):
    model = make()
    before = model.encode(IDS)
    layers = model.params["encoder"]["layers"]
    layers["self_attention"] = layers["self_attention"] | {
        "C": 2 * layers["self_attention"]["C"]
    }  # in place
    after = model.encode(IDS)
    assert np.abs(after - before).max() > 1e-2
    np.testing.assert_allclose(after, without(model).encode(IDS), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_memory_is_bounded_and_the_last_used_lengths_stay(make, monkeypatch):
    monkeypatch.setattr(runner, "MAX_KERNEL_CACHE_BYTES", KERNEL_BYTES * 5 // 2)
    model = make()
    for length in (
        128,
        64,
        128,
        192,
    ):  # 1 + 1/2 fit, and another 3/2 take the place of what was used first
        assert model._runner.kernels(model.params, length)[KERNELS]
    assert kept(model) == [128, 192]
    assert model._runner.kernels(model.params, 512) == {}  # more than all that may be kept
    assert model._runner.kernels(model.params, 192)[KERNELS]


@pytest.mark.slow
def test_nothing_is_kept_where_there_is_nothing_to_keep(make):
    for options in ({"encoder_attention": "full"}, {"ssm_backend": "matmul"}):
        model = make(**options)
        assert model._runner.kernels(model.params, 64) == {}
    model = make()
    with jax.set_mesh(jax.make_mesh((1,), ("batch",))):
        assert model._runner.kernels(model.params, 64) == {}


@pytest.mark.slow
def test_the_program_that_makes_kernels_runs_no_encoder(make):
    model = make()
    program = model._runner.kernels._make.trace(model.params, 64).lower().compile()
    more = dataclasses.replace(model.config, d_ff=4096, vocab_size=50_000)
    params = jax.eval_shape(model.family.init_params(more), jax.random.key(0))
    params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.float32), params)
    large = (
        Model(model.family, more, params)._runner.kernels._make.trace(params, 64).lower().compile()
    )
    assert large.cost_analysis()["flops"] < 1.01 * program.cost_analysis()["flops"]


def test_kernels_are_forgotten_when_asked_to(make):
    model = make()
    model.encode(IDS)
    assert kept(model) == [128]
    model.forget_kernels()
    assert kept(model) == []


def test_kernels_of_other_parameters_are_made_by_the_same_program(make):
    model = make()
    model.encode(IDS)
    compiled = model._runner.kernels._make._cache_size()
    model.params = jax.tree.map(jnp.copy, model.params)  # as at every evaluation of a training
    model.forget_kernels()
    model.encode(IDS)
    other = model.with_params(jax.tree.map(jnp.copy, model.params))
    other.encode(IDS)
    assert kept(model) == kept(other) == [128]
    assert other._runner.kernels._make._cache_size() == compiled
