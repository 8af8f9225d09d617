"""The compiled programs that ``generate`` runs: what a step of decoding copies, and whose memory it
reads."""

import functools
import math
import os
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.inference.loading import load
from longsum_jax.inference.model import Model
from longsum_jax.inference.programs import Programs, layer_views
from longsum_jax.layers.layer_groups import unstacked_layers
from longsum_jax.models.registry import get_family
from longsum_jax.ops import device_memory

# The instructions are then those that users get: what tests do without comes after them.
OPTIONS = {"xla_cpu_use_fusion_emitters": True} if "XLA_FLAGS" in os.environ else {}
VOCABULARY, WIDTH, NEW_TOKENS = 96, 64, 4
T5_SIZES = {"d_model": WIDTH, "num_heads": 4, "d_kv": 16, "d_ff": 128, "num_layers": 1}
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
    found, computation = [], ""
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
            found += [
                _without_ones(int(n) for n in dims.split(",") if n) for dims in SHAPE.findall(shape)
            ]
    return found


def _without_ones(shape):
    return sorted(size for size in shape if size > 1)


# Every kind with and without beams, each at another length; those whose decoders differ at both.
FEW, MANY = [(512, 1, 1), (256, 3, 2)], [(256, 1, 2), (512, 3, 1)]
IN_FULL = "bart", "t5", "locost", "bart, attentive memory"
CASES = [(name, *sizes) for name in FAMILIES for sizes in (FEW + MANY if name in IN_FULL else FEW)]


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
