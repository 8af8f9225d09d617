"""What each attention is for: small models that learn generated tasks, by length and distance.

    python benchmarks/probes.py --out=probes.json [--minutes=60]       # every cell, then means
    python benchmarks/probes.py --out=probes.json --tasks=needle+recall --encoders=s4d \
        --crosses=hepos --seeds=0                                      # one cell
    python benchmarks/probes.py --show                                 # a drawn text of every task

A cell is one model: the tasks that it learns together (joined by "+"; the first symbol of a text
names its task), encoder attention, cross-attention, memory and seed. All are T5s of one encoder
layer and two decoder layers with the same number of parameters (the inner width makes up for what
attentions differ in; rows of a table that no input reaches are not counted) that see the same
texts. --plan says how many steps each length gets, or lengths in turn ("64+256:200"), of --tokens
tokens: copying is learned suddenly, after a plateau, and in short texts the plateau is short (full
attention, needle: 450 steps of 64 texts of 64 tokens, below 100 of 128 texts of 16). A constant
learning rate unlearns at 2,048 tokens, of which a step has two texts, so it falls to nothing.

Then every length of --lengths is read, by Model.generate, greedily. `exact` is the share of texts
whose answer is right to the last token, `tokens` the share of answer tokens, `by_distance` and
`tokens_by_distance` are both for texts whose fact is a quarter, a half, three quarters or the whole
length away from where the answer is asked for; `learned` is the share of right answer tokens, given
those before, at the end of training for each length.

Memory "none" reads a text whole. The others read it in segments, one up to 16 tokens, four up to
256, then as many of 64 tokens as there are, and answer after the last one: "se3" without a memory,
which must fail for what stands in earlier ones, "compressive" (full encoder attention alone) and
"attentive". They have two encoder layers, and 64 slots a layer. With "text" and "vectors" a segment
also reads marked facts of the others, as a perfect extractor finds them: their tokens behind its
own, or the states that the encoder made of them; "attentive_text" has both. "attentive_said" and
"attentive_decoder" also write a fact after the segment where it stands, which in the second the
decoder remembers, too; when they are read, the right fact is written there.

Rows with `seeds` are means over seeds of one cell; `interval` is half the 95 % interval, by
Student's t over seeds, or Wilson's over texts where there is one seed. Started again with the same
--out, cells that are there are left out. Accuracy does not depend on how busy the machine is.
"""

import argparse
import dataclasses
import gc
import itertools
import json
import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
import probe_tasks
from common import Deadline, numbers, print_table, rows_before, write_report
from probe_tasks import EOS, MARK, PAD, TASKS, VOCABULARY
from scipy import stats

from longsum_jax.experiment.objectives.segments import segment_loss_fn
from longsum_jax.inference.model import Model
from longsum_jax.inference.programs import Search
from longsum_jax.models.family import Family
from longsum_jax.models.registry import get_family
from longsum_jax.models.salient_vectors import document_vectors, gather_vectors
from longsum_jax.ops.losses import count_labels
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.state import init_state
from longsum_jax.training.step import LossFn, LossOutput, SegmentedLoss, make_train_step
from longsum_jax.typing import IGNORED_LABEL, Array, Params

