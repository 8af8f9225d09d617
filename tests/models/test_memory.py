"""Models with memories against a twin that follows the equations for one document, without batches
or padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from longsum_jax.experiment.objectives.segments import segment_loss_fn
from longsum_jax.models.registry import get_family
from longsum_jax.ops.device_memory import held_bytes
from longsum_jax.training.gradients import gradient_fn
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.state import init_state
from longsum_jax.training.step import make_train_step

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
    result = {}
    for name, value in tree.items():
        if name.startswith("layers"):
            first, last = map(int, name.split("_")[1:]) if "_" in name else (0, count - 1)
            for i in range(first, last + 1):
                result[i] = jax.tree.map(lambda x, row=i - first: x[row], value)
    return [result[i] for i in range(count)]


def layer_norm(p, x):
    x = x - x.mean(-1, keepdim=True)
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5) * p["scale"] + p["bias"]


def attend(p, x, states, allowed=None, output=True):
    def project(name, x):
        return torch.einsum("td,dhk->thk", x, p[name]["kernel"]) + p[name].get("bias", 0)

    q, k, v = project("q", x), project("k", states), project("v", states)
    scores = torch.einsum("thk,lhk->htl", q, k) * q.shape[-1] ** -0.5
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    mixed = torch.einsum("htl,lhk->thk", scores.softmax(-1), v)
    return (
        torch.einsum("thk,hkd->td", mixed, p["o"]["kernel"]) + p["o"]["bias"] if output else mixed
    )


class TwinMemory:
    """The memory of one layer and document; compressive ones are two lists."""

    def __init__(self, config, p):
        self.config, self.p = config, p.get("memory")
        self.attention, self.errors = jax.tree.map(torch.detach, p["self_attention"]), []
        self.slots = self.p["initial"] if config.memory.memory == "attentive" and self.p else None
        self.compressed, self.newest = [], []

    def keys(self, x):
        return (
            torch.stack([*self.compressed, *self.newest, *x])
            if self.p and self.config.memory.memory == "compressive"
            else x
        )

    def write(self, hidden):
        if self.config.memory.memory_backprop == 1:
            self.cut_off()
        if self.p is None or not len(hidden):
            self.errors.append(torch.tensor(0.0))
            return
        hidden = hidden.detach()
        if self.config.memory.memory == "attentive":
            p, m = self.p, self.slots
            seen = attend(p, m, hidden, output=False)

            def of_segment(name):
                return torch.einsum("mhk,hkd->md", seen, p[name]["kernel"]) + p[name]["bias"]

            update = torch.tanh(m @ p["update_memory"]["kernel"] + of_segment("update_segment"))
            gate = torch.sigmoid(m @ p["gate_memory"]["kernel"] + of_segment("gate_segment"))
            self.slots = gate * update + (1 - gate) * m
            return
        half, r = self.config.memory.memory_size // 2, self.config.memory.memory_compression
        self.newest += list(hidden)
        old, self.newest = self.newest[:-half], self.newest[-half:]
        states = [torch.zeros_like(hidden[0])] * (-len(old) % r) + old
        new = [
            sum(states[i + j] @ self.p["kernel"][j] for j in range(r)) + self.p["bias"]
            for i in range(0, len(states), r)
        ]
        self.compressed = [*self.compressed, *new][-half:]
        seen = [
            attend(self.attention, hidden, torch.stack(x), output=False) for x in (new, old) if old
        ]
        self.errors.append(((seen[0] - seen[1]) ** 2).mean() if old else torch.tensor(0.0))

    def cut_off(self):
        """Lets no gradient into what has been written."""
        self.compressed = [x.detach() for x in self.compressed]
        if self.slots is not None and self.slots is not self.p["initial"]:
            self.slots = self.slots.detach()


def twin_layer(p, config, memory, x, causal=False, states=None):
    keys = memory.keys(x)
    retained = len(keys) - len(x)
    allowed = None
    if causal:
        allowed = torch.arange(len(keys)) <= torch.arange(len(x))[:, None] + retained
    read, y = x, attend(p["self_attention"], x, keys, allowed)
    x = layer_norm(p["self_norm"], x + y)
    if memory.slots is not None:
        read = y if config.memory.memory_hidden == "raw" else x
        x = layer_norm(p["memory_norm"], x + attend(p["memory"]["attention"], x, memory.slots))
    if states is not None:
        x = layer_norm(p["cross_norm"], x + attend(p["cross_attention"], x, states))
    ff = p["feed_forward"]
    y = torch.nn.functional.gelu(x @ ff["wi"]["kernel"] + ff["wi"]["bias"])
    return layer_norm(p["ff_norm"], x + y @ ff["wo"]["kernel"] + ff["wo"]["bias"]), read


def embed(p, ids, side):
    return layer_norm(
        p[f"{side}_norm"], p["shared"][ids] + p[f"{side}_positions"][2 : 2 + len(ids)]
    )


def twin_document(config, p, batch, row):
    """The summed loss of a document, and the errors of compression of every layer and
    segment."""
    encoder, decoder = layers_of(p["encoder"], 1), layers_of(p["decoder"], 1)
    read = [TwinMemory(config, layer) for layer in encoder]
    written = [TwinMemory(config, layer) for layer in decoder]
    total = torch.tensor(0.0)
    for source, mask, target in zip(*(batch[name][row] for name in batch), strict=True):
        ids, labels = source[mask].tolist(), target[target != -100].tolist()
        if not ids:
            break
        x, waiting = embed(p, ids, "source"), []
        for layer, memory in zip(encoder, read, strict=True):
            x, hidden = twin_layer(layer, config, memory, x)
            waiting.append((memory, hidden))
        states = x
        y = embed(p, [config.decoder_start_token_id, *labels[:-1]][: len(labels)], "target")
        for layer, memory in zip(decoder, written, strict=True):
            hidden = y
            if labels:
                y, hidden = twin_layer(layer, config, memory, y, True, states)
            waiting.append((memory, hidden))
        for memory, hidden in waiting:
            memory.write(hidden)
        scores = torch.log_softmax(y @ p["shared"].T + p["final_logits_bias"].detach(), -1)
        total = total - scores[range(len(labels)), labels].sum()
    return total, [memory.errors for memory in (*read, *written)]


class Twin:
    """What the twin makes of a batch, in float64."""

    def __init__(self, config, params, batch):
        self.params = jax.tree.map(
            lambda x: torch.tensor(np.asarray(x, np.float64), requires_grad=True), params
        )
        documents = [
            twin_document(config, self.params, batch, row) for row in range(len(batch["labels"]))
        ]
        self.loss = sum(loss for loss, _ in documents)
        self.errors = [errors for _, errors in documents]

    def gradient(self, value):
        leaves, tree = jax.tree.flatten(self.params)
        result = torch.autograd.grad(
            value, leaves, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        return jax.tree.unflatten(tree, [x.numpy() for x in result])


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


def assert_gradients_equal(found, wanted):
    flat, _ = jax.tree_util.tree_flatten_with_path(wanted)
    for (path, a), b in zip(flat, jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(b, a, atol=1e-5, rtol=1e-4, err_msg=jax.tree_util.keystr(path))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_gradients_of_documents_equal_the_twin(make, kind):
    config, _, params = make(**KINDS[kind])
    batch = make_batch()
    twin = Twin(config, params, batch)
    result, out = gradients(config, params, batch)
    assert float(out.loss_sum) == pytest.approx(twin.loss.item(), abs=1e-4)
    assert (int(out.weight), int(out.metrics["segments"])) == (14, 4)
    assert_gradients_equal(result, twin.gradient(twin.loss))


@pytest.mark.slow
def test_one_segment_of_backpropagation(make):
    config, _, params = make(memory="attentive")
    batch = make_batch(segments=3)
    grads, out = gradients(config, params, batch)
    written = grads["encoder"]["layers"]["memory"]
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(written))
    twin = Twin(config, params, batch)
    assert_gradients_equal(grads, twin.gradient(twin.loss))
    whole = Twin(config.replace(memory_backprop=2), params, batch)
    assert float(out.loss_sum) == pytest.approx(whole.loss.item(), abs=1e-4)
    through = whole.gradient(whole.loss)
    differing = jax.tree.map(lambda a, b: not np.allclose(a, b, atol=1e-5), grads, through)
    assert any(jax.tree.leaves(differing))  # it is a truncation


COMPRESSED = (((6, 5), (3, 4), (5, 2)),)  # tokens of the segments of one document


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backprop", "charged"),
    [(1, (4, 2)), pytest.param(2, (4, 2), marks=pytest.mark.weekly), (0, (5, 4, 2))],
)
def test_the_error_of_compression_equals_the_twin_and_trains_the_compression_alone(
    make, backprop, charged
):
    """What a segment pushes out is compressed, and charged, when gradients reach it: with the
    segment after it."""
    config, _, params = make(
        memory="compressive", memory_backprop=backprop, memory_reconstruction=0.5
    )
    batch = make_batch(COMPRESSED, segments=4)
    twin = Twin(config, params, batch)
    error = sum(weight * layer[i] for layer in twin.errors[0] for i, weight in enumerate(charged))
    plain, expected = twin.gradient(twin.loss), twin.gradient(error)
    result, out = gradients(config, params, batch)
    error = error.item()
    assert error > 0
    assert float(out.metrics["reconstruction"]) == pytest.approx(error, rel=1e-4)
    assert float(out.loss_sum) - twin.loss.item() == pytest.approx(0.5 * error, rel=1e-3)
    flat, _ = jax.tree_util.tree_flatten_with_path(expected)
    for (path, a), b, c in zip(flat, jax.tree.leaves(result), jax.tree.leaves(plain), strict=True):
        name = jax.tree_util.keystr(path)
        assert (np.abs(a).max() > 0) == ("['memory']" in name), name
        np.testing.assert_allclose(b - c, 0.5 * a, atol=2e-5, rtol=1e-3, err_msg=name)


@pytest.mark.slow
def test_the_error_of_a_document_does_not_depend_on_the_others_of_its_batch(make):
    """So micro-batches and devices give the update of the whole batch."""
    config, _, params = make(memory="compressive", memory_reconstruction=0.5)
    documents = (*COMPRESSED, ((2, 1), (6, 5), (2, 4)))
    whole, out = gradients(config, params, make_batch(documents, segments=3))
    result = [gradients(config, params, batch) for batch in alone(documents)]
    parts, outs = zip(*result, strict=True)
    error = sum(float(part.metrics["reconstruction"]) for part in outs)
    assert float(out.metrics["reconstruction"]) == pytest.approx(error, rel=1e-4)
    assert_gradients_equal(whole, jax.tree.map(jnp.add, *parts))


def alone(documents):
    """Batches of one of the documents of ``make_batch`` each."""
    batch = make_batch(documents, segments=3)
    return [jax.tree.map(lambda x, i=i: x[i : i + 1], batch) for i in range(len(documents))]


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
    loss = loss._replace(loss_fn=jax.jit(loss.loss_fn))  # traced once for both batches
    batches = [make_batch(segments=segments) for segments in (8, 64)]
    state = jax.eval_shape(lambda params: init_state(params, optimizer), params)
    step = make_train_step(loss, optimizer)
    few, many = (held_bytes(step.lower(state, batch).compile()) for batch in batches)
    assert few > 3 * sum(leaf.nbytes for leaf in jax.tree.leaves(params))  # of Adam, at least
    assert many < 1.02 * few
