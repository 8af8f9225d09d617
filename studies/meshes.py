"""Tiny models on meshes of two and four virtual devices, against the same on one device.

    python studies/meshes.py --out=meshes.json [--cases=100] [--minutes=60] [--seed=0]

Four cases in a row share a model, a batch and what one device computes of them: a random family,
attention, cross-attention, way to read long documents, dropout and rows. Each has a mesh and a
number of micro-batches of its own. Compared are the loss, gradients and parameters of one training
step, and the ids of greedy summaries. Every case is written to --out as it ends, and the same
command goes on from there.

Rows are full, short, without a source ("empty"), without a target, or padding only. Padded places
hold random ids, which must change nothing. In a fifth of the models one token has an infinite
embedding. It is read by a row, so that every device must skip the step, or stands in padded
places only, where all devices must agree on whether the loss is finite.

The first 25 models (100 cases) have dropout by chance, the following ones always. Masks must be
equal on every mesh. Left out are the meshes where the guide says that masks differ: of memories
with mesh.batch, and of attention weights with mesh.sequence.
"""

import argparse
import contextlib
import dataclasses
import math
import random
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import benchmarks_path  # noqa: F401
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import Deadline, print_table, rows_before, write_report

from longsum_jax.errors import InputError
from longsum_jax.experiment.objectives.segments import segment_loss_fn
from longsum_jax.layers.attention.registry import ENCODER_ATTENTIONS
from longsum_jax.models.family import Family
from longsum_jax.models.registry import get_family
from longsum_jax.ops.losses import count_labels
from longsum_jax.summarization.model import Model
from longsum_jax.tokenizers.loading import load_tokenizer
from longsum_jax.training.loss import LossOutput
from longsum_jax.training.mesh import MESH_AXES, MeshOptions, activate, make_mesh, put_batch
from longsum_jax.training.state import create_state, init_state, plan_state, shardings_of
from longsum_jax.training.step import make_train_step

DEVICES = 4
ROWS = 8
TARGETS = 6  # tokens of a target, and of a summary
SEGMENTS = 3
MESHES_PER_MODEL = 4
FIRST_WITH_DROPOUT = 25  # number of a model
DROPOUT = 0.1
VOCABULARY = 300
INFINITE_ID = VOCABULARY - 1  # of the token whose embedding is infinite
# Largest differences of float32 sums in another order, relative to the largest entry of an array.
LOSS_TOLERANCE = 2e-5
GRADIENT_TOLERANCE = 1e-4

