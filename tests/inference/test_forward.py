import contextlib

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from longsum_jax import Model
from longsum_jax.layers.layer_groups import regroup
from longsum_jax.models.registry import get_family

ENCODER = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 32}
ENCODER_DECODER = {
    "num_layers": 1,
    "num_decoder_layers": 1,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 16,
    "num_heads": 2,
    "vocab_size": 32,
}


@contextlib.contextmanager
def compilations():
    """Yields the names of the programs that are compiled in the block."""
    names = []

    def note(event, seconds, fun_name="", **_):
        if event.endswith("backend_compile_duration"):
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


def make(draw_params, name, sizes):
    family = get_family(name)
    config = family.config(sizes)
    return Model(family, config, draw_params(family.init_params(config)))


@pytest.mark.parametrize(
    ("name", "sizes", "call"),
    [
        ("bert", ENCODER | {"dtype": "bfloat16"}, Model.encode),
        ("bert", ENCODER, Model.logits),
        ("t5", ENCODER_DECODER, lambda m, ids: m.log_probs(ids[:, :4], None, ids)),
        ("t5", ENCODER_DECODER, lambda m, ids: m.logits(ids[:, :4], None, ids)),
    ],
)
def test_lengths_of_one_bucket_share_a_program(draw_params, name, sizes, call):
    model = make(draw_params, name, sizes)
    ids = np.random.default_rng(0).integers(3, 32, (2, 64))
    whole = call(model, ids)
    with compilations() as compiled:
        result = {length: call(model, ids[:, :length]) for length in (41, 17, 23)}
    assert compiled == []
    for length, states in result.items():
        assert isinstance(states, jax.Array)
        assert states.shape == (2, length, *whole.shape[2:])
        assert states.dtype == whole.dtype


def test_logits_are_those_without_padding(draw_params):
    model = make(draw_params, "t5", ENCODER_DECODER)
    ids = np.random.default_rng(0).integers(3, 32, (2, 11))
    result = model.logits(ids, None, ids[:, :5])
    np.testing.assert_allclose(result, model.logits(ids, None, ids[:, :5], bucket=1), atol=1e-5)


@pytest.mark.slow
def test_states_of_inner_layers_are_those_of_a_shorter_encoder(draw_params):
    family = get_family("locost")
    sizes = {"d_model": 16, "d_state": 4, "d_kv": 8, "d_ff": 16, "num_heads": 2}
    sizes |= {"vocab_size": 60, "num_decoder_layers": 1}
    config = family.config({"encoder_attention": "s4d*2,full*2", "num_layers": 4, **sizes})
    shorter = family.config({"encoder_attention": "s4d*2,full", "num_layers": 3, **sizes})
    model = Model(family, config, draw_params(family.init_params(config)))
    shapes = family.parameter_shapes(shorter)
    params = regroup(flatten_dict(jax.device_get(model.params), sep="/"), shapes)
    params = unflatten_dict({name: params[name] for name in shapes}, sep="/")
    ids = np.random.default_rng(0).integers(3, 60, (2, 20))
    expected = Model(family, shorter, params).encode(ids)
    np.testing.assert_allclose(model.encode(ids, layer=3), expected, atol=1e-6)