Row = dict[str, Any]
# A query of the sparse encoders sees about 64 tokens around it; LSG as many sparse ones, LongT5 a
# mean of every 16. Variants: "full_near" has one bias for all keys from 32 tokens on, where T5's
# biases tell distances up to 128 apart; state spaces without the backward direction, the gates or
# most modes; or "s4d_fast", whose modes begin with a memory of 40 tokens, not 2,000, at most. LSG
# selects keys of the largest norms; "lsg_pooling" takes means of four, "lsg_stride" each fourth,
# "lsg_lsh" means of similar ones, "lsg_none" none. "_deep" has three layers: what one layer of
# windows, or of LSG's global token, cannot carry across a text, several may.
LSG = {
    "encoder_attention": "lsg",
    "block_size": 32,
    "sparse_block_size": 32,
    "sparsity_factor": 4,
    "num_global_tokens": 1,
}
ENCODERS: dict[str, Mapping[str, Any]] = {
    "full": {},
    "full_near": {"encoder_attention": "full", "relative_attention_max_distance": 32},
    "s4d": {"d_state": 32},
    "s4d_forward": {"encoder_attention": "s4d", "d_state": 32, "bidirectional": False},
    "s4d_ungated": {"encoder_attention": "s4d", "d_state": 32, "gating": False},
    "s4d_four": {"encoder_attention": "s4d", "d_state": 4},
    "s4d_fast": {"encoder_attention": "s4d", "d_state": 32, "ssm_dt_min": 5e-2},
    "s4d_deep": {"encoder_attention": "s4d", "d_state": 32, "num_layers": 3},
    "lsg": LSG,
    "lsg_pooling": LSG | {"sparsity_type": "pooling"},
    "lsg_stride": LSG | {"sparsity_type": "stride"},
    "lsg_lsh": LSG | {"sparsity_type": "lsh"},
    "lsg_none": LSG | {"sparsity_type": "none"},
    "lsg_deep": LSG | {"num_layers": 3},
    "local": {"local_radius": 31},
    "local_deep": {"encoder_attention": "local", "local_radius": 31, "num_layers": 3},
    "longformer": {"attention_window": (64,)},
    "transient_global": {"local_radius": 31, "global_block_size": 16},
}
CROSSES: dict[str, Mapping[str, Any]] = {
    "full": {},
    "hepos": {"hepos_stride": 4},
    "hepos_2": {"cross_attention": "hepos", "hepos_stride": 2},
    "nearest": {"cross_nearest": 64},
    # As many keys at 1,024 tokens, its longest source, as hepos has there.
    "linformer": {"cross_linformer_size": 256, "cross_linformer_max_length": 1024},
}
# A decoder that writes nothing before the last segment needs no memory.
MEMORY = {
    "memory_layers": "all",
    "memory_decoder": False,
    "memory_size": 64,
    "memory_backprop": 0,
}
ATTENTIVE = {"memory": "attentive", **MEMORY}
FACT = 5  # tokens: a mark, and the most that stands behind it
MEMORIES: dict[str, Mapping[str, Any]] = {
    "none": {},
    "se3": {},
    "compressive": {"memory": "compressive", **MEMORY},
    "attentive": ATTENTIVE,
    "text": {},
    "vectors": {"salient_vectors": FACT},
    "attentive_text": ATTENTIVE,
    "attentive_said": ATTENTIVE,
    "attentive_decoder": ATTENTIVE | {"memory_decoder": True},
}
WITH_TEXT = ("text", "attentive_text")
SAY_FACTS = ("attentive_said", "attentive_decoder")
SEGMENTS, SHORTEST_SEGMENT, LONGEST_SEGMENT = 4, 16, 64
SIZE = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 1,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "dropout_rate": 0.0,
    "feed_forward_proj": "gated-gelu",
    "pad_token_id": PAD,
    "eos_token_id": EOS,
}
# A compressive memory holds what a layer reads: in the first one tokens that do not know their
# neighbours. An attentive one has many parameters, which the inner width makes up for; with one in
# the decoder there are more, so that models that say facts are wider, and alike among themselves.
SIZE_IN_SEGMENTS = {"num_layers": 2, "d_ff": 256}
SIZE_OF_SAYING = SIZE_IN_SEGMENTS | {"d_ff": 512}
GLOBAL_TABLE = "encoder/attention/global_embeddings"  # of LSG; rows of its unused tokens
LENGTH_MAPS = "length_projection"  # of Linformer, more than all else; they know no token
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


def cells(args: argparse.Namespace) -> list[Cell]:
    """The cells that the flags ask for; seeds of one model follow each other."""
    chosen = [args.tasks, args.encoders, args.crosses, args.memories]
    for names, of in zip(chosen, (TASKS, ENCODERS, CROSSES, MEMORIES), strict=True):
        for name in names.replace("+", ",").split(","):
            if name not in of:
                raise SystemExit(f'"{name}" is unknown; choose from {", ".join(of)}')
    lists = [names.split(",") for names in chosen]
    return [Cell(*x) for x in itertools.product(*lists, [args.plan], numbers(args.seeds))]


def make_config(encoder: str, cross: str, memory: str) -> tuple[Family, Any]:
    """Family and config of a model with as many parameters as full attention has."""
    family = get_family("t5")
    of_segments = SIZE_OF_SAYING if memory in SAY_FACTS else SIZE_IN_SEGMENTS
    size = SIZE if memory == "none" else SIZE | of_segments
    options = {"encoder_attention": encoder, "cross_attention": cross}
    options |= {**ENCODERS[encoder], **CROSSES[cross], **MEMORIES[memory]}
    config = family.config(size | options)
    surplus = num_parameters(family, config) - num_parameters(family, family.config(size))
    layers = config.num_layers + config.num_decoder_layers
    narrower = round(surplus / (3 * config.d_model * layers))  # a gated layer has three maps
    return family, dataclasses.replace(config, d_ff=config.d_ff - narrower)


