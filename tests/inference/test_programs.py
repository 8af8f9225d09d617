"""The compiled programs that ``generate`` runs: what a step of decoding copies, and whose memory it
reads."""

import functools
import gc
import math
import os
import re
import weakref

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.inference import programs as programs_module
from longsum_jax.inference.decoder_storage import (
    StoredDecoder,
    narrow_layers,
    stored_decoder,
    turned_back,
    turned_layers,
)
from longsum_jax.inference.programs import Program, Programs, layer_views
from longsum_jax.layers.decoder_cache import KeyValueCache
from longsum_jax.layers.layer_groups import unstacked_layers
from longsum_jax.models.registry import get_family
from longsum_jax.ops import device_memory
from longsum_jax.ops.storage import Stored
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.model import Model

# The instructions are then those that users get: what tests do without comes after them.
OPTIONS = {"xla_cpu_use_fusion_emitters": True} if "XLA_FLAGS" in os.environ else {}
VOCABULARY, WIDTH, NEW_TOKENS = 96, 64, 4
T5_SIZES = {"d_model": WIDTH, "num_heads": 4, "d_kv": 16, "d_ff": 128}
T5_SIZES |= {"num_layers": 1, "num_decoder_layers": 2}
BART_SIZES = {
    "d_model": WIDTH,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 1024,
}
PEGASUS_X_SIZES = {"num_global_tokens": 8, "block_size": 32}
FAMILIES = {
    "t5": ("t5", T5_SIZES),
    "longt5": ("longt5", T5_SIZES),
    "locost": ("locost", T5_SIZES | {"d_state": 8}),
    "bart": ("bart", BART_SIZES),
    "pegasus": ("pegasus", BART_SIZES),
    "pegasus_x": ("pegasus_x", BART_SIZES | PEGASUS_X_SIZES),
    "bigbird_pegasus": ("bigbird_pegasus", BART_SIZES | {"block_size": 16}),
    "led": ("led", BART_SIZES | {"attention_window": [64]}),
    "bart, LSG": ("bart", BART_SIZES | {"encoder_attention": "lsg", "block_size": 32}),
    "bart, attentive memory": ("bart", BART_SIZES | {"memory": "attentive", "memory_size": 256}),
    "bart, compressive memory": (
        "bart",
        BART_SIZES | {"memory": "compressive", "memory_size": 256},
    ),
    "bart, pages": ("bart", BART_SIZES | {"page_length": 128, "page_decoding": True}),
    "t5, Hepos": ("t5", T5_SIZES | {"cross_attention": "hepos", "hepos_stride": 2}),
    "t5, Linformer": ("t5", T5_SIZES | {"cross_attention": "linformer"}),
    "t5, nearest": ("t5", T5_SIZES | {"cross_attention": "nearest", "cross_nearest": 16}),
}
GEMMA = {"hidden_size": WIDTH, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16}
GEMMA |= {"num_attention_heads": 4, "num_key_value_heads": 2}
FAMILIES["t5gemma2"] = ("t5gemma2", {"encoder": GEMMA, "decoder": GEMMA})
FAMILIES["t5gemma2"][1].update(encoder_attention="local", local_radius=32)
SHAPE = re.compile(r"\b(?:f32|bf16|s32|pred|s8|u8|u32)\[([\d,]*)\]")


def make(name, **more):
    family, options = FAMILIES[name]
    family = get_family(family)
    return family, family.config({"vocab_size": VOCABULARY} | options | more)


@functools.cache
def programs_of(name):
    """Family, config, programs, and the shapes of the parameters and of the decoder's layers."""
    family, config = make(name)
    params = nn.meta.unbox(jax.eval_shape(family.init_params(config), jax.random.key(0)))
    layers = jax.eval_shape(unstacked_layers, params["decoder"])
    return family, config, Programs(family.module_class(config)), params, layers


