"""Models with memories against a twin that follows the equations for one document, without batches
or padding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.analysis.device_memory import step_bytes
from longsum_jax.experiment.objectives.segments import segment_loss_fn
from longsum_jax.models.registry import get_family
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.step import gradient_fn

FAMILY = get_family("bart")
SIZES = {
    "vocab_size": 30,
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
SIZES |= {"dropout": 0.0, "memory_size": 6, "memory_compression": 2, "memory_layers": "last1"}
L, T = 6, 5
# Two documents of three segments and of one: (tokens of the segment, tokens of its target).
LENGTHS = (((6, 4), (3, 0), (5, 5)), ((2, 5),))


@pytest.fixture(scope="module")
def make(draw_params):
    """Config, module and random parameters."""

    def make(**options):
        config = FAMILY.config(SIZES | options)
        params = draw_params(FAMILY.init_params(config))
        return config, FAMILY.module_class(config), params

    return make


def make_batch(lengths=LENGTHS, segments=4):
    """Documents padded to ``segments``, the last of which no document has."""
    rng, rows = np.random.default_rng(3), len(lengths)
    ids, mask = np.ones((rows, segments, L), np.int32), np.zeros((rows, segments, L), bool)
    labels = np.full((rows, segments, T), -100, np.int32)
    for row, document in enumerate(lengths):
        for i, (source, target) in enumerate(document):
            ids[row, i, :source], mask[row, i, :source] = rng.integers(3, 30, source), True
            labels[row, i, :target] = rng.integers(3, 30, target)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


# The twin


def layers_of(tree, count):
    """Parameters of every layer."""
    found = {}
    for name, value in tree.items():
        if name.startswith("layers"):
            first, last = map(int, name.split("_")[1:]) if "_" in name else (0, count - 1)
            for i in range(first, last + 1):
                found[i] = jax.tree.map(lambda x, row=i - first: x[row], value)
    return [found[i] for i in range(count)]


def layer_norm(p, x):
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * p["scale"] + p["bias"]


def attend(p, x, states, allowed=None, output=True):
    def project(name, x):
        return jnp.einsum("td,dhk->thk", x, p[name]["kernel"]) + p[name].get("bias", 0)

    q, k, v = project("q", x), project("k", states), project("v", states)
    scores = jnp.einsum("thk,lhk->htl", q, k) * q.shape[-1] ** -0.5
    if allowed is not None:
        scores = jnp.where(allowed, scores, -jnp.inf)
    mixed = jnp.einsum("htl,lhk->thk", jax.nn.softmax(scores), v)
    return jnp.einsum("thk,hkd->td", mixed, p["o"]["kernel"]) + p["o"]["bias"] if output else mixed


class TwinMemory:
    """The memory of one layer and document; compressive ones are two lists."""

    def __init__(self, config, p):
        self.config, self.p = config, p.get("memory")
        self.attention, self.errors = jax.lax.stop_gradient(p["self_attention"]), []
        self.slots = self.p["initial"] if config.memory == "attentive" and self.p else None
        self.compressed, self.newest = [], []

    def keys(self, x):
        return (
            jnp.stack([*self.compressed, *self.newest, *x])
            if self.p and self.config.memory == "compressive"
            else x
        )

    def write(self, hidden):
        if self.p is None or not len(hidden):
            self.errors.append(0.0)
            return
        hidden = jax.lax.stop_gradient(hidden)
        if self.config.memory == "attentive":
            p, m = self.p, self.slots
            seen = attend(p, m, hidden, output=False)

            def of_segment(name):
                return jnp.einsum("mhk,hkd->md", seen, p[name]["kernel"]) + p[name]["bias"]

            update = jnp.tanh(m @ p["update_memory"]["kernel"] + of_segment("update_segment"))
            gate = jax.nn.sigmoid(m @ p["gate_memory"]["kernel"] + of_segment("gate_segment"))
            self.slots = gate * update + (1 - gate) * m
            return
        half, r = self.config.memory_size // 2, self.config.memory_compression
        self.newest += list(hidden)
        old, self.newest = self.newest[:-half], self.newest[-half:]
        states = [jnp.zeros_like(hidden[0])] * (-len(old) % r) + old
        new = [
            sum(states[i + j] @ self.p["kernel"][j] for j in range(r)) + self.p["bias"]
            for i in range(0, len(states), r)
        ]
        self.compressed = [*self.compressed, *new][-half:]
        seen = [
            attend(self.attention, hidden, jnp.stack(x), output=False) for x in (new, old) if old
        ]
        self.errors.append(jnp.square(seen[0] - seen[1]).mean() if old else 0.0)


def twin_layer(p, config, memory, x, causal=False, states=None):
    keys = memory.keys(x)
    kept = len(keys) - len(x)
    allowed = None
    if causal:
        allowed = jnp.arange(len(keys)) <= jnp.arange(len(x))[:, None] + kept
    read, y = x, attend(p["self_attention"], x, keys, allowed)
    x = layer_norm(p["self_norm"], x + y)
    if memory.slots is not None:
        read = y if config.memory_hidden == "raw" else x
        x = layer_norm(p["memory_norm"], x + attend(p["memory"]["attention"], x, memory.slots))
    if states is not None:
        x = layer_norm(p["cross_norm"], x + attend(p["cross_attention"], x, states))
    ff = p["feed_forward"]
    y = jax.nn.gelu(x @ ff["wi"]["kernel"] + ff["wi"]["bias"], approximate=False)
    return layer_norm(p["ff_norm"], x + y @ ff["wo"]["kernel"] + ff["wo"]["bias"]), read


def embed(p, ids, side):
    return layer_norm(
        p[f"{side}_norm"], p["shared"][ids] + p[f"{side}_positions"][2 + np.arange(len(ids))]
    )


def twin_document(config, p, batch, row, errors=None):
    """The summed loss of a document, and the logits of each segment's target.

    ``errors`` is filled with the errors of compression, by layer and segment.
    """
    encoder, decoder = layers_of(p["encoder"], 1), layers_of(p["decoder"], 1)
    read = [TwinMemory(config, layer) for layer in encoder]
    written = [TwinMemory(config, layer) for layer in decoder]
    total, logits = 0.0, []
    for source, target in zip(*(batch[name][row] for name in ("input_ids", "labels")), strict=True):
        ids, labels = source[batch["attention_mask"][row][len(logits)]], target[target != -100]
        if not len(ids):
            break
        x, waiting = embed(p, ids, "source"), []
        for layer, memory in zip(encoder, read, strict=True):
            x, hidden = twin_layer(layer, config, memory, x)
            waiting.append((memory, hidden))
        states, y = (
            x,
            embed(
                p, np.array([config.decoder_start_token_id, *labels[:-1]])[: len(labels)], "target"
            ),
        )
        for layer, memory in zip(decoder, written, strict=True):
            if len(labels):
                y, hidden = twin_layer(layer, config, memory, y, True, states)
                waiting.append((memory, hidden))
        for memory, hidden in waiting:
            memory.write(hidden)
        logits.append(
            y @ p["shared"].T + jax.lax.stop_gradient(p["final_logits_bias"]) if len(labels) else y
        )
        total -= sum(jax.nn.log_softmax(logits[-1])[i, label] for i, label in enumerate(labels))
    if errors is not None:
        errors += [memory.errors for memory in (*read, *written)]
    return total, logits


# Kind -> options, and a truncation that cuts nothing off: gradients go through the memory of whole
# documents.
KINDS = {
    "compressive": {"memory": "compressive", "memory_backprop": 2},
    "attentive": {"memory": "attentive", "memory_backprop": 0},
    "raw": {"memory": "attentive", "memory_hidden": "raw", "memory_backprop": 2},
}


def gradients(config, params, batch):
    loss = segment_loss_fn(FAMILY.module_class(config), config)
    return jax.jit(gradient_fn(loss))(params, batch, jax.random.key(0))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_gradients_of_documents_equal_the_twin(make, kind):
    config, _, params = make(**KINDS[kind])
    batch = make_batch()
    total = lambda p: sum(twin_document(config, p, batch, row)[0] for row in range(2))  # noqa: E731
    loss, wanted = jax.jit(jax.value_and_grad(total))(params)
    found, out = gradients(config, params, batch)
    assert float(out.loss_sum) == pytest.approx(float(loss), abs=1e-4)
    assert (int(out.weight), int(out.metrics["segments"])) == (14, 4)
    flat, _ = jax.tree_util.tree_flatten_with_path(wanted)
    for (path, a), b in zip(flat, jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(b, a, atol=1e-5, rtol=1e-4, err_msg=jax.tree_util.keystr(path))


@pytest.mark.slow
def test_one_segment_of_backpropagation(make):
    config, _, params = make(memory="attentive")
    batch = make_batch(segments=3)
    grads, out = gradients(config, params, batch)
    written = grads["encoder"]["layers"]["memory"]
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(written))
    through, out_of_all = gradients(dataclasses.replace(config, memory_backprop=2), params, batch)
    assert float(out.loss_sum) == pytest.approx(float(out_of_all.loss_sum), abs=1e-4)
    differing = jax.tree.map(lambda a, b: not np.allclose(a, b, atol=1e-5), grads, through)
    assert any(jax.tree.leaves(differing))  # it is a truncation


COMPRESSED = (((6, 5), (3, 4), (5, 2)),)  # tokens of the segments of one document


@pytest.fixture(scope="module")
def twin_charge(make):
    """The twin's errors of compression, weighted by segment, and their gradient."""
    config, _, _ = make(memory="compressive")
    batch = make_batch(COMPRESSED, segments=4)

    def charge(params, weights):
        errors = []
        twin_document(config, params, batch, 0, errors)
        return sum(weights @ jnp.stack(layer) for layer in errors)

    return jax.jit(jax.value_and_grad(charge))


