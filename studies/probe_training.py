"""A model of the probes that is trained on generated texts, and reads others."""

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
import probe_tasks
from probe_models import FACT, SAY_FACTS, WITH_TEXT, make_config, num_parameters
from probe_tasks import EOS, MARK, PAD

from longsum_jax.experiment.objectives.segments import segment_loss_fn
from longsum_jax.inference.programs import Search
from longsum_jax.models.salient_vectors import document_vectors, gather_vectors
from longsum_jax.ops.losses import count_labels
from longsum_jax.summarization.model import Model
from longsum_jax.training.loss import LossFn, LossOutput, SegmentedLoss
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.state import init_state
from longsum_jax.training.step import make_train_step
from longsum_jax.typing import IGNORED_LABEL, Array, Params

Row = dict[str, Any]
SEGMENTS, SHORTEST_SEGMENT, LONGEST_SEGMENT = 4, 16, 64
PARTS = 4  # of the distances of a length
MOST_TEXTS = 128  # of a step
READ_AT_ONCE = 32768  # tokens that are decoded together
SEED_OF_READING = 2**20  # apart from those of training


class Cell(NamedTuple):
    """One model."""

    tasks: str
    encoder: str
    cross: str
    memory: str
    plan: str
    seed: int


class Probe:
    """A model that is trained and read, once for every seed; programs are compiled once.

    Attributes:
        tasks: that it learns together.
        num_parameters: those that inputs reach.
    """

    def __init__(self, cell: Cell, args: argparse.Namespace) -> None:
        self.tasks = cell.tasks.split("+")
        self._args = args
        family, config = make_config(cell.encoder, cell.cross, cell.memory)
        self.num_parameters = num_parameters(family, config)
        self._init = jax.jit(family.init_params(config))
        self._longest = max(
            probe_tasks.draw(name, 1, probe_tasks.SHORTEST, 0).answers.shape[1]
            for name in self.tasks
        )
        steps = sum(steps for _, steps in plan_of(args.plan))
        options = OptimizerOptions(
            "adamw", args.learning_rate, "cosine", warmup_steps=steps // 20, total_steps=steps
        )
        self._optimizer = make_optimizer(options)
        self._module = family.module_class(config)
        self._model = Model(family, config, None)
        self._step = make_train_step(self._make_loss(), self._optimizer)

    def train(self, seed: int) -> tuple[Params, dict[str, float]]:
        """Returns parameters, and the share of right tokens at the end of each length."""
        params = nn.meta.unbox(self._init(jax.random.key(seed)))
        state, learned, taken = init_state(params, self._optimizer), {}, 0
        for lengths, steps in plan_of(self._args.plan):
            right: dict[int, list[Array]] = {length: [] for length in lengths}
            for _, length in zip(range(steps), itertools.cycle(lengths), strict=False):
                state, metrics = self._step(state, self._batch(length, [seed, taken]))
                taken += 1
                right[length].append(metrics["right_tokens"] / metrics["weight"])
            for length, shares in right.items():
                share = float(np.mean(shares[-max(len(shares) // 10, 1) :]))
                learned[str(length)] = share
                print(f"{length} tokens: {share:.3f} right", file=sys.stderr, flush=True)
        return state.params, learned

    def _batch(self, length: int, seed: Sequence[int]) -> dict[str, np.ndarray]:
        """As many texts as --tokens allows, shared by the tasks, at least one of each."""
        texts = min(self._args.tokens // length, MOST_TEXTS)
        rows = max(texts // len(self.tasks), 1)
        drawn = [
            probe_tasks.draw(name, rows, length, [*seed, i]) for i, name in enumerate(self.tasks)
        ]
        labels = np.concatenate([self._labels(batch.answers) for batch in drawn])
        return self._inputs(np.concatenate([batch.ids for batch in drawn]), labels)

    def _inputs(self, ids: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
        """Returns a batch of the loss."""
        return {"input_ids": ids, "attention_mask": np.ones(ids.shape, bool), "labels": labels}

    def _labels(self, answers: np.ndarray) -> np.ndarray:
        """Answers, their end, and ignored labels up to the longest answer of the tasks."""
        rows, length = answers.shape
        labels = np.full((rows, self._longest + 1), IGNORED_LABEL, np.int32)
        labels[:, :length], labels[:, length] = answers, EOS
        return labels

    def _make_loss(self) -> LossFn | SegmentedLoss:
        """Returns the teacher-forced cross-entropy."""
        apply = partial(self._module.apply, deterministic=True, method="score_targets")

        def loss(params: Params, batch: Mapping[str, Array], rng: Array) -> LossOutput:
            del rng  # no dropout
            inputs = (batch[name] for name in ("input_ids", "attention_mask", "labels"))
            losses, is_right = apply({"params": params}, *inputs)
            right = is_right.sum().astype(np.float32)
            return LossOutput(losses.sum(), count_labels(batch["labels"]), {"right_tokens": right})

        return loss

    def read(self, params: Params, length: int, seed: int) -> list[Row]:
        """Returns a row for every task: answers to new texts of ``length`` tokens."""
        self._model.params = params
        rows = [self._read_task(name, length, seed) for name in self.tasks]
        self._model.forget_kernels()
        return rows

    def _read_task(self, name: str, length: int, seed: int) -> Row:
        number = min(max(self._args.read_tokens // length, self._args.least), self._args.most)
        batch = probe_tasks.draw(name, number, length, [SEED_OF_READING, seed, length])
        at_once = max(min(READ_AT_ONCE // length, number), 1)
        written = [
            self._generate(batch.ids[i : i + at_once], at_once) for i in range(0, number, at_once)
        ]
        right = np.concatenate(written)[:, : batch.answers.shape[1]] == batch.answers
        exact = right.all(1)
        parts = np.minimum(batch.distances * PARTS // length, PARTS - 1)
        result = [right[parts == part] for part in range(PARTS)]
        return {
            "task": name,
            "length": length,
            "exact": float(exact.mean()),
            "tokens": float(right.mean()),
            "by_distance": [float(x.all(1).mean()) if len(x) else None for x in result],
            "tokens_by_distance": [float(x.mean()) if len(x) else None for x in result],
            "texts_by_distance": [len(x) for x in result],
            "texts": number,
        }

    def _generate(self, ids: np.ndarray, rows: int) -> np.ndarray:
        """Returns what is written after the start, int32 [len(ids), longest answer]."""
        padded = np.concatenate([ids, np.repeat(ids[:1], rows - len(ids), 0)])
        new = self._write(padded)[: len(ids), 1:]
        answers = np.full((len(ids), self._longest), PAD, np.int32)
        answers[:, : new.shape[1]] = new[:, : self._longest]
        return answers

    def _write(self, ids: np.ndarray) -> np.ndarray:
        """Returns sequences, int32 [rows, at most 2 + longest answer]."""
        return self._model.generate(ids, np.ones_like(ids), max_new_tokens=self._longest + 1)


class SegmentProbe(Probe):
    """A model that reads segment by segment and answers after the last one."""

    def __init__(self, cell: Cell, args: argparse.Namespace) -> None:
        self._reads_text = cell.memory in WITH_TEXT
        self._says_facts = cell.memory in SAY_FACTS
        super().__init__(cell, args)
        apply, config = self._module.apply, self._module.config
        self._reads_vectors = config.memory.salient_vectors > 0
        self._start = jax.jit(partial(apply, method="init_memory"), static_argnums=(1, 2, 3))
        self._read = jax.jit(partial(apply, method="read_segment"))
        self._source = jax.jit(partial(apply, method="read_source"))
        self._shift = partial(apply, method="decoder_inputs")
        self._keep = jax.jit(partial(apply, method="write_segment"))
        self._vectors = jax.jit(
            lambda variables, batch: document_vectors(partial(apply, variables), config, batch)
        )
        self._search = Search(self._module)

    def _make_loss(self) -> LossFn | SegmentedLoss:
        return segment_loss_fn(self._module, self._module.config)

    def _inputs(self, ids: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
        of_parts = self._targets(ids)
        of_parts[:, -1] = labels
        return self._sources(ids) | {"labels": of_parts}

    def _targets(self, ids: np.ndarray) -> np.ndarray:
        """Returns labels before the last segment, int32 [rows, segments, labels]: facts where they
        end, of models that say them, else none."""
        rows, number, tokens = segments(ids).shape
        targets = np.full((rows, number, self._longest + 1), IGNORED_LABEL, np.int32)
        if self._says_facts:
            places, _ = facts(ids)
            said = self._labels(np.take_along_axis(ids, places[:, 1:], 1))
            targets[np.arange(rows), places[:, -1] // tokens] = said
        return targets

    def _sources(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Returns what every segment reads, arrays [rows, segments, ...]."""
        parts = segments(ids)
        batch = {"input_ids": parts, "attention_mask": np.ones(parts.shape, bool)}
        if self._reads_text:
            return with_text(batch, ids)
        return with_vectors(batch, ids) if self._reads_vectors else batch

    def _write(self, ids: np.ndarray) -> np.ndarray:
        variables, rows, batch = {"params": self._model.params}, len(ids), self._sources(ids)
        vectors = self._vectors(variables, batch) if self._reads_vectors else None
        number, length = batch["input_ids"].shape[1:]
        targets, target = self._targets(ids), self._longest + 1
        memory = self._start(variables, rows, length, target)
        for i in range(number):
            part = {name: values[:, i] for name, values in batch.items()}
            of_others = {}
            if vectors is not None:
                of_others["salient"] = gather_vectors(vectors, part["reads"])
            mask = part["attention_mask"]
            states, memory = self._read(variables, part["input_ids"], mask, memory, **of_others)
            if i < number - 1:
                said, is_said = targets[:, i], targets[:, i] != IGNORED_LABEL
                written = self._shift(variables, said)
                _, memory = self._keep(variables, written, is_said, states, mask, memory)
        source = self._source(variables, states, mask, memory)
        options = self._model.generation_options(max_new_tokens=target)
        out = self._search(self._model.params, source, None, batch_size=rows, options=options)
        return np.asarray(out.sequences)


def make_probe(cell: Cell, args: argparse.Namespace) -> Probe:
    """A model that reads texts whole, or in segments."""
    return (Probe if cell.memory == "none" else SegmentProbe)(cell, args)


def segments(ids: np.ndarray) -> np.ndarray:
    """[rows, length] -> [rows, segments, tokens]."""
    length = ids.shape[1]
    tokens = min(max(length // SEGMENTS, SHORTEST_SEGMENT), LONGEST_SEGMENT)
    if length % tokens:
        raise SystemExit(f"{length} tokens are no whole number of segments of {tokens}")
    return ids.reshape(len(ids), -1, tokens)


def facts(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds the first mark of each text, with the four tokens behind it.

    Returns:
        places: of these tokens in the text, int64 [rows, FACT].
        elsewhere: bool [rows, segments, FACT], tokens of other segments.
    """
    _, number, tokens = segments(ids).shape
    places = (ids == MARK).argmax(1)[:, None] + np.arange(FACT)
    elsewhere = places[:, None] // tokens != np.arange(number)[:, None]
    return places, elsewhere


def with_text(batch: dict[str, np.ndarray], ids: np.ndarray) -> dict[str, np.ndarray]:
    """Returns segments with the tokens of marked facts of other segments behind their own."""
    places, elsewhere = facts(ids)
    fact = np.take_along_axis(ids, places, 1)
    text = np.where(elsewhere, fact[:, None], PAD)
    return {
        "input_ids": np.concatenate([batch["input_ids"], text], 2),
        "attention_mask": np.concatenate([batch["attention_mask"], elsewhere], 2),
    }


def with_vectors(batch: dict[str, np.ndarray], ids: np.ndarray) -> dict[str, np.ndarray]:
    """Returns segments, which of their tokens are stored in which slot, and what each reads."""
    places, elsewhere = facts(ids)
    slots = np.full(ids.shape, -1, np.int32)
    np.put_along_axis(slots, places, np.arange(FACT, dtype=np.int32)[None], 1)
    reads = np.where(elsewhere, np.arange(FACT), -1).astype(np.int32)
    return batch | {"slots": slots.reshape(batch["input_ids"].shape), "reads": reads}


def plan_of(text: str) -> list[tuple[list[int], int]]:
    """ "16:300,64+256:200" -> [([16], 300), ([64, 256], 200)], lengths in turn and steps."""
    parts = [part.split(":") for part in text.split(",")]
    return [([int(x) for x in lengths.split("+")], int(steps)) for lengths, steps in parts]