def search_program(name, length, beams, batch, slots=False, **changes):
    """The compiled search, and the shapes of what it reads: parameters, and keys of documents."""
    family, config, programs, params, layers = programs_of(name)
    ids = jax.ShapeDtypeStruct((batch, length), jnp.int32)
    mask = jax.ShapeDtypeStruct((batch, length), bool)
    source = programs.read.eval_shape({"params": params}, ids, mask, {})
    options = Model(family, config, None).generation_options(
        num_beams=beams, max_new_tokens=NEW_TOKENS, do_sample=False, **changes
    )
    if slots:
        begin, advance = programs.slots.begin, programs.slots.advance
        state = begin.eval_shape(params, source, batch_size=batch, options=options)
        num_done = jax.ShapeDtypeStruct((), jnp.int32)
        lowered = advance.lower(params, layers, source, state, None, num_done, options=options)
    else:
        lowered = programs.search.program.lower(
            params, layers, source, None, batch_size=batch, options=options
        )
    return lowered.compile(compiler_options=OPTIONS).as_text(), layers, source


def moves_in_loops(text):
    """Shapes of all copies, transposes and gathers in bodies of a program's loops, without ones."""
    result, computation = [], ""
    bodies = set(re.findall(r"body=%?([\w.\-]+)", text))
    assert bodies
    for line in text.splitlines():
        if header := re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line):
            computation = header[1]
        if not (match := re.match(r"\s*(?:ROOT )?%?([\w.\-]+) = (.*?) ([\w\-]+)\(", line)):
            continue
        name, shape, operation = match.groups()
        moves = re.search("copy|transpose|gather", f"{operation} {name}")
        if computation in bodies and moves:
            result += [
                _without_ones(int(n) for n in dims.split(",") if n) for dims in SHAPE.findall(shape)
            ]
    return result


def _without_ones(shape):
    return sorted(size for size in shape if size > 1)


# Lengths, beams and rows: all for one decoder, two for others, one for every other way to attend to
# the source. Encoders are no part of a search: those with the decoder of another are read weekly.
SIZES = [(256, 3, 2), (512, 1, 1), (256, 1, 2), (512, 3, 1)]
COUNTS = {"t5": 4, "bart": 2, "bart, attentive memory": 2}
WEEKLY = "longt5", "locost", "pegasus", "pegasus_x", "bigbird_pegasus", "led", "bart, LSG"
CASES = [
    pytest.param(name, *sizes, marks=[pytest.mark.weekly] * (name in WEEKLY))
    for name in FAMILIES
    for sizes in SIZES[: COUNTS.get(name, 1)]
]


@pytest.mark.parametrize(("name", "length", "beams", "batch"), CASES)
def test_no_step_copies_keys_values_or_weights(name, length, beams, batch):
    """Decoding is as fast as memory is read."""
    assert moved_keys_or_weights(name, length, beams, batch) == []


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_no_step_of_slots_copies_keys_values_or_weights(name):
    assert moved_keys_or_weights(name, 256, 1, 2, slots=True) == []


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_no_step_with_a_draft_copies_keys_values_or_weights(name):
    assert moved_keys_or_weights(name, 256, 1, 1, prompt_lookup_num_tokens=4) == []


def moved_keys_or_weights(*case, **options):
    """Shapes of such arrays that a program copies, transposes or gathers at every step."""
    text, layers, source = search_program(*case, **options)
    weights = jax.tree.leaves(layers)
    weights = [_without_ones(x.shape) for x in weights if x.size >= WIDTH * WIDTH]
    keys = [x.size for x in jax.tree.leaves(source.layers) if x.ndim == 4]
    assert len(weights) >= 10
    assert min(keys) >= WIDTH * WIDTH
    moves = moves_in_loops(text)
    return [shape for shape in moves if math.prod(shape) >= min(keys) or shape in weights]


def test_copies_are_found():
    """The reader of programs sees what the test above forbids."""

    def step(state):
        x, big = state
        return x + 1, jnp.roll(big, 1, 0).T

    start = jnp.int32(0), jnp.zeros((64, 64))
    run = jax.jit(lambda start: jax.lax.while_loop(lambda state: state[0] < 9, step, start))
    assert [64, 64] in moves_in_loops(run.lower(start).compile().as_text())


def test_weights_of_the_decoder_are_held_once(draw_params):
    family, config = make("bart", decoder_layers=2)
    params = draw_params(family.init_params(config))["decoder"]
    kernel = params["layers"]["feed_forward"]["wo"]["kernel"]
    for layer, views in enumerate(layer_views(params)):
        view = views["feed_forward"]["wo"]["kernel"]
        offset = view.unsafe_buffer_pointer() - kernel.unsafe_buffer_pointer()
        assert offset == layer * view.nbytes
        np.testing.assert_array_equal(view, kernel[layer])


