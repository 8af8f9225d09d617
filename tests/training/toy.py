"""A tiny language model, its data and its loss, and checkpoints of a few arrays, for tests of the
training loop and their subprocesses."""

import json
import os
import signal
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax import checksums
from longsum_jax.data.batches import Batches
from longsum_jax.data.stores import ExampleList
from longsum_jax.training.checkpointing import TrainingCheckpoints
from longsum_jax.training.loop import LoopOptions, fit
from longsum_jax.training.loss import LossOutput
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.typing import RowShards

VOCAB, EMBED, MLP, LENGTH = 12, 8, 16, 5


class ToyModel(nn.Module):
    """Embedding, dropout, two dense layers; the output is as wide as the vocabulary."""

    vocab: int = VOCAB
    dropout: float = 0.0

    @nn.compact
    def __call__(self, ids: jax.Array, deterministic: bool = True) -> jax.Array:
        def boxed(*names: str):
            return nn.with_logical_partitioning(nn.initializers.normal(0.3), names)

        x = nn.Embed(self.vocab, EMBED, embedding_init=boxed("vocab", "embed"))(ids)
        x = nn.with_logical_constraint(x, ("batch", "length", "act_embed"))
        x = nn.Dropout(self.dropout, deterministic=deterministic)(x)
        x = nn.tanh(nn.Dense(MLP, kernel_init=boxed("embed", "mlp"))(x))
        x = nn.with_logical_constraint(x, ("batch", "length", "act_mlp"))
        return nn.Dense(self.vocab, kernel_init=boxed("mlp", "vocab"), use_bias=False)(x)


def make_init(model: ToyModel):
    return lambda rng: model.init(rng, jnp.zeros((1, LENGTH), jnp.int32))["params"]


def make_loss(model: ToyModel):
    def loss_fn(params, batch, rng):
        logits = model.apply(
            {"params": params}, batch["ids"], model.dropout == 0, rngs={"dropout": rng}
        )
        mask = (batch["labels"] >= 0).astype(jnp.float32)
        picked = jnp.take_along_axis(
            nn.log_softmax(logits), batch["labels"].clip(0)[..., None], -1
        )[..., 0]
        correct = (logits.argmax(-1) == batch["labels"]) * mask
        return LossOutput(-(picked * mask).sum(), mask.sum(), {"correct": correct.sum()})

    return loss_fn


class ToyBatches:
    """Three batches an epoch, each epoch in its own order; ``on_batch`` is called with the batch's
    number."""

    def __init__(self, rows=4, host=0, hosts=1, epochs=None, on_batch=None):
        rng = np.random.default_rng(7)
        self.ids = rng.integers(0, VOCAB, (3 * rows, LENGTH), dtype=np.int32)
        self.labels = np.where(rng.random(self.ids.shape) < 0.3, -100, (self.ids * 5 + 1) % VOCAB)
        self.labels = self.labels.astype(np.int32)
        self.rows, self.host, self.hosts, self.epochs, self.on_batch = (
            rows,
            host,
            hosts,
            epochs,
            on_batch,
        )
        self.position = 0

    def __next__(self):
        epoch, index = divmod(self.position, 3)
        if self.epochs is not None and epoch >= self.epochs:
            raise StopIteration
        order = np.random.default_rng([1, epoch]).permutation(len(self.ids))
        picked = order[index * self.rows : (index + 1) * self.rows][self.host :: self.hosts]
        self.position += 1
        if self.on_batch:
            self.on_batch(self.position)
        return {"ids": self.ids[picked], "labels": self.labels[picked]}

    def state(self):
        return {"position": self.position, "epoch": max(self.position - 1, 0) // 3}

    def restore(self, state):
        self.position = state["position"]


class Documents:
    """Batches of 13 documents; the rows of this host by batch number, from 1, are in ``rows``.

    Args:
        host, hosts: index of this host and number of hosts.
        stop_at: batch at which this process gets SIGTERM; 0 never.
    """

    def __init__(self, host=0, hosts=1, stop_at=0):
        texts = np.random.default_rng(7).integers(1, VOCAB, (13, LENGTH), dtype=np.int32)
        self._batches = Batches(
            ExampleList([{"id": "", "input_ids": text, "labels": text[::-1]} for text in texts]),
            batch_size=4,
            source_lengths=(LENGTH,),
            target_length=LENGTH,
            seed=5,
            host_rows=RowShards((host,), hosts),
        )
        self._stop_at = stop_at
        self._number = 0
        self.rows = {}

    def __next__(self):
        batch = next(self._batches)
        self._number += 1
        self.rows[self._number] = batch["input_ids"].tolist()
        if self._number == self._stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"ids": batch["input_ids"], "labels": batch["labels"]}

    def state(self):
        return self._batches.state() | {"number": self._number}

    def restore(self, state):
        self._number = state["number"]
        self._batches.restore(state)