def num_parameters(family: Family, config: Any) -> int:
    """Parameters that inputs reach, without Linformer's maps of the length."""
    shapes = family.parameter_shapes(config)
    if GLOBAL_TABLE in shapes:
        shapes[GLOBAL_TABLE] = (config.num_global_tokens, config.d_model)
    counted = [shape for name, shape in shapes.items() if not name.endswith(LENGTH_MAPS)]
    return sum(math.prod(shape) for shape in counted)


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
        found = [right[parts == part] for part in range(PARTS)]
        return {
            "task": name,
            "length": length,
            "exact": float(exact.mean()),
            "tokens": float(right.mean()),
            "by_distance": [float(x.all(1).mean()) if len(x) else None for x in found],
            "tokens_by_distance": [float(x.mean()) if len(x) else None for x in found],
            "texts_by_distance": [len(x) for x in found],
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
        self._reads_vectors = config.salient_vectors > 0
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


def means(rows: Sequence[Row]) -> list[Row]:
    """Rows over the seeds of each cell, task and length."""
    keys = ("task", "encoder", "cross", "memory", "length", "tasks", "plan")
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    table = []
    for key, group in groups.items():
        exact = [row["exact"] for row in group]
        texts = sum(row["texts"] for row in group)
        tokens, intervals = _by_distance(group, "tokens_by_distance")
        table.append(
            dict(zip(keys, key, strict=True))
            | {"seeds": len(group), "mean": float(np.mean(exact))}
            | {"interval": interval(exact, texts)}
            | {"mean_by_distance": _by_distance(group, "by_distance")[0]}
            | {"mean_tokens_by_distance": tokens, "interval_tokens_by_distance": intervals}
        )
    return table


def _by_distance(rows: Sequence[Row], key: str) -> tuple[list[float | None], list[float | None]]:
    """Returns the mean over seeds for each part of the distances, and half its 95 % interval.

    None stands for parts without texts, and for intervals of a single seed.
    """
    means, intervals = [], []
    nothing = [None] * PARTS  # of reports written before there were tokens by distance
    for part in zip(*(row.get(key, nothing) for row in rows), strict=True):
        known = [x for x in part if x is not None]
        means.append(float(np.mean(known)) if known else None)
        intervals.append(interval(known, 0) if len(known) > 1 else None)
    return means, intervals


def interval(values: Sequence[float], texts: int) -> float:
    """Half the 95 % interval of a mean: Student's over seeds, Wilson's over texts of one seed."""
    if len(values) > 1:
        spread = np.std(values, ddof=1) / math.sqrt(len(values))
        return float(stats.t.ppf(0.975, len(values) - 1) * spread)
    z, share = stats.norm.ppf(0.975), values[0]
    root = math.sqrt(share * (1 - share) / texts + (z / (2 * texts)) ** 2)
    return float(z * root / (1 + z**2 / texts))


def make_probe(cell: Cell, args: argparse.Namespace) -> Probe:
    """A model that reads texts whole, or in segments."""
    return (Probe if cell.memory == "none" else SegmentProbe)(cell, args)


def measure(args: argparse.Namespace) -> list[Row]:
    """Runs the cells that are not there yet."""
    deadline = Deadline(args.minutes)
    names = ("tokens", "learning_rate")
    settings = {name: getattr(args, name) for name in names}
    rows = [row for row in rows_before(args.out, **settings) if "seeds" not in row]
    done = {Cell(*(row[field] for field in Cell._fields)) for row in rows}
    for _, group in itertools.groupby(cells(args), lambda cell: cell[:-1]):
        todo = [cell for cell in group if cell not in done]
        probe = None
        for cell in todo:
            if deadline.is_over:
                break
            print("/".join(map(str, cell)), file=sys.stderr, flush=True)
            probe = probe or make_probe(cell, args)
            params, learned = probe.train(cell.seed)
            of_cell = cell._asdict() | {"parameters": probe.num_parameters}
            for length in numbers(args.lengths):
                for row in probe.read(params, length, cell.seed):
                    rows.append(of_cell | row | {"learned": learned})
                    print(json.dumps(row), file=sys.stderr, flush=True)
            if args.out:
                write_report(args.out, [*rows, *means(rows)], **settings)
        del probe
        gc.collect()
        jax.clear_caches()
    return rows


def show() -> None:
    """Prints a drawn text of every task."""
    for name in TASKS:
        batch = probe_tasks.draw(name, 1, 64, 0)
        text, answer = probe_tasks.spell(batch.ids[0]), probe_tasks.spell(batch.answers[0])
        print(f"{name}: {text}  ->  {answer}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--show", action="store_true", help="print a drawn text of every task")
    parser.add_argument(
        "--tasks",
        default=",".join(TASKS),
        help="comma-separated models, each of tasks joined by +; default: one model for each task",
    )
    parser.add_argument("--encoders", default=",".join(ENCODERS), help="encoder attentions")
    parser.add_argument("--crosses", default="full,hepos", help=f"of {', '.join(CROSSES)}")
    parser.add_argument(
        "--memories", default="none", help=f"of {', '.join(MEMORIES)}; default: none"
    )
    parser.add_argument("--seeds", default="0,1,2,3,4", help="default: 0,1,2,3,4")
    parser.add_argument("--plan", default=PLAN, help=f"LENGTH:STEPS of training; default: {PLAN}")
    parser.add_argument("--tokens", type=int, default=4096, help="of a step; default: 4,096")
    parser.add_argument("--learning_rate", type=float, default=3e-3, help="default: 3e-3")
    parser.add_argument(
        "--lengths", default="512,2048,4096,8192,16384", help="to read; default: 512 to 16,384"
    )
    parser.add_argument(
        "--read_tokens", type=int, default=2**16, help="of a task and length; default: 65,536"
    )
    parser.add_argument("--least", type=int, default=16, help="texts of them; default: 16")
    parser.add_argument("--most", type=int, default=128, help="texts of them; default: 128")
    parser.add_argument("--out", help="JSON report to write, or to go on with")
    Deadline.add_flag(parser)
    args = parser.parse_args()
    if args.show:
        show()
        return
    print_table(means(measure(args)))


PLAN = "16:400,64:300,256:300,1024:200,2048:50"

if __name__ == "__main__":
    main()