def test_what_does_not_fit_is_refused_before_it_runs(small_model, monkeypatch):
    model = load(small_model)
    text = "A text. Another sentence."
    fits = model.summarize(text)
    with monkeypatch.context() as patch:
        patch.setattr(device_memory, "local_memory", lambda: 10_000)
        assert model.summarize(text) == fits  # by programs that were looked at
        problem = r"takes 0\.0 GB of a device, .*; lower batch_size, num_beams or max_source_length"
        for num_beams in (1, 2):
            with pytest.raises(InputError, match=problem):
                model.summarize(text * 100, num_beams=num_beams)
        with pytest.raises(InputError, match=problem):
            list(model.summaries([text] * 4, batch_size=2))
    assert model.summarize(text * 100)


def test_programs_of_options_that_are_no_longer_used_are_released(monkeypatch):
    """Otherwise the options of a server's clients fill its memory."""
    monkeypatch.setattr(programs_module, "_MAX_OPTIONS", 2)
    traced = []

    def add(x, *, options):
        traced.append(options)
        return x + options

    program = Program(add, static_argnames="options")
    assert program(jnp.ones(()), options=1) == 2
    first = weakref.ref(program._of({"options": 1}))
    assert [program(jnp.ones(()), options=options) for options in (2, 1, 2)] == [3, 2, 3]
    assert set(traced) == {1, 2}
    assert first() is not None
    program(jnp.ones(()), options=3)
    gc.collect()
    assert first() is None
    traced.clear()
    assert program(jnp.ones(()), options=2) == 3
    assert not traced
    assert program(jnp.ones(()), options=1) == 2
    assert set(traced) == {1}


# Decoding with weights and keys in other types, against rounded ones in float32.
FIRST = 7  # token that the decoder reads
STORED_LENGTH = 320  # no other arrays have the sizes of weights or keys


def rounded(tree):
    """What is stored, in float32; tables as [vocab, d_model]."""

    def read(x):
        if not isinstance(x, Stored):
            return x
        values = np.asarray(x.values.astype(jnp.float32))
        return values if x.scales is None else values * np.asarray(x.scales)

    return jax.tree.map(read, tree, is_leaf=lambda x: isinstance(x, Stored))


def slow_twin(weights, source):
    weights = rounded(weights)
    layers = []
    for layer in source.layers:
        k, v = rounded(layer.cross_kv)
        layers.append(layer._replace(cross_kv=KeyValueCache(k, v.swapaxes(-1, -2))))
    weights = weights._replace(logits_table=weights.logits_table.T)
    return weights, source._replace(layers=tuple(layers))


def with_storage(model, storage):
    return Model(model.family, model.config, model.params, decoder_storage=storage)


def drawn_ids(rows):
    return np.random.default_rng(0).integers(4, VOCABULARY, (rows, STORED_LENGTH), np.int32)


def inputs_of_search(model, rows):
    padded = model.padded(drawn_ids(rows), np.ones((rows, STORED_LENGTH), bool), {})
    source = model._runner.programs.read(model._runner.variables(padded), *padded)
    return model._runner.programs.search.weights(model.params), source


@pytest.mark.parametrize(
    ("name", "storage", "rows", "beams"),
    [("bart", "bfloat16", 1, 1), ("bart", "int8", 2, 3), ("t5, Hepos", "int8", 1, 1)],
)
def test_ids_and_logits_are_those_of_rounded_weights_and_keys(
    draw_params, name, storage, rows, beams
):
    family, config = make(name)
    model = Model(family, config, draw_params(family.init_params(config)))
    stored = with_storage(model, storage)
    weights, source = inputs_of_search(stored, rows)
    options = stored.generation_options(num_beams=beams, max_new_tokens=6, do_sample=False)
    search = stored._runner.programs.search.program
    sizes = {"batch_size": rows, "options": options}
    twin = slow_twin(weights, source)
    result, expected = (
        search(model.params, *pair, None, **sizes) for pair in ((weights, source), twin)
    )
    np.testing.assert_array_equal(result.sequences, expected.sequences)
    logits = jax.jit(functools.partial(first_logits, stored, beams=beams))
    close = logits(weights, source)
    np.testing.assert_allclose(close, logits(*twin), atol=1e-5 * np.abs(close).max())
    ids = drawn_ids(rows)
    exact = model.logits(ids, np.ones_like(ids), np.full((rows, 1), FIRST))
    error = np.abs(close - exact).max() / np.abs(exact).max()
    assert 0 < error < (0.04 if storage == "bfloat16" else 0.08)


