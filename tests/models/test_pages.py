"""Sources encoded in pages, compared with one page after another by the model without pages."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.experimental.attention.nearest import NearestAttention
from longsum_jax.layers.attention.options import NearestOptions
from longsum_jax.layers.decoder_cache import DecoderCache
from longsum_jax.layers.dense import normal
from longsum_jax.models.registry import get_family, max_input_length
from longsum_jax.summarization.model import Model

SIZES = {
    "vocab_size": 40,
    "max_position_embeddings": 12,
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
}
SIZES |= {
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
}
SIZES |= {"init_std": 0.5, "dropout": 0.0}
B, L, T = 2, 22, 4
IDS = np.random.default_rng(0).integers(3, 40, (B, L))
MASK = np.arange(L) < np.array([[22], [9]])
TARGETS = np.random.default_rng(1).integers(3, 40, (B, T))
FAMILY = get_family("bart")


@pytest.fixture(scope="module")
def make(draw_params):
    def make(**options):
        config = FAMILY.config(SIZES | options)
        return config, FAMILY.module_class(config), draw_params(FAMILY.init_params(config))

    return make


def windows(length, page, context):
    """(start, end, first kept, end of kept) of every page, one after the other."""
    if length <= page:
        return [(0, length, 0, length)]
    stride = page - 2 * context
    result = [(0, page, 0, page - context)]
    while result[-1][1] < length:
        start, retained = result[-1][0] + stride, result[-1][3]
        if start + page >= length:
            result.append((length - page, length, retained, length))
        else:
            result.append((start, start + page, retained, retained + stride))
    return result


@pytest.fixture(scope="module")
def unlimiformer(make):
    options = {"page_length": 12, "page_context": 3}
    config, module, params = make(**options, cross_attention="nearest", cross_nearest=5)
    plain = FAMILY.module_class(config.replace(page_length=0, page_context=0))
    return (
        jax.jit(lambda ids, mask: module.apply({"params": params}, ids, mask, method="encode")),
        jax.jit(lambda ids, mask: plain.apply({"params": params}, ids, mask, method="encode")),
    )


@pytest.mark.slow
def test_pages_begin_with_the_text_and_the_last_is_full(unlimiformer):
    paged, plain = unlimiformer
    lengths = [30, 29, 24, 19, 18, 13, 12, 5]  # with 19: two pages, the second of 12 tokens
    ids = np.random.default_rng(2).integers(3, 40, (len(lengths), 31))
    mask = np.arange(31) < np.array(lengths)[:, None]
    result = paged(ids, mask)
    for row, length in enumerate(lengths):
        for start, end, first, last in windows(length, 12, 3):
            page, inside = np.zeros((2, 1, 12), int)
            page[0, : end - start], inside[0, : end - start] = ids[row, start:end], 1
            expected = plain(page, inside.astype(bool))[0, first - start : last - start]
            np.testing.assert_allclose(result[row, first:last], expected, atol=1e-5)


def test_a_source_of_one_page_is_that_of_a_model_without_pages(unlimiformer):
    paged, plain = unlimiformer
    for length in (9, 12):
        ids, mask = IDS[:, :length], MASK[:, :length]
        np.testing.assert_array_equal(paged(ids, mask), plain(ids, mask))


@pytest.mark.parametrize("recompute", [False, True])
def test_pages_without_context_do_not_overlap(make, recompute):
    config, paged, params = make(page_length=8, page_recompute=recompute)
    plain = FAMILY.module_class(config.replace(page_length=0, page_recompute=False))

    def states(module, ids, mask):
        return module.apply({"params": params}, ids, mask, method="encode")

    result = jax.jit(partial(states, paged))(IDS, MASK)
    assert result.shape == (B, L, 8)
    encode_page = jax.jit(partial(states, plain))
    for start in range(0, L, 8):
        page = slice(start, start + 8)
        np.testing.assert_allclose(
            result[:, page][MASK[:, page]],
            encode_page(IDS[:, page], MASK[:, page])[MASK[:, page]],
            atol=1e-5,
        )


# Name -> family, options of its tiny model.
RECOMPUTED = {
    "bart": ("bart", {}),
    "context": ("bart", {"page_context": 8}),
    "pagesum": ("bart", {"page_decoding": True}),
    "lsg": ("bart", {"encoder_attention": "lsg", "block_size": 4, "num_global_tokens": 2}),
    "t5": ("t5", {"cross_attention": "hepos", "hepos_stride": 2}),
    "locost": ("locost", {}),
}
RECOMPUTED_WEEKLY = "bart", "t5", "locost"  # pages hide what encodes them
LENGTHS = np.array([[90], [41], [33], [3]])  # pages of 32: full, partly empty, empty


def losses_and_gradients(module, params, rng=None):
    """The losses of targets by position, and the gradients of all parameters."""
    ids = np.random.default_rng(2).integers(5, 90, (len(LENGTHS), LENGTHS.max()))
    mask = np.arange(LENGTHS.max()) < LENGTHS
    labels = np.random.default_rng(3).integers(5, 90, (len(LENGTHS), 6))
    training = {} if rng is None else {"deterministic": False, "rngs": {"dropout": rng}}

    def loss(params):
        arguments = ids, mask, labels
        scores = module.apply({"params": params}, *arguments, method="score_targets", **training)
        return scores.losses.sum(), scores.losses

    (_, losses), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    return losses, gradients


def assert_same_gradients(result, expected):
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-5)
    largest = max(float(jnp.abs(y).max()) for y in jax.tree.leaves(expected[1]))
    for (path, x), y in zip(
        jax.tree_util.tree_leaves_with_path(result[1]), jax.tree.leaves(expected[1]), strict=True
    ):
        # The gradients of key biases are zero but for rounding, with the errors of larger ones.
        is_key_bias = [entry.key for entry in path[-2:]] == ["k", "bias"]
        atol = 2e-5 * float(jnp.abs(y).max()) + 1e-6 * (largest if is_key_bias else 1)
        np.testing.assert_allclose(x, y, atol=atol, err_msg=str(path))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=pytest.mark.weekly) if x in RECOMPUTED_WEEKLY else x
        for x in RECOMPUTED
    ],
)
def test_recomputed_pages_have_the_gradients_of_one_tape(name, draw_params):
    family_name, options = RECOMPUTED[name]
    family = get_family(family_name)
    config = family.presets["tiny"].replace(page_length=32, page_recompute=True, **options)
    at_once = config.replace(page_recompute=False)
    params = draw_params(family.init_params(config))
    assert family.parameter_shapes(config) == family.parameter_shapes(at_once)
    result = losses_and_gradients(family.module_class(config), params)
    assert_same_gradients(result, losses_and_gradients(family.module_class(at_once), params))


@pytest.mark.slow
def test_recomputed_pages_drop_the_same_entries(draw_params, monkeypatch):
    """Without ``nn.remat`` the backward pass reads the stored activations of all pages."""
    config = FAMILY.presets["tiny"].replace(
        page_length=32,
        page_recompute=True,
        dropout=0.3,
        attention_dropout=0.2,
        activation_dropout=0.1,
    )
    module, params = FAMILY.module_class(config), draw_params(FAMILY.init_params(config))
    result = losses_and_gradients(module, params, jax.random.key(5))
    other = losses_and_gradients(module, params, jax.random.key(6))
    assert np.abs(result[0] - other[0]).max() > 1e-3
    monkeypatch.setattr(nn, "remat", lambda target, **_: target)
    assert_same_gradients(result, losses_and_gradients(module, params, jax.random.key(5)))


@pytest.mark.slow
def test_every_recomputed_page_drops_other_entries(make):
    _, module, params = make(page_length=8, page_recompute=True, dropout=0.5)
    ids = np.tile(IDS[:, :8], (1, 3))

    def states(params):
        options = {"deterministic": False, "rngs": {"dropout": jax.random.key(0)}}
        return module.apply({"params": params}, ids, ids > 0, method="encode", **options)

    pages = np.asarray(jax.jit(states)(params)).reshape(B, 3, 8, 8)
    assert np.abs(pages[:, 0] - pages[:, 1]).max() > 0.1
    assert np.abs(pages[:, 1] - pages[:, 2]).max() > 0.1


@pytest.mark.slow
def test_recomputed_pages_encode_and_generate_as_pages_at_once(make):
    config, _, params = make(page_length=8, page_recompute=True)
    one_by_one = Model(FAMILY, config, params)
    at_once = Model(FAMILY, config.replace(page_recompute=False), params)
    for layer in (None, 0):
        np.testing.assert_allclose(
            np.asarray(one_by_one.encode(IDS, MASK, layer=layer))[MASK],
            np.asarray(at_once.encode(IDS, MASK, layer=layer))[MASK],
            atol=1e-5,
        )
    options = {"max_new_tokens": 6, "num_beams": 2, "forced_eos_token_id": None}
    np.testing.assert_array_equal(
        one_by_one.generate(IDS, MASK, **options), at_once.generate(IDS, MASK, **options)
    )


@pytest.mark.slow
def test_memory_of_recomputed_pages_grows_by_their_states():
    """A token adds at most 10 arrays of the size of its state; at once it adds its activations."""
    sizes = {"d_model": 32, "encoder_ffn_dim": 512, "encoder_layers": 4, "vocab_size": 99}
    options = sizes | {"max_position_embeddings": 64, "page_length": 64, "remat": True}

    def bytes_per_token(**changes):
        config = FAMILY.presets["tiny"].replace(**options, **changes)
        module = FAMILY.module_class(config)
        params = nn.meta.unbox(jax.eval_shape(FAMILY.init_params(config), jax.random.key(0)))

        def loss(params, ids, labels):
            variables = {"params": params}
            return module.apply(
                variables, ids, ids > 0, labels, method="score_targets"
            ).losses.sum()

        def temporary_bytes(length):
            rows = [jax.ShapeDtypeStruct((1, n), jnp.int32) for n in (length, 8)]
            compiled = jax.jit(jax.grad(loss)).lower(params, *rows).compile()
            return compiled.memory_analysis().temp_size_in_bytes

        return (temporary_bytes(8192) - temporary_bytes(4096)) / 4096

    recomputed, at_once = bytes_per_token(page_recompute=True), bytes_per_token()
    assert recomputed < 10 * 4 * sizes["d_model"] < at_once / 2


def all_at_once_and_by_steps(module, params, beams=2):
    """Logits [B, T, V], and those of two beams decoded token by token and swapped after each [B, R,
    T, V]."""

    def run(params):
        apply = lambda *args, **more: module.apply({"params": params}, *args, **more)  # noqa: E731
        source = apply(apply(IDS, MASK, method="encode"), MASK, method="read_source")
        cache = apply(source, beams, T, method="init_cache")
        swap = jnp.broadcast_to(jnp.arange(beams)[::-1], (B, beams))

        def step(cache, token):
            logits, cache = apply(
                jnp.broadcast_to(token[:, None], (B, beams)), cache, source, method="decode_step"
            )
            return DecoderCache.reorder(cache, swap), logits

        _, stepped = jax.lax.scan(step, cache, jnp.asarray(TARGETS.T))
        return apply(IDS, MASK, TARGETS), jnp.moveaxis(stepped, 0, 2)

    return jax.jit(run)(params)


@pytest.mark.slow
def test_outputs_of_pages_are_averaged(make):
    config, module, params = make(page_length=8, page_decoding=True)
    logits, stepped = all_at_once_and_by_steps(module, params)
    for beam in range(2):
        np.testing.assert_allclose(stepped[:, beam], logits, atol=2e-5)
    plain = FAMILY.module_class(config.replace(page_length=0, page_decoding=False))

    def hidden(module, ids, mask):
        states = module.encode(ids, mask)
        return module.decoder(module.embed_target(TARGETS, jnp.arange(T)), states, mask)

    pages = [slice(start, start + 8) for start in range(0, L, 8)]
    of_page = jax.jit(lambda ids, mask: plain.apply({"params": params}, ids, mask, method=hidden))
    result = [of_page(IDS[:, p], MASK[:, p]) for p in pages]
    scores = params["page_scores"]
    for row in range(B):
        read = [x[row] for x, p in zip(result, pages, strict=True) if MASK[row, p].any()]
        weights = jax.nn.softmax(
            jnp.stack([x @ scores["kernel"] + scores["bias"] for x in read]), axis=0
        )
        mixed = (weights * jnp.stack(read)).sum(0)
        expected = mixed @ params["shared"].T + params["final_logits_bias"]
        np.testing.assert_allclose(logits[row], expected, atol=2e-5)


@pytest.mark.slow
def test_nearest_positions_are_those_of_the_largest_scores(make, draw_params):
    _, module, params = make(
        page_length=12, page_context=3, cross_attention="nearest", cross_nearest=5
    )
    logits, stepped = all_at_once_and_by_steps(module, params)
    np.testing.assert_allclose(stepped[:, 0], logits, atol=2e-5)
    attention = NearestAttention(
        8, 2, 4, normal(0.5), normal(0.5), scale=0.5, options=NearestOptions(cross_nearest=3)
    )
    x, states = (
        jnp.asarray(np.random.default_rng(i).normal(size=(B, n, 8)), jnp.float32)
        for i, n in ((2, 4), (3, L))
    )
    mask = MASK[:, None, None, :]

    def read(module, x, states):
        return module.attend(x, *module.project_kv(states), mask=mask), module.attend_absorbed(
            x, states, mask=mask
        )

    variables = draw_params(partial(attention.init, method=read), x, states)
    result, unprojected = jax.jit(partial(attention.apply, method=read))(variables, x, states)
    p = jax.tree.map(np.asarray, variables["params"])
    maps = {
        name: np.einsum("bld,dhk->blhk", s, p[name]["kernel"])
        for name, s in (("q", x), ("k", states), ("v", states))
    }
    expected = np.zeros((B, 4, 2, 4))
    for b, t, h in np.ndindex(B, 4, 2):
        scores = 0.5 * maps["k"][b, :, h] @ maps["q"][b, t, h]
        nearest = sorted(np.flatnonzero(MASK[b]), key=lambda i: -scores[i])[:3]
        weights = np.exp(scores[nearest] - scores[nearest].max())
        expected[b, t, h] = (weights / weights.sum()) @ maps["v"][b, nearest, h]
    expected = np.einsum("bthk,hkd->btd", expected, p["o"]["kernel"])
    np.testing.assert_allclose(result, expected, atol=1e-5)
    np.testing.assert_allclose(unprojected, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"page_length": 13},
            "model: page_length is 13, but there are positions for 12; give at most that",
        ),
        (
            {"page_length": 8, "page_context": 3},
            "model: page_length is 8 with page_context 3; give a context of at most",
        ),
        (
            {"page_decoding": True},
            "model: page_decoding is true, but page_length 0 makes no pages; give their length",
        ),
        (
            {"page_recompute": True},
            "model: page_recompute is true, but page_length 0 makes no pages; give their length",
        ),
        (
            {"page_length": 13, "page_recompute": True},
            "model: page_length is 13, but there are positions for 12; give at most that",
        ),
        (
            {
                "page_length": 8,
                "encoder_attention": "linformer",
                "linformer_size": 2,
                "linformer_max_length": 6,
            },
            "model: page_length is 8, but linformer_max_length 6; give at most that",
        ),
        (
            {"page_length": 8, "page_recompute": True, "memory": "compressive"},
            "model: page_length cuts a source that memories read segment by",
        ),
        (
            {"page_length": 8, "memory": "attentive"},
            "model: page_length cuts a source that memories read segment by",
        ),
        (
            {"cross_attention": "nearest", "cross_nearest": 0},
            "model: cross_nearest=0 must be at least 1",
        ),
    ],
)
def test_options_that_make_no_pages(options, problem):
    with pytest.raises(InputError) as caught:
        FAMILY.config(SIZES | options)
    assert str(caught.value).startswith(problem)


def test_a_limit_of_the_encoder_attention_is_one_of_pages():
    options = {"encoder_attention": "linformer", "linformer_size": 2, "linformer_max_length": 10}
    assert max_input_length(FAMILY.config(SIZES | options)) == 10
    assert max_input_length(FAMILY.config(SIZES | options | {"page_length": 8})) is None


@pytest.mark.parametrize("option", ["page_decoding", "page_recompute"])
def test_config_json_has_the_options_of_pages(option):
    config = FAMILY.config(SIZES | {"page_length": 8, option: True})
    written = FAMILY.config_json(config)
    assert written["model_type"] == "longsum_jax/bart"
    assert FAMILY.config_of_json(written, "config.json") == config
    assert config.max_source_length is None
    assert not {"page_length", "memory"} & FAMILY.config_json(FAMILY.config(SIZES)).keys()
