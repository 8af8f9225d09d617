"""Memories in every kind of encoder-decoder: tokens one by one as all at once; padding plays no
part."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.models.registry import get_family

B, L, T, BEAMS = 2, 8, 4, 2
BART = {"d_model": 8}
BART |= {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12}
BART |= {
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "max_position_embeddings": 16,
    "init_std": 0.5,
}
LED = {k: v for k, v in BART.items() if k != "max_position_embeddings"} | {"attention_window": (4,)}
T5 = {"d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 3}
GEMMA = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "head_dim": 4}
GEMMA |= {"num_attention_heads": 2, "num_key_value_heads": 1}
T5GEMMA2 = {"encoder": GEMMA, "decoder": GEMMA | {"sliding_window": 3}, "eoi_token_index": 7}
T5GEMMA2 |= {"encoder_attention": "full", "initializer_range": 0.5}
MODELS = {
    "bart": ("bart", BART, {"memory": "compressive", "salient_vectors": 3}),
    "pegasus": ("pegasus", BART, {"memory": "attentive", "memory_layers": "all", "remat": True}),
    "led": ("led", LED, {"memory": "attentive"}),
    "t5": ("t5", T5, {"memory": "compressive", "memory_overflow": "floor"}),
    "t5gemma2": ("t5gemma2", T5GEMMA2, {"memory": "compressive"}),
    "longt5": ("longt5", T5, {"memory": "attentive", "memory_decoder": False}),
}
COMMON = {
    "vocab_size": 30,
    "memory_size": 6,
    "memory_compression": 2,
    "memory_layers": "last1",
}


@pytest.fixture(scope="module")
def make(draw_params):
    def make(name):
        family, sizes, options = MODELS[name]
        family = get_family(family)
        config = family.config(COMMON | sizes | options)
        return family, config, draw_params(family.init_params(config))

    return make


def two_segments(module, length, salient):
    """Runs two segments of B documents, the second one's target also token by token in each of R
    beams."""

    def run(params, ids, mask, targets, valid, kept):
        apply = lambda *args, **more: module.apply({"params": params}, *args, **more)  # noqa: E731
        inputs = {"salient": kept} if salient else {}

        def one(before, segment):
            ids, mask, targets, valid = segment
            states, memory = apply(ids, mask, before, method="read_segment", **inputs)
            source = apply(states, mask, memory, method="read_source")
            written, memory = apply(targets, valid, states, mask, memory, method="write_segment")
            return memory, (states, source, apply(written, method="output_logits"), before)

        memory = apply(B, length, T, method="init_memory")
        memory, outputs = jax.lax.scan(one, memory, (ids, mask, targets, valid))
        states, source, logits, before = jax.tree.map(lambda x: x[-1], outputs)
        step = lambda cache, token: apply(token, cache, source, method="decode_step")[::-1]  # noqa: E731
        cache = apply(source, BEAMS, T, method="init_cache")
        tokens = jnp.broadcast_to(targets[1].T[:, :, None], (T, B, BEAMS))
        _, stepped = jax.lax.scan(step, cache, tokens)
        return states, logits, jnp.moveaxis(stepped, 0, 2), memory, before

    return jax.jit(run)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_steps_equal_all_at_once_and_padding_has_no_part(make, name):
    _, config, params = make(name)
    module, rng = get_family(MODELS[name][0]).module_class(config), np.random.default_rng(0)
    ids, targets = rng.integers(3, 30, (2, B, L)), rng.integers(3, 30, (2, B, T))
    mask = np.arange(L) < np.array([[6, 3], [2, 5]])[..., None]
    valid = np.arange(T) < np.array([[4, 2], [3, 4]])[..., None]
    retained = (
        rng.normal(size=(B, 3, 8)).astype(np.float32),
        np.array([[True, True, False], [False] * 3]),
    )
    run = two_segments(module, L, config.memory.salient_vectors)
    states, logits, stepped, memory, before = run(params, ids, mask, targets, valid, retained)
    for beam in range(BEAMS):
        np.testing.assert_allclose(stepped[:, beam], logits, atol=2e-5, rtol=1e-4)
    # Other padding, other states that are not there, and another end of the second segment's
    # target.
    other_ids, other_targets = np.where(mask, ids, 5), np.where(valid, targets, 5)
    nothing = np.where(retained[1][..., None], retained[0], 9.0).astype(np.float32), retained[1]
    again = run(params, other_ids, mask, other_targets, valid, nothing)
    np.testing.assert_allclose(again[0][mask[1]], states[mask[1]], atol=1e-5)
    np.testing.assert_allclose(again[1][valid[1]], logits[valid[1]], atol=1e-5, rtol=1e-4)
    slots = [
        leaf
        for state in (memory.encoder, memory.decoder)
        for group in state
        if group
        for leaf in group.slots
    ]
    assert slots
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), again[3], memory)
    # The first segment is part of what the second one sees.
    changed = run(params, np.stack([(ids[0] + 1) % 27 + 3, ids[1]]), mask, targets, valid, retained)
    assert np.abs(changed[0] - states)[mask[1]].max() > 1e-4
    # It has been remembered before the second segment is looked at.
    later = run(params, np.stack([ids[0], (ids[1] + 1) % 27 + 3]), mask, targets, valid, retained)
    jax.tree.map(np.testing.assert_array_equal, later[4], before)


@pytest.mark.slow
def test_a_segment_of_its_own_is_what_encode_and_logits_see(make):
    _, config, params = make("t5")
    module = get_family("t5").module_class(config)
    ids, targets = np.full((B, L), 7), np.full((B, T), 8)
    mask, valid = np.ones((B, L), bool), np.ones((B, T), bool)

    def run(params):
        apply = lambda *args, **more: module.apply({"params": params}, *args, **more)  # noqa: E731
        memory = apply(B, L, T, method="init_memory")
        states, memory = apply(ids, mask, memory, method="read_segment")
        written, _ = apply(targets, valid, states, mask, memory, method="write_segment")
        return apply(written, method="output_logits"), apply(ids, mask, targets)

    by_segments, at_once = jax.jit(run)(params)
    np.testing.assert_allclose(by_segments, at_once, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"memory": "compresive"},
            'model.memory: "compresive" is not allowed; did you mean "compressive"?',
        ),
        (
            {"memory": "compressive", "memory_size": 7},
            "model: memory_size is 7 with memory_compression 5; half of",
        ),
        (
            {"memory": "compressive", "memory_size": 8},
            "model: memory_size is 8 with memory_compression 5; half of",
        ),
        (
            {"memory": "attentive", "memory_layers": "frist3"},
            'model: memory_layers is "frist3"; give "firstN", "lastN"',
        ),
        (
            {"memory": "attentive", "memory_layers": (0, 2)},
            "model: memory_layers is (0, 2); give indices from 0 to 1",
        ),
        (
            {"memory": "attentive", "memory_size": 0},
            "model: memory_size=0 must be at least 1",
        ),
        ({"memory_backprop": -1}, "model: memory_backprop=-1 must be at least 0"),
        (
            {"memory": "compressive", "encoder_attention": "window", "attention_window": (4,)},
            'model: memory "compressive": encoder_attention "window" cannot read keys outside of '
            "its text; ",
        ),
        (
            {"salient_vectors": 4, "encoder_attention": "full,window", "attention_window": (4,)},
            'model: salient_vectors: encoder_attention "window" cannot read keys outside of its '
            "text; ",
        ),
    ],
)
def test_options_that_make_no_memory(options, problem):
    with pytest.raises(InputError) as caught:
        get_family("bart").config(BART | options)
    assert str(caught.value).startswith(problem)


@pytest.mark.slow
def test_a_memory_goes_where_its_layers_read_it():
    attention = {"encoder_attention": "window,full", "attention_window": (4,)}
    config = get_family("bart").config(
        BART | attention | {"memory": "compressive", "memory_layers": (1,)}
    )
    assert "encoder/layers_1_1/memory/kernel" in get_family("bart").parameter_shapes(config)


def count(**options):
    """Parameters of BART large; the stored bias of the logits, which is never trained, is none in
    published counts."""
    family = get_family("bart")
    shapes = family.parameter_shapes(family.config(options))
    return sum(int(np.prod(shape)) for name, shape in shapes.items() if name != "final_logits_bias")


@pytest.mark.slow
def test_parameters_of_bart_large_are_as_many_as_in_the_paper():
    base, layer, conv = 406_291_456, 12 * 1024**2 + 8 * 1024, 5 * 1024**2 + 1024
    assert count() == base
    assert (
        count(memory="attentive", memory_layers="all") == base + 24 * layer == 708_477_952
    )  # "708M", appendix D
    assert count(memory="attentive") == base + 6 * layer == 481_838_080
    assert count(memory="compressive") == base + 6 * conv
    assert count(memory="compressive", memory_decoder=False) == base + 3 * conv
    assert count(salient_vectors=1024) == base + 12 * 1024**2
    assert count(salient_vectors=1024, salient_projection="separate") == base + 24 * 1024**2