def first_logits(model, weights, source, *, beams):
    """Of the first token, by a step as the search takes it."""
    variables = {"params": model.params}
    layers = weights
    if isinstance(weights, StoredDecoder):
        variables["stored"] = {"logits_table": weights.logits_table}
        layers = weights.layers
    rows = len(source.mask)
    cache = model.module.apply(variables, source, beams, 4, method="init_cache")
    ids = jnp.full((rows, beams), FIRST, jnp.int32)
    return model.module.apply(variables, ids, cache, source, layers, method="decode_step")[0]


@pytest.mark.parametrize(
    ("name", "beams", "storage"),
    [("bart", 1, "bfloat16"), ("bart", 3, "int8"), ("t5", 3, "bfloat16"), ("t5", 1, "int8")],
)
def test_no_step_makes_a_float32_copy_of_weights_or_keys(name, beams, storage):
    """Nor a search before its first step."""
    text, sizes = compiled_search(name, beams, storage)
    assert len(sizes) >= 4
    assert [line for line in made_arrays(text) if line[0] in sizes] == []


def compiled_search(name, beams, storage):
    """The text of a search, and the sizes of what it reads in a storage type."""
    family, config = make(name)
    programs = Programs(family.module_class(config), storage)
    params = nn.meta.unbox(jax.eval_shape(family.init_params(config), jax.random.key(0)))
    ids = jax.ShapeDtypeStruct((1, STORED_LENGTH), jnp.int32)
    mask = jax.ShapeDtypeStruct((1, STORED_LENGTH), bool)
    source = programs.read.eval_shape({"params": params}, ids, mask, {})
    layers = jax.eval_shape(unstacked_layers, params["decoder"])
    copy = functools.partial(stored_decoder, storage=storage)
    weights = jax.eval_shape(copy, layers, params["shared"])
    options = Model(family, config, None).generation_options(
        num_beams=beams, max_new_tokens=4, do_sample=False
    )
    lowered = programs.search.program.lower(
        params, weights, source, None, batch_size=1, options=options
    )
    narrow = [x.size for x in jax.tree.leaves((weights, source)) if x.dtype.itemsize <= 2]
    sizes = {size for size in narrow if size >= 64 * 64}
    return lowered.compile(compiler_options=OPTIONS).as_text(), sizes


def made_arrays(text):
    """Sizes of the float32 arrays that instructions outside of fusions write, and their lines."""
    inside = set(re.findall(r"(?:calls|to_apply)=%?([\w.\-]+)", text))
    computation, result = "", []
    for line in text.splitlines():
        if header := re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line):
            computation = header[1]
        match = re.match(r"\s*(?:ROOT )?%?[\w.\-]+ = f32\[([\d,]+)\]\S* ([\w\-]+)\(", line)
        if match and computation not in inside:
            dims, operation = match.groups()
            if operation not in ("parameter", "get-tuple-element", "bitcast"):
                result.append((int(np.prod([int(n) for n in dims.split(",")])), line.strip()))
    return result


def test_float32_copies_are_found():
    """The reader of programs sees what the test above forbids."""
    run = jax.jit(lambda x, w: x @ w.astype(jnp.float32))
    shapes = (
        jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in (((1, 64), "f4"), ((64, 96), "i1"))
    )
    assert 64 * 96 in dict(made_arrays(run.lower(*shapes).compile().as_text()))


@pytest.mark.parametrize("storage", [pytest.param("bfloat16", marks=pytest.mark.weekly), "int8"])
def test_batches_and_drafts_find_what_single_documents_do(small_model, storage):
    model = load(small_model, decoder_storage=storage)
    texts = [
        "A text. Another sentence.",
        "Words of a longer document. " * 5,
        "Third.",
    ]
    alone = [model.summarize(text)[0] for text in texts]
    assert model.summarize(texts, batch_size=2) == alone
    assert [model.summarize(text, prompt_lookup_num_tokens=3)[0] for text in texts] == alone