@pytest.mark.slow
@pytest.mark.parametrize(("backprop", "charged"), [(1, (4, 2)), (2, (4, 2)), (0, (5, 4, 2))])
def test_the_error_of_compression_equals_the_twin_and_trains_the_compression_alone(
    make, twin_charge, backprop, charged
):
    """What a segment pushes out is compressed, and charged, when gradients reach it: with the
    segment after it."""
    config, _, params = make(
        memory="compressive", memory_backprop=backprop, memory_reconstruction=0.5
    )
    batch = make_batch(COMPRESSED, segments=4)
    weights = np.zeros(3, np.float32)
    weights[: len(charged)] = charged
    error, wanted = twin_charge(params, weights)
    found, out = gradients(config, params, batch)
    plain, without = gradients(
        dataclasses.replace(config, memory_reconstruction=0.0), params, batch
    )
    assert float(error) > 0
    assert float(out.metrics["reconstruction"]) == pytest.approx(float(error), rel=1e-4)
    assert float(out.loss_sum - without.loss_sum) == pytest.approx(0.5 * float(error), rel=1e-3)
    flat, _ = jax.tree_util.tree_flatten_with_path(wanted)
    for (path, a), b, c in zip(flat, jax.tree.leaves(found), jax.tree.leaves(plain), strict=True):
        name = jax.tree_util.keystr(path)
        assert (np.abs(a).max() > 0) == ("['memory']" in name), name
        added = np.subtract(b, c)
        np.testing.assert_allclose(added, np.multiply(0.5, a), atol=2e-5, rtol=1e-3, err_msg=name)


@pytest.mark.slow
def test_evaluation_does_not_count_the_error_of_compression(make):
    config, module, params = make(memory="compressive", memory_reconstruction=0.5)
    loss = segment_loss_fn(module, config, deterministic=True)
    _, out = jax.eval_shape(gradient_fn(loss), params, make_batch(), jax.random.key(0))
    assert "reconstruction" not in out.metrics


@pytest.mark.slow
def test_memory_of_a_step_does_not_depend_on_the_number_of_segments(make):
    config, module, params = make(
        memory="attentive", d_model=64, encoder_ffn_dim=128, memory_size=32
    )
    loss, optimizer = segment_loss_fn(module, config), make_optimizer(OptimizerOptions())
    batches = [make_batch(segments=segments) for segments in (8, 64)]
    few, many = (step_bytes(loss, optimizer, params, batch) for batch in batches)
    assert few > 3 * sum(leaf.nbytes for leaf in jax.tree.leaves(params))  # of Adam, at least
    assert many < 1.02 * few