FAMILIES = ("locost", "longt5", "t5", "led", "bart", "pegasus", "t5gemma", "pegasus_x")
FAMILIES += ("bigbird_pegasus", "t5gemma2", "mt5", "mbart", "encoder-decoder")
# Attentions that a family can have instead of its own.
ATTENTIONS = (
    *(x for x in ENCODER_ATTENTIONS if x != "disentangled"),
    "window+global",
    "full,local",
)
CROSSES = ("full", "full", "hepos", "linformer", "nearest")
SOURCES = ("whole", "whole", "pages", "attentive", "compressive")
SMALL: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "block_size": 4,
    "sparse_block_size": 4,
    "num_global_tokens": 2,
    "attention_window": (4,),
    "attention_stride": 3,
    "num_random_blocks": 1,
    "local_radius": 5,
    "global_block_size": 4,
    "linformer_size": 8,
    "linformer_max_length": 128,
    "lsh_num_hashes": 2,
    "lsh_num_buckets": 4,
    "lsh_chunk_length": 4,
    "performer_num_features": 16,
    "d_state": 8,
    "hepos_stride": 2,
    "page_context": 2,
    "memory_size": 4,
    "memory_compression": 2,
    "memory_layers": "all",
}
MESHES: tuple[MeshOptions, ...] = (
    MeshOptions(batch=2),
    MeshOptions("fsdp", batch=1, fsdp=2),
    MeshOptions("fsdp+tensor", batch=1, tensor=2),
    MeshOptions("fsdp+sequence", batch=1, sequence=2),
    MeshOptions(batch=4),
    MeshOptions("fsdp", batch=1, fsdp=4),
    MeshOptions("fsdp", batch=2, fsdp=2),
    MeshOptions("fsdp+tensor", batch=1, fsdp=2, tensor=2),
    MeshOptions("fsdp+tensor", batch=2, tensor=2),
    MeshOptions("fsdp+tensor", batch=1, tensor=4),
    MeshOptions("fsdp+sequence", batch=1, fsdp=2, sequence=2),
    MeshOptions("fsdp+sequence", batch=2, sequence=2),
    MeshOptions("fsdp+sequence", batch=1, sequence=4),
)
TEXTS = (
    "The committee met on Monday. It approved the budget. The mayor agreed.",
    "Rain fell.",
    "Nobody came to the second hearing, which was short. A third one follows in May.",
    "The bridge is closed until June. Repairs cost more than expected.",
) * (ROWS // 4)

Row = dict[str, Any]
Batch = dict[str, np.ndarray]


class Setup(NamedTuple):
    """A model and a batch that several meshes compute.

    Attributes:
        family: name of the family.
        options: options of its config.
        source: way to read a document: "whole", in "pages", or segment by segment with a memory.
        length: source tokens, of a segment if there are segments.
        rows: kind of each row.
        infinite: place of the token with an infinite embedding: "none", "row" or "padding".
        seed: seed of parameters and ids.
    """

    family: str
    options: dict[str, Any]
    source: str
    length: int
    rows: tuple[str, ...]
    infinite: str
    seed: int

    @property
    def has_memory(self) -> bool:
        return self.source in ("attentive", "compressive")

    @property
    def has_dropout(self) -> bool:
        return any("dropout" in name for name in self.options)


class Result(NamedTuple):
    """What a step and a search computed, on the host."""

    loss: float
    gradients: Any
    params: Any
    skipped: int
    ids: list[Any]


def draw_setup(seed: int, number: int) -> Setup:
    """Returns the model and the batch of some cases.

    Args:
        seed: seed of the study.
        number: number of the model; families take turns.
    """
    rng = random.Random(f"{seed} {number}")
    family = FAMILIES[number % len(FAMILIES)]
    while True:
        setup = _drawn(rng, family, has_dropout=number >= FIRST_WITH_DROPOUT)
        with contextlib.suppress(InputError):  # a combination that is refused
            make_config(setup)
            return setup


def _drawn(rng: random.Random, family: str, *, has_dropout: bool) -> Setup:
    own = rng.random() < 0.3
    source = rng.choice(SOURCES)
    options: dict[str, Any] = {}
    if not own and family != "encoder-decoder":
        options["encoder_attention"] = rng.choice(ATTENTIONS)
    if family != "encoder-decoder":
        options["cross_attention"] = rng.choice(CROSSES)
    if source == "pages":
        options |= {"page_length": 12, "page_recompute": rng.random() < 0.5}
        options["page_decoding"] = rng.random() < 0.3
    elif source != "whole":
        options |= {"memory": source, "memory_decoder": rng.random() < 0.5}
        options["memory_backprop"] = rng.choice((0, 1))
    options["remat"] = rng.random() < 0.3
    options["length_chunk"] = rng.choice((0, 0, 5))
    infinite = "none" if has_dropout else rng.choice(("none", "none", "none", "row", "padding"))
    if infinite != "none":
        options["tie_word_embeddings"] = False
    may_have_dropout = source in ("whole", "pages") and infinite == "none"
    if has_dropout or (may_have_dropout and rng.random() < 0.25):
        options["dropout"] = DROPOUT
        options["attention_dropout"] = rng.choice((0.0, DROPOUT))
    kinds = ["full", *rng.choices(("full", "short", "short", "empty", "no target", "padding"), k=7)]
    rng.shuffle(kinds)
    length = rng.choice((13, 16, 24, 30, 32, 37, 48))
    if source not in ("whole", "pages"):
        length = rng.choice((12, 15, 16))
    return Setup(family, options, source, length, tuple(kinds), infinite, rng.randrange(2**31))


def make_config(setup: Setup) -> Any:
    """Returns the config of a tiny model.

    Raises:
        InputError: options that do not fit.
    """
    preset = get_family(setup.family).presets["tiny"]
    names = preset.keys({})
    changes = {name: value for name, value in SMALL.items() if name in names}
    changes |= {name: value for name, value in setup.options.items() if "dropout" not in name}
    rates = [setup.options.get(name, 0.0) for name in ("dropout", "attention_dropout")]
    for name, rate in zip(("dropout", "attention_dropout"), rates, strict=True):
        changes |= {key: rate for key in (name, f"{name}_rate") if key in names}
    if setup.family == "encoder-decoder":
        keys = ("hidden_dropout_prob", "attention_probs_dropout_prob")
        for name in ("encoder", "decoder"):
            stack = getattr(preset, name)
            changes[name] = dataclasses.replace(stack, **dict(zip(keys, rates, strict=True)))
    if not setup.options.get("page_length"):
        changes.pop("page_context", None)
    if not setup.has_memory:
        changes.pop("memory_layers", None)
    if unknown := changes.keys() - names:
        raise InputError(f"{setup.family} has no {', '.join(unknown)}")
    return preset.replace(**changes)


def make_params(family: Family, config: Any, setup: Setup) -> Any:
    """Returns random parameters on the host; ids above the special tokens are told apart."""
    shapes = nn.meta.unbox(jax.eval_shape(family.init_params(config), jax.random.key(0)))

    def draw(path: Any, leaf: Any) -> np.ndarray:
        name = path[-1].key
        rng = np.random.default_rng([setup.seed, zlib.crc32(str(path).encode())])
        value = 0.1 * rng.normal(size=leaf.shape)
        if name in ("log_dt", "inv_A_real"):
            value -= 3  # decays and steps of state-space layers
        elif name == "A_imag":
            value = np.broadcast_to(np.pi * np.arange(leaf.shape[-1]), leaf.shape)
        elif name == "scale":
            value += 1
        elif name == "embedding":
            value *= 10
        value = np.array(value, leaf.dtype)
        if setup.infinite != "none" and name != "lm_head" and value.shape[:1] == (VOCABULARY,):
            value[INFINITE_ID] = np.inf
        return value

    return jax.tree_util.tree_map_with_path(draw, shapes)


def make_batch(setup: Setup, pad_id: int, *, clean: bool = False) -> Batch:
    """Returns arrays of `ROWS` rows, [rows, (segments,) tokens].

    Args:
        setup: model and batch.
        pad_id: id of padding.
        clean: True if padded places hold ``pad_id``, otherwise random ids.
    """
    rng = np.random.default_rng(setup.seed)
    middle = (SEGMENTS,) if setup.has_memory else ()
    ids = rng.integers(5, INFINITE_ID, (ROWS, *middle, setup.length)).astype(np.int32)
    labels = rng.integers(5, INFINITE_ID, (ROWS, *middle, TARGETS)).astype(np.int32)
    mask = np.zeros(ids.shape, bool)
    for row, kind in enumerate(setup.rows):
        total = setup.length * (SEGMENTS if middle else 1)
        size = {"full": total, "no target": total, "short": int(rng.integers(1, total))}.get(
            kind, 0
        )
        mask[row] = (np.arange(total) < size).reshape(mask[row].shape)
        if kind in ("no target", "padding"):
            labels[row] = -100
        elif kind == "short":
            labels[row, ..., rng.integers(1, TARGETS) :] = -100
    if middle:  # a segment without a source has no target
        labels[~mask.any(-1)] = -100
    if setup.infinite == "row":
        row = setup.rows.index("full")
        ids[row].reshape(-1)[1] = INFINITE_ID
    elif setup.infinite == "padding":
        ids[~mask] = INFINITE_ID
    if clean:
        ids[~mask] = pad_id
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def make_loss(family: Family, config: Any, setup: Setup) -> Any:
    """Returns the loss of training: teacher-forced cross-entropy.

    Without dropout attentions draw nothing at random, which would depend on the micro-batches.
    """
    module = family.module_class(config)
    if setup.has_memory:
        return segment_loss_fn(module, config, deterministic=not setup.has_dropout)

    def loss(params: Any, batch: Mapping[str, Any], rng: Any) -> LossOutput:
        losses, _ = module.apply(
            {"params": params},
            batch["input_ids"],
            batch["attention_mask"],
            batch["labels"],
            deterministic=not setup.has_dropout,
            rngs={"dropout": rng},
            method="score_targets",
        )
        return LossOutput(losses.sum(), count_labels(batch["labels"]))

    return loss


def gradients_kept() -> optax.GradientTransformation:
    """Returns gradient descent whose state is the last gradient."""

    def update(gradients: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del state, params
        return jax.tree.map(lambda x: -0.1 * x, gradients), gradients

    return optax.GradientTransformation(lambda params: jax.tree.map(jnp.zeros_like, params), update)


class Subject:
    """A model with its batch, which is computed on one device and on meshes."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.family = get_family(setup.family)
        self.config = make_config(setup)
        self.params = make_params(self.family, self.config, setup)
        self.loss = make_loss(self.family, self.config, setup)
        self.batch = make_batch(setup, self.config.pad_token_id)
        self.optimizer = gradients_kept()

    def alone(self) -> Result:
        """Returns the result of one device.

        Raises:
            AssertionError: a result depends on the ids in padded places, or is not finite although
                all numbers are.
        """
        step = make_train_step(self.loss, self.optimizer, donate=False)
        state = init_state(jax.device_put(self.params), self.optimizer)
        result = self._result(*step(state, self.batch), self._ids(jax.device_put(self.params)))
        if self.setup.infinite == "none":
            if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result[:3])):
                raise AssertionError("one device: not finite")
            clean = make_batch(self.setup, self.config.pad_token_id, clean=True)
            other = self._result(*step(state, clean), [])
            if difference(other.gradients, result.gradients) > GRADIENT_TOLERANCE:
                raise AssertionError("one device: ids in padded places change the gradients")
        elif self.setup.infinite == "row" and not result.skipped:
            raise AssertionError("one device: an infinite loss is not skipped")
        return result

    def on_mesh(self, options: MeshOptions, accumulation: int) -> Result:
        """Returns the result of a mesh."""
        sizes = [getattr(options, axis) for axis in MESH_AXES]
        mesh = make_mesh(options, jax.devices()[: int(np.prod(sizes))])
        init, key = self.family.init_params(self.config), jax.random.key(0)
        abstract, _ = plan_state(init, self.optimizer, mesh, options.rules, key)
        state = create_state(abstract, init, self.optimizer, key, self.params)
        step = make_train_step(
            self.loss,
            self.optimizer,
            accumulation=accumulation,
            shardings=shardings_of(abstract),
            donate=False,
        )
        with activate(mesh, options.rules):
            new = step(state, put_batch(self.batch, mesh, accumulation))
            return self._result(*new, self._ids(state.params))

    def _ids(self, params: Any) -> list[Any]:
        """Returns the ids, or texts, of greedy summaries; none for infinite embeddings."""
        if self.setup.infinite != "none":
            return []
        options: dict[str, Any] = {"max_new_tokens": TARGETS, "num_beams": 1}
        if not self.setup.has_memory:
            model = Model(self.family, self.config, params)
            ids, mask = self.batch["input_ids"], self.batch["attention_mask"]
            return model.generate(ids, mask, eos_token_id=None, **options).tolist()
        reading = {"segment_length": self.setup.length, "min_tokens": 6, "max_tokens": 10}
        tokenizer = load_tokenizer("bytes", vocab_size=VOCABULARY)
        model = Model(
            self.family, self.config, params, tokenizer, summarization={"segments": reading}
        )
        return model.summarize(list(TEXTS), batch_size=ROWS, **options)

    def _result(self, state: Any, metrics: Mapping[str, Any], ids: list[Any]) -> Result:
        gradients, params = jax.device_get((state.opt_state, state.params))
        return Result(float(metrics["loss"]), gradients, params, int(state.skipped), ids)


def difference(tree: Any, reference: Any) -> float:
    """Returns the largest difference of two trees of arrays, relative to the largest entry of an
    array, or to a hundredth of the largest entry of all: gradients that are 0 have its rounding.
    """
    pairs = list(zip(jax.tree.leaves(tree), jax.tree.leaves(reference), strict=True))
    largest = max(float(np.abs(y).max(initial=0)) for _, y in pairs)
    largest_difference = 0.0
    for x, y in pairs:
        scale = max(float(np.abs(y).max(initial=0)), 1e-2 * largest, 1e-12)
        worst = float(np.abs(x - y).max(initial=0)) / scale
        if math.isnan(worst):
            worst = math.inf
        largest_difference = max(largest_difference, worst)
    return largest_difference


def compare(result: Result, wanted: Result) -> Row:
    """Returns the columns of the differences and of the fault, "" for none."""
    row: Row = {"skipped": bool(wanted.skipped)}
    if result.skipped != wanted.skipped:
        return row | {"fault": f"skipped {result.skipped}, one device {wanted.skipped}"}
    if wanted.skipped:
        retained = difference(*map(_finite, (result.params, wanted.params))) == 0
        return row | {"fault": "" if retained else "a skipped step changed parameters"}
    row["loss_difference"] = abs(result.loss - wanted.loss) / max(abs(wanted.loss), 1e-3)
    finite = map(_finite, (result.gradients, wanted.gradients))
    row["gradient_difference"] = difference(*finite)
    row["parameter_difference"] = difference(*map(_finite, (result.params, wanted.params)))
    row["equal_ids"] = result.ids == wanted.ids
    faults = []
    if not row["loss_difference"] <= LOSS_TOLERANCE:
        faults.append(f"loss {result.loss}, one device {wanted.loss}")
    if not max(row["gradient_difference"], row["parameter_difference"]) <= GRADIENT_TOLERANCE:
        faults.append(f"gradients: {worst_leaf(result.gradients, wanted.gradients)}")
    if not row["equal_ids"]:
        faults.append("ids")
    return row | {"fault": "; ".join(faults)}


def _finite(tree: Any) -> Any:
    """Returns the arrays with 0 for infinite entries, of which there are some from the start."""
    return jax.tree.map(lambda x: np.where(np.isinf(x), 0, x), tree)


def worst_leaf(tree: Any, reference: Any) -> str:
    """Returns the path of the array with the largest difference, relative to the largest entry."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(reference)
    largest = max(float(np.abs(y).max(initial=0)) for _, y in leaves)
    differences = [
        (float(np.abs(x - y).max(initial=0)) / largest, jax.tree_util.keystr(path))
        for x, (path, y) in zip(jax.tree.leaves(tree), leaves, strict=True)
    ]
    return "{1} {0:.1e}".format(*max(differences))


def describe(options: MeshOptions) -> str:
    """Returns the preset and the sizes of a mesh, such as "fsdp+tensor 1x2x2x1"."""
    return f"{options.preset} {'x'.join(str(getattr(options, axis)) for axis in MESH_AXES)}"


class Case(NamedTuple):
    """One case: its number, its model and batch, and its mesh."""

    number: int
    setup: Setup
    mesh: MeshOptions
    accumulation: int

    def row(self) -> Row:
        """Returns the columns that describe the case."""
        setup, options = self.setup, self.setup.options
        return {
            "case": self.number,
            "family": setup.family,
            "encoder_attention": make_config(setup).encoder_attention,
            "cross_attention": options.get("cross_attention", "full"),
            "source": setup.source,
            "length": setup.length,
            "rows": ", ".join(sorted(setup.rows)),
            "infinite": setup.infinite,
            "dropout": options.get("dropout", 0.0),
            "attention_dropout": options.get("attention_dropout", 0.0),
            "devices": int(np.prod([getattr(self.mesh, axis) for axis in MESH_AXES])),
            "mesh": describe(self.mesh),
            "accumulation": self.accumulation,
        }


def has_equal_masks(setup: Setup, mesh: MeshOptions) -> bool:
    """Returns False if dropout depends on the mesh, as docs/guide/train.md says."""
    if not setup.has_dropout:
        return True
    drops_weights = setup.options["attention_dropout"] > 0
    return not ((setup.has_memory and mesh.batch > 1) or (drops_weights and mesh.sequence > 1))


def cases(seed: int) -> Iterator[Case]:
    """Yields the cases of a seed, without end."""
    number = 0
    while True:
        setup = draw_setup(seed, number // MESHES_PER_MODEL)
        rng = random.Random(f"{seed} meshes {number}")
        comparable = [mesh for mesh in MESHES if has_equal_masks(setup, mesh)]
        for mesh in rng.sample(comparable, MESHES_PER_MODEL):
            most = ROWS // (mesh.batch * mesh.fsdp)
            # Each micro-batch has its own dropout.
            fitting = [1] if setup.has_dropout else [n for n in (1, 2, 4) if most % n == 0]
            yield Case(number, setup, mesh, rng.choice(fitting))
            number += 1


def run(case: Case, subject: Callable[[], tuple[Subject, Result]]) -> Row:
    """Returns the row of a case; an error is a fault.

    Args:
        case: case to compute.
        subject: function that returns its model and the result of one device.
    """
    start = time.perf_counter()
    row = case.row()
    try:
        model, expected = subject()
        row |= compare(model.on_mesh(case.mesh, case.accumulation), expected)
    except Exception as error:
        row["fault"] = f"{type(error).__name__}: {error}"[:300]
    return row | {"seconds": round(time.perf_counter() - start, 1)}


def main() -> None:
    """Prints the table and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100, help="number after the last case")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", metavar="FILE")
    Deadline.add_flag(parser)
    args = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", DEVICES)
    # Compiling is most of the time; sharding is a pass that is always made.
    jax.config.update("jax_disable_most_optimizations", True)
    deadline = Deadline(args.minutes)
    rows = rows_before(args.out, seed=args.seed)
    finished = {row["case"] for row in rows}
    subjects: dict[int, tuple[Subject, Result]] = {}
    for case in cases(args.seed):
        if case.number >= args.cases or deadline.is_over:
            break
        if case.number in finished or case.number < args.first:
            continue

        def subject(case: Case = case) -> tuple[Subject, Result]:
            seed = case.setup.seed
            if seed not in subjects:
                subjects.clear()
                jax.clear_caches()
                model = Subject(case.setup)
                subjects[seed] = model, model.alone()
            return subjects[seed]

        rows.append(run(case, subject))
        print(rows[-1], flush=True)
        if args.out:
            write_report(args.out, rows, seed=args.seed, date=time.strftime("%Y-%m-%d"))
    print_table(rows)


if __name__ == "__main__":
    main()
