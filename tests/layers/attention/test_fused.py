"""Fused kernels in encoders and decoders: where they are used, and that they change nothing."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh

from longsum_jax.layers.attention.cross import HeposAttention, SourceAttention
from longsum_jax.layers.attention.full import FullAttention
from longsum_jax.layers.attention.multi_head import MultiHeadAttention, causal_mask
from longsum_jax.layers.attention.options import HeposOptions
from longsum_jax.layers.decoder import Decoder
from longsum_jax.layers.dense import normal
from longsum_jax.layers.encoder import Encoder
from longsum_jax.models.bart import BartConfig
from longsum_jax.models.bert import BertConfig
from longsum_jax.models.locost import LocostConfig
from longsum_jax.models.mt5 import UMT5Config
from longsum_jax.models.t5 import T5Config
from longsum_jax.ops.attention import fused, kernel_blocks
from longsum_jax.ops.attention.fused import KernelChoice, noted_choices
from longsum_jax.ops.attention.key_sets import KeySet
from longsum_jax.ops.packing import SegmentIds

B, T, L, D, H, K = 2, 70, 260, 8, 2, 4
X, SOURCE = (jax.random.normal(jax.random.key(seed), (B, n, D)) for seed, n in ((0, T), (1, L)))
MASK = jnp.arange(L) < jnp.array([L, 150])[:, None]
SIZES = {"d_model": 16, "dtype": "bfloat16", "dropout_rate": 0.0, "num_heads": 2, "d_kv": 8}
T5 = T5Config(**SIZES, d_ff=8, num_layers=1, num_decoder_layers=1)
UMT5 = UMT5Config(**SIZES, d_ff=8, num_layers=2, num_decoder_layers=2)
LOCOST = LocostConfig(**SIZES, d_ff=8, num_layers=1, num_decoder_layers=1)
HEPOS = {"cross_attention": "hepos", "hepos_stride": 2}
HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
BART = BartConfig(
    d_model=16, encoder_layers=1, decoder_layers=1, dtype="bfloat16", dropout=0.0, **HEADS
)
BERT = BertConfig(
    hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
    dtype="bfloat16",
)  # fmt: skip


def whole(attention, states, mask):
    return attention(states, (mask, None, None, None), (), True)


def cross(attention, x, states, mask):
    return attention.attend(x, *attention.project_kv(states), mask=mask)


def hepos(attention, x, states, mask):
    stack = BartConfig.of(**HEADS, **HEPOS).decoder_stack
    states, mask = attention.prepare(stack, states, mask)
    return cross(attention, x, states, mask)


def jointly(attention, x, states, mask, segment_ids=None):
    seen = causal_mask(T)
    if segment_ids is not None:
        seen = seen & SegmentIds(segment_ids.target, segment_ids.target).mask()
    target, source = KeySet(*attention.project_kv(x), seen), attention.project_kv(states)
    options = {"causal": True, "segment_ids": segment_ids}
    return attention.attend_with(x, *source, [target], mask=mask, **options)


@pytest.mark.parametrize(
    ("attention", "method", "arguments"),
    [
        (FullAttention, whole, (SOURCE, MASK)),
        (SourceAttention, jointly, (X, SOURCE, MASK[:, None, None])),
        pytest.param(
            SourceAttention, cross, (X, SOURCE, MASK[:, None, None]), marks=pytest.mark.slow
        ),
        pytest.param(HeposAttention, hepos, (X, SOURCE, MASK), marks=pytest.mark.slow),
    ],
)
def test_kernels_change_no_values(draw_params, attention, method, arguments):
    options = {} if attention is FullAttention else {"options": HeposOptions(hepos_stride=2)}

    def module(backend):
        return attention(D, H, K, normal(0.5), normal(0.5), backend=backend, **options)

    variables = draw_params(partial(module("reference").init, method=method), *arguments)
    result, expected = (
        jax.jit(lambda x, backend=name: module(backend).apply(variables, *x, method=method))
        for name in ("splash", "reference")
    )
    assert "splash" in str(jax.make_jaxpr(result)(arguments))
    np.testing.assert_allclose(result(arguments), expected(arguments), rtol=0, atol=1e-5)


def test_packed_rows_read_source_and_target_under_one_softmax():
    ids = SegmentIds(*(jnp.broadcast_to(1 + jnp.arange(n) * 3 // n, (B, n)) for n in (L, T)))
    arguments = (X, SOURCE, MASK[:, None, None])

    def with_gradients(backend, dtype):
        init = normal(0.5)
        attention = SourceAttention(D, H, 8, init, init, dtype=dtype, backend=backend)
        variables = attention.init(jax.random.key(0), *arguments, method=jointly)

        def loss(variables, x, states):
            arrays = x, states, arguments[2]
            out = attention.apply(variables, *arrays, method=jointly, segment_ids=ids)
            return jnp.sin(out.astype(jnp.float32)).sum(), out

        gradients = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))
        leaves = jax.tree.leaves(gradients(variables, X, SOURCE))
        return [np.asarray(x, np.float32) for x in leaves]

    kernel, reference = (with_gradients(x, jnp.bfloat16) for x in ("triton", "reference"))
    exact = with_gradients("reference", jnp.float32)
    for x, y, z in zip(kernel, reference, exact, strict=True):
        # The kernel is about as exact as the reference in the same type.
        errors = [np.linalg.norm(array - z) / np.linalg.norm(z) for array in (x, y)]
        assert 0 < errors[0] < 1.3 * errors[1] < 0.1
        assert (x != y).any()


def traced(config, *, stack="decoder", length=L, packed=False, **options):
    """A stack's function, ready to be traced with its arguments for devices that are not there."""
    config = config.replace(**options)
    states = jax.ShapeDtypeStruct((B, length, 16), config.compute_dtype)
    mask = jax.ShapeDtypeStruct((B, length), bool)
    if stack == "encoder":
        module, arguments = Encoder(config.encoder_stack), (states, mask)
    else:
        x = jax.ShapeDtypeStruct((B, 128, 16), config.compute_dtype)
        module, arguments = Decoder(config.decoder_stack), (x, states, mask)
    variables = jax.eval_shape(module.init, jax.random.key(0), *arguments)

    inputs = {}
    if packed:
        # three pairs in every row
        source, target = (
            jnp.broadcast_to(1 + jnp.arange(n) * 3 // n, (B, n)) for n in (length, 128)
        )
        inputs["segment_ids"] = source if stack == "encoder" else SegmentIds(source, target)

    def apply(variables, *arguments):
        rngs = {"dropout": jax.random.key(0)}
        return module.apply(variables, *arguments, deterministic=False, rngs=rngs, **inputs)

    return jax.jit(apply), (variables, *arguments)


def count_kernels(config, *, platform="tpu", **options):
    """The forward kernels in the program of a stack on TPUs."""
    function, arguments = traced(config, **options)
    with jax.default_device(platform):
        text = str(function.trace(*arguments).jaxpr)
    return text.count("name=splash_mha_fwd") + text.count("name=mosaic_attention_forward")


WINDOW = {"encoder_attention": "longformer", "attention_window": (16,)}
FIRST = {"encoder_attention": "window+global", "attention_window": (16,)}
BLOCKS = {"encoder_attention": "block_staggered", "block_size": 64, "num_global_tokens": 64}
LSG = {"encoder_attention": "lsg", "block_size": 32, "sparse_block_size": 8}
BIGBIRD = {"encoder_attention": "bigbird", "block_size": 64, "num_random_blocks": 1, "length": 512}
LOCAL = {"encoder_attention": "local", "local_radius": 20}
TRANSIENT = {"encoder_attention": "transient_global", "local_radius": 20}
GPU = AbstractMesh(
    (1,), ("batch",), axis_types=(AxisType.Auto,),
    abstract_device=AbstractDevice("NVIDIA H200", None, "cuda"),
)  # fmt: skip


@pytest.mark.parametrize("kernel", ["mosaic", "triton"])
@pytest.mark.parametrize(
    ("config", "options", "count"),
    [
        (T5, {"stack": "encoder"}, 1),
        (T5, {"stack": "encoder", **LOCAL}, 1),
        (T5, {"stack": "encoder", **TRANSIENT}, 1),
        # Of the target itself, and of the source; cuDNN would be asked for its version.
        (T5, {"attention_backend": ...}, 2),
        (UMT5, {"stack": "encoder"}, 1),  # a bias for each layer
        (UMT5, {"attention_backend": ...}, 2),
        (LOCOST, {"attention_backend": ...}, 2),
        (T5, {"stack": "encoder", "attention_dropout_rate": 0.1}, 1),
        (T5, {"attention_dropout_rate": 0.1}, 2),  # without cuDNN
        (T5, {"stack": "encoder", **LOCAL, "attention_dropout_rate": 0.1}, 1),
        (BERT, {"stack": "encoder"}, 1),  # drops weights by default
        *((x, {"stack": "encoder", **y, "attention_dropout_rate": 0.1}, 1)
          for x, y in ((T5, WINDOW), (T5, BLOCKS), (T5, LSG), (T5, FIRST))),
        (BART, {"stack": "encoder", **WINDOW, "attention_dropout": 0.1}, 1),
        (BART, {**HEPOS, "attention_dropout": 0.1}, 2),
        *((BART, {"stack": "encoder", "encoder_attention": x, "attention_dropout": y}, 1)
          for x in ("lsh", "sinkhorn") for y in (0.0, 0.1)),
        # of the inner blocks, and of both ends
        (T5, {"stack": "encoder", **BIGBIRD, "attention_dropout_rate": 0.1}, 2),
    ],
)  # fmt: skip
def test_attention_in_training_is_fused(kernel, config, options, count):
    if "attention_backend" in options:
        options = options | {"attention_backend": kernel}
    function, arguments = traced(config, **options)
    with use_abstract_mesh(GPU) if kernel == "triton" else jax.default_device("tpu"):
        text = str(function.trace(*arguments).jaxpr)
    assert text.count(f"name={kernel}_attention_forward") == count


@pytest.mark.parametrize(
    ("options", "count"),
    [({"stack": "encoder"}, 1), ({"stack": "encoder", **LOCAL}, 1), ({}, 2)],
)
@pytest.mark.parametrize("kernel", ["mosaic", "triton"])
def test_packed_rows_are_fused(kernel, options, count):
    function, arguments = traced(T5, packed=True, **options)
    with use_abstract_mesh(GPU) if kernel == "triton" else jax.default_device("tpu"):
        text = str(function.trace(*arguments).jaxpr)
    assert text.count(f"name={kernel}_attention_forward") == count


def assert_same_values_and_gradients(kernel, config, options):
    def with_gradients(backend):
        function, arguments = traced(config, attention_backend=backend, d_kv=16, **options)
        variables, *states, _ = arguments
        rng = np.random.default_rng(0)
        draw = lambda x: jnp.asarray(rng.normal(0, 0.5, x.shape), x.dtype)  # noqa: E731
        arrays = jax.tree.map(draw, (variables, states))

        def loss(arrays):
            out = function(arrays[0], *arrays[1], MASK).astype(jnp.float32)
            return jnp.sin(out).mean(), out

        return jax.jit(jax.grad(loss, has_aux=True))(arrays)

    result, expected = (jax.tree.leaves_with_path(with_gradients(x)) for x in (kernel, "reference"))
    assert any("relative_attention_bias" in jax.tree_util.keystr(path) for path, _ in expected)
    for (path, x), (_, y) in zip(result, expected, strict=True):
        x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)
        # rounding to bfloat16 in both
        assert 0 < np.linalg.norm(x - y) < 0.04 * np.linalg.norm(y), path


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (T5, {"stack": "encoder"}),
        (T5, {"stack": "encoder", **TRANSIENT}),
        (UMT5, {"stack": "encoder"}),
        pytest.param(T5, {}, marks=pytest.mark.slow),
        pytest.param(T5, {"stack": "encoder", **LSG}, marks=pytest.mark.slow),
        pytest.param(T5, {"stack": "encoder", **LOCAL}, marks=pytest.mark.slow),
        pytest.param(UMT5, {}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kernel", ["mosaic", "triton"])
def test_kernels_with_position_biases_change_neither_values_nor_gradients(
    kernel, config, options, monkeypatch
):
    # several blocks, whose order of summation differs from the reference's
    monkeypatch.setattr(kernel_blocks, "TPU_BLOCKS", (128,))
    assert_same_values_and_gradients(kernel, config, options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"stack": "encoder"}, marks=pytest.mark.slow),
        pytest.param({"stack": "encoder", **LOCAL}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kernel", ["mosaic", "triton"])
def test_kernels_of_packed_rows_change_neither_values_nor_gradients(kernel, options, monkeypatch):
    monkeypatch.setattr(kernel_blocks, "TPU_BLOCKS", (128,))
    assert_same_values_and_gradients(kernel, T5, {"packed": True, **options})


@pytest.mark.parametrize("options", [LOCAL, pytest.param(TRANSIENT, marks=pytest.mark.slow)])
def test_rows_have_a_kernel_if_a_row_fits_in_the_memory_of_a_tpu(options, monkeypatch):
    """Texts are longer than a row, and need not fit."""
    monkeypatch.setattr(kernel_blocks, "TPU_BLOCKS", (128,))
    monkeypatch.setattr(kernel_blocks, "_MAX_BYTES_OF_QUERIES", 200 * 16 * (4 + 2 * 2))
    monkeypatch.setattr(fused, "MAX_ROW", 200)
    assert kernel_blocks.tpu_block(L, 16, 2) is None
    assert_same_values_and_gradients("mosaic", T5, {"stack": "encoder", **options})


@pytest.mark.parametrize("options", [LOCAL, TRANSIENT, LSG, WINDOW, FIRST])
def test_long_texts_with_position_biases_and_dropout_are_fused_on_tpus(options):
    options = options | {"attention_dropout_rate": 0.1, "d_kv": 64, "length": 2**16 + 128}
    assert count_kernels(T5, stack="encoder", **options) == 1


def test_full_attention_is_fused_on_tpus():
    assert count_kernels(BART, stack="encoder") == 1
    assert count_kernels(BART) == 2  # of the target itself, and of the source
    assert count_kernels(BART, **HEPOS) == 2
    assert count_kernels(T5) == 2  # with biases of the target
    assert count_kernels(T5, stack="encoder") == 1


@pytest.mark.parametrize(
    "options",
    [
        WINDOW,
        BLOCKS,
        LSG,
        LOCAL,
        TRANSIENT,
        FIRST,
        {"encoder_attention": "lsh"},
        {"encoder_attention": "sinkhorn", "block_size": 16},
    ],
)
def test_sparse_attention_is_fused_on_tpus(options):
    assert count_kernels(BART, stack="encoder", **options) == 1


@pytest.mark.parametrize(
    ("config", "options", "reason"),
    [
        (BART, WINDOW | {"attention_dropout": 0.1, "attention_backend": "splash"},
         'the kernel "splash" has no dropout'),
        (BART, WINDOW | {"attention_window": (16, 8), "encoder_layers": 2},
         "windows that differ by layer"),
        (BART, BLOCKS | {"block_size": 32}, ""),
        (BART, {"encoder_attention": "window+stride", "attention_window": (16,)},
         "more than one window for all layers"),
        (BART, {"encoder_attention": "bigbird", "block_size": 16}, ""),
        (BART, {"encoder_attention": "lsh", "lsh_chunk_length": 12},
         "blocks of 12 tokens, which is not a power of two"),
        (T5, {"encoder_attention": "lsh"}, "position biases between sorted tokens"),
        (BART, {"encoder_attention": "sinkhorn", "block_size": 12},
         "blocks of 12 tokens, which is not a power of two"),
        (BART, {"encoder_attention": "linformer"}, "learned means as keys"),
        (T5, LSG | {"attention_backend": "splash"}, 'the kernel "splash" has no position biases'),
        (BART, LSG | {"block_size": L // 2}, "texts of at most two blocks"),
        (T5, LOCAL | {"attention_backend": "splash"}, 'the kernel "splash" has no position biases'),
    ],
)  # fmt: skip
def test_sparse_attention_that_kernels_cannot_compute_is_not_fused(config, options, reason):
    with noted_choices() as choices:
        assert count_kernels(config, stack="encoder", **options) == 0
    (name,) = choices
    assert name.endswith("self_attention")
    assert choices[name] == KernelChoice(None, reason)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (BART, {"platform": "cpu"}),
        (BART, {"dtype": "float32"}),
        (BART, {"attention_backend": "reference"}),
        (BART, {"length": 64}),
        (BART, {"attention_dropout": 0.1, "attention_backend": "splash"}),
        (BERT, {"attention_backend": "splash"}),  # drops weights by default
    ],
)
def test_attention_that_kernels_would_not_help_or_cannot_compute_is_not_fused(config, options):
    assert count_kernels(config, stack="encoder", **options) == 0


@pytest.mark.parametrize("options", [{}, LOCAL])
def test_layers_that_are_computed_again_drop_the_same_weights(options):
    def gradients(backend, rate, remat):
        changes = {"attention_backend": backend, "attention_dropout_rate": rate, "remat": remat}
        function, arguments = traced(T5, stack="encoder", d_kv=16, **changes, **options)
        variables, states, _ = arguments
        rng = np.random.default_rng(0)
        draw = lambda x: jnp.asarray(rng.normal(0, 0.5, x.shape), x.dtype)  # noqa: E731
        variables, states = jax.tree.map(draw, (variables, states))

        def loss(states):
            return jnp.sin(function(variables, states, MASK).astype(jnp.float32)).sum()

        return np.asarray(jax.jit(jax.grad(loss))(states), np.float32)

    once, again = (gradients("triton", 0.5, remat) for remat in (False, True))
    scale = np.linalg.norm(once)
    assert np.linalg.norm(once - again) < 0.02 * scale
    # Other weights are dropped in the reference, and none without dropout.
    for backend, rate in (("reference", 0.5), ("triton", 0.0)):
        assert np.linalg.norm(once - gradients(backend, rate, False)) > 0.1 * scale


def test_dropout_of_other_things_than_attention_weights_keeps_the_kernel():
    dropped = {"dropout_rate": 0.1, "attention_backend": "splash"}
    assert count_kernels(BART, attention_backend="splash", dropout=0.1) == 2
    assert count_kernels(T5, **dropped) == 0
    assert count_kernels(T5, **dropped, attention_dropout_rate=0.0) == 1  # of the source
    assert T5.decoder_stack.attention_dropout_rate == T5.dropout_rate


def test_causal_encoders_are_fused():
    options = {"attention_probs_dropout_prob": 0.0, "is_decoder": True}
    assert count_kernels(BERT, stack="encoder", **options) == 1


def test_queries_that_read_different_keys_are_left_to_the_reference():
    attention = MultiHeadAttention(D, H, K, normal(1.0), normal(1.0), backend="splash")
    k = jnp.zeros((B, L, H, K))
    arguments = {"mask": None, "bias": None, "causal": False, "deterministic": True}
    assert attention.fused_kernel(X, k, **arguments) == "splash"
    for change in ({"mask": jnp.ones((B, 1, T, L), bool)}, {"bias": jnp.zeros((1, H, T, L))}):
        assert attention.fused_kernel(X, k, **arguments | change) is None
    assert attention.fused_kernel(X[:, :32], k, **arguments) is None  # beams of a document