def toy_fit(workdir, *, steps=9, dropout=0.0, batches=None, vocab=VOCAB, optimizer=None, **kwargs):
    """Runs `fit` on the toy with every step logged; keywords of LoopOptions and of fit are told
    apart."""
    model = ToyModel(vocab, dropout)
    loop = {k: kwargs.pop(k) for k in list(kwargs) if k in LoopOptions.__dataclass_fields__}
    loop = {"log_every": 1, "checkpoint_every": 2, "progress": False, "seed": 3} | loop
    kwargs = {"loss_fn": make_loss(model), "init": make_init(model)} | kwargs
    return fit(
        optimizer=optimizer or make_optimizer(OptimizerOptions("adamw", 0.05)),
        batches=batches or ToyBatches(),
        options=LoopOptions(steps=steps, **loop),
        workdir=workdir,
        **kwargs,
    )


def read_lines(workdir):
    return [json.loads(line) for line in (Path(workdir) / "metrics.jsonl").read_text().splitlines()]


def losses(workdir):
    """Step to loss, exactly as logged."""
    return {line["step"]: line["loss"] for line in read_lines(workdir) if "loss" in line}


def params_of(scale, size=4):
    kernel = np.random.default_rng(0).normal(size=(size, 3)).astype(np.float32)  # does not compress
    return {"a": {"kernel": jnp.asarray(scale * kernel)}, "bias": jnp.full(3, scale, jnp.bfloat16)}


def state_of(step):
    return {"step": jnp.int32(step), "slots": (jnp.ones(2), ())}


def abstract(tree):
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def save_checkpoints(directory, steps, size=4, **kwargs):
    """Saves one checkpoint per item of {step: score}."""
    checkpoints = TrainingCheckpoints(directory, model="toy", config={"d": 4}, **kwargs)
    for step, score in steps.items():
        metrics = None if score is None else {"mean_rouge": score}
        checkpoints.save(step, params_of(step, size), state_of(step), {"position": step}, metrics)
    checkpoints.close()


def restore_latest(checkpoints):
    """Restores the newest of `save_checkpoints`."""
    return checkpoints.restore(abstract(params_of(0)), abstract(state_of(0)))


def kept_steps(directory):
    return sorted(int(path.name) for path in directory.iterdir())


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(a), jax.device_get(b))


def files_with_sums(step_directory):
    lines = (step_directory / checksums.SUMS).read_text().splitlines()[1:]
    return [step_directory / line.split("  ")[1] for line in lines]


def forget_sums(step_directory):
    """Turns a checkpoint into one of an older version, without sums and without their mark."""
    path = step_directory / "meta" / "metadata"
    if path.exists():
        metadata = json.loads(path.read_text())
        del metadata["checksums"]
        path.write_text(json.dumps(metadata))
    (step_directory / checksums.SUMS).unlink()


def flip(path, bit=77):
    content = bytearray(path.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    path.write_bytes(content)