def test_copies_follow_the_parameters(small_model):
    model = load(small_model, decoder_storage="int8")
    weights = model._runner.programs.search.weights
    first = weights(model.params)
    assert weights(model.params) is first
    other = model.params | {"lm_head": model.params["lm_head"] * 2}
    np.testing.assert_allclose(
        weights(other).logits_table.scales, 2 * first.logits_table.scales, rtol=1e-6
    )


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("bart, attentive memory", {}, "not for models with a memory"),
        ("bart", {"salient_vectors": 4}, "not for models with a memory"),
        ("t5, nearest", {}, "chooses keys by exact scores"),
    ],
)
def test_models_without_it_refuse(name, options, problem):
    with pytest.raises(InputError, match=problem):
        Model(*make(name, **options), None, decoder_storage="int8")


def test_parameters_on_other_devices_are_refused(small_model, monkeypatch):
    model = load(small_model, decoder_storage="int8")
    monkeypatch.setattr("longsum_jax.inference.programs.lies_on_one_cpu", lambda leaf: False)
    with pytest.raises(
        InputError, match='decoder_storage="int8" is for a single CPU; leave it out'
    ):
        model.summarize("A text. Another sentence.")


def test_it_computes_in_float32():
    with pytest.raises(InputError, match='leave out dtype="bfloat16"'):
        Model(*make("t5", dtype="bfloat16"), None, decoder_storage="int8")


@pytest.mark.parametrize("name", ["t5", "bart", "t5gemma2"])
def test_accelerators_read_maps_in_the_type_of_the_computation(name, draw_params, monkeypatch):
    """Kernels of a model in bfloat16 are converted once; logits do not change in any bit."""
    family, config = make(name, dtype="bfloat16")
    module = family.module_class(config)
    params = draw_params(family.init_params(config))
    layers = unstacked_layers(params["decoder"])
    narrow = narrow_layers(layers, jnp.bfloat16)
    kernels = dict(jax.tree_util.tree_leaves_with_path(narrow))
    for path, kernel in kernels.items():
        *_, owner, leaf = (entry.key for entry in path[1:])
        is_map = leaf == "kernel" and owner in ("q", "o", "wi", "wi_0", "wi_1", "wo")
        if is_map or "bias" in leaf or "norm" in owner:
            assert kernel.dtype == (jnp.bfloat16 if is_map else jnp.float32), path
    ids = jnp.arange(12).reshape(2, 6) + 3
    variables = {"params": params}
    states = module.apply(variables, ids, ids > 0, method="encode")
    source = module.apply(variables, states, ids > 0, method="read_source")
    cache = module.apply(variables, source, 1, 4, 0, method="init_cache")

    @jax.jit
    def logits(layers):
        step = module.apply(variables, ids[:, :1], cache, source, layers, method="decode_step")
        return step[0]

    expected = logits(layers)
    np.testing.assert_array_equal(logits(narrow), expected)
    # Without views of layers a search converts them, and the table of the logits, before its loop.
    decode = programs_module.cached_decoder(module, params, None, source).step
    table = params[module.logits_parameter]
    converted = f"bf16[{table.shape[0]},{table.shape[1]}] = convert_element_type"
    # T5 looks up embeddings in a converted table, too; XLA converts those rows only.
    lookups = int(name == "t5")
    assert str(jax.make_jaxpr(decode)(ids[:, :1], cache)).count(converted) == lookups
    assert str(jax.make_jaxpr(logits)(narrow)).count(converted) == lookups + 1
    np.testing.assert_array_equal(jax.jit(decode)(ids[:, :1], cache)[0], expected)
    # On GPUs kernels have the axes that they contract last until a step reads them.
    monkeypatch.setattr(programs_module, "target_platform", lambda: "gpu")
    decode = programs_module.cached_decoder(module, params, None, source).step
    on_gpu = jax.jit(decode)(ids[:, :1], cache)[0]
    np.testing.assert_allclose(on_gpu, expected, rtol=1e-2, atol=1e-2)  # sums in another order
    assert "optimization_barrier" in str(jax.make_jaxpr(decode)(ids[:, :1], cache))
    turned = turned_layers(narrow)
    # leaf by leaf: the kernels are in an ``Unmerged``
    for read, layer in zip(*map(jax.tree.leaves, (turned_back(turned), narrow)), strict=True):
        np.testing.assert_array_equal(read, layer)
    kernel = narrow[0]["self_attention"]["o"]["kernel"]
    axes = (2, 0, 1)
    assert turned[0]["self_attention"]["o"]["kernel"].shape == kernel.transpose(axes).shape
