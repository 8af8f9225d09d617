"""Preference training of an encoder-decoder: reference summaries against rejected ones.

The log-probabilities of the frozen reference model are computed once. They
replace the model in every step, so that a run does not store a second set of
parameters. They are stored in the run's directory:

    reference.json    hash of the reference's weights, hash of the examples, log-probabilities
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from longsum_jax import atomic
from longsum_jax.data.examples.base import Counts, Example, ExampleStore
from longsum_jax.data.padding import pad_batch
from longsum_jax.data.prepared import PreparedExamples
from longsum_jax.data.stores import ExampleList
from longsum_jax.errors import InputError, counted
from longsum_jax.experiment.objectives.base import loss_with_counts, replicate
from longsum_jax.experiment.objectives.summarization import Summarization
from longsum_jax.files import MAX_ROWS_BYTES, read_json
from longsum_jax.ops.losses import count_labels, preference_scores
from longsum_jax.progress import Bar
from longsum_jax.training.loop import initialization_key
from longsum_jax.training.loss import LossFn, LossOutput
from longsum_jax.training.mesh import (
    MeshJit,
    activate,
    host_rows,
    make_mesh,
    put_batch,
)
from longsum_jax.training.state import create_state, plan_state
from longsum_jax.training.workdir import has_checkpoint
from longsum_jax.typing import Array, NumpyBatch, Params

REFERENCE = "reference.json"


class Preferences(Summarization):
    """Direct preference optimization (Rafailov et al. 2023), as in SCOPE (Duong et al. 2025).

    The reference model is the initial model of the run and remains frozen: its
    log-probabilities of all pairs are computed once, see ``add_reference``.
    Evaluations score generated summaries, as in ``Summarization``.
    """

    packs = False
    has_reference: ClassVar[bool] = True

    def training_examples(
        self, store: ExampleList | PreparedExamples
    ) -> "ReferencedExamples":
        data, task = self.setup.run.data, self.setup.task
        if len(store) and len(store) == store.counts.identical_pairs:
            raise InputError(
                f'split "{data.split}": the summaries of each of {counted(len(store), "pair")} are '
                f"identical in their first {task.max_target_length} tokens; give rejected "
                "summaries that differ, or raise task.max_target_length"
            )
        return ReferencedExamples(store)

    def set_reference(
        self, store: ExampleStore, weights: str, initial_params: Params | None
    ) -> None:
        assert isinstance(store, ReferencedExamples)
        add_reference(self, store, weights, initial_params)

    def batch_options(self) -> dict[str, Any]:
        return super().batch_options() | {"pairs": True}

    def loss_fn(self) -> LossFn:
        """Returns the preference loss, which is 0 for a pair of identical summaries.

        Its weight is the number of pairs. The metrics are sums: divided by
        "weight", "reward_margin" is the mean reward margin, and "right_pairs"
        the share of pairs with a positive margin.
        """
        beta = self.setup.run.loss.beta

        def loss_fn(
            params: Params, batch: Mapping[str, Array], rng: Array
        ) -> LossOutput:
            log_probs = self._log_probs(
                params, batch, deterministic=False, rngs={"dropout": rng}
            )
            is_pair = (batch["labels"] != batch["rejected"]).any(-1)
            # With the policy as its own reference, identical pairs have zero
            # margin and gradient.
            reference = jnp.where(
                is_pair[:, None], batch["reference"], log_probs
            )
            losses, margins = preference_scores(log_probs, reference, beta=beta)
            return loss_with_counts(
                jnp.where(is_pair, losses, 0.0).sum(),
                is_pair.sum().astype(np.float32),
                tokens=batch["attention_mask"].sum()
                + count_labels(batch["labels"])
                + count_labels(batch["rejected"]),
                reward_margin=margins.sum(),
                right_pairs=(margins > 0).sum(),
            )

        return loss_fn

    @cached_property
    def pair_log_probs(self) -> Any:
        """Compiled function from parameters and a batch to log-probabilities, float32 [rows, 2].

        It runs without dropout, and its result is available on every host.
        """

        def log_probs(params: Params, batch: NumpyBatch) -> Array:
            return replicate(self._log_probs(params, batch))

        return MeshJit(log_probs)

    def _log_probs(
        self, params: Params, batch: Mapping[str, Any], **options: Any
    ) -> Array:
        """Returns the log-probabilities of both targets of every row, float32 [rows, 2]."""
        return self.module.apply(
            {"params": params},
            batch["input_ids"],
            batch["attention_mask"],
            batch["labels"],
            batch["rejected"],
            method="score_pairs",
            **options,
        )


class ReferencedExamples(Sequence[Example]):
    """Examples of pairs with their log-probabilities under the reference model.

    Args:
        store: the examples.

    Attributes:
        lengths, counts: attributes of ``store`` with these names.
        log_probs: float32 [examples, 2], log-probabilities of the chosen and
            rejected targets; None before they are computed, in which case
            examples do not contain them.
    """

    def __init__(self, store: ExampleList | PreparedExamples) -> None:
        self._store = store
        self.lengths: np.ndarray = store.lengths
        self.counts: Counts = store.counts
        self.log_probs: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self._store)

    def __getitem__(self, index: int) -> Example:  # type: ignore[override] # no slices
        example = self._store[index]
        if self.log_probs is None:
            return example
        with_reference = example.copy()
        with_reference["reference"] = self.log_probs[index]
        return with_reference

    @property
    def num_shards(self) -> int:
        """The maximum number of hosts that can read the examples together."""
        return getattr(self._store, "num_shards", jax.process_count())


class _Saved(NamedTuple):
    """The content of ``REFERENCE``."""

    weights: str
    examples: str
    log_probs: np.ndarray


def add_reference(
    objective: Preferences,
    store: ReferencedExamples,
    weights: str,
    initial_params: Params | None,
) -> None:
    """Sets the log-probabilities of ``store``, read from the run's directory or computed here.

    Args:
        objective: objective of the run.
        store: training examples of the run.
        weights: hash of the reference model's weights.
        initial_params: initial parameters of the run; None for random ones.
            Ignored if the run has a checkpoint.

    Raises:
        InputError: the run is resumed, and its log-probabilities are missing,
            damaged, or from another reference or other examples; or the
            reference's values are not finite.
    """
    path = objective.setup.workdir / REFERENCE
    goes_on = has_checkpoint(objective.setup.workdir)
    examples = _hash_of(store)
    saved = None
    if path.exists() or goes_on:
        saved = _read(path)
    if saved is not None:
        problem = _difference(saved, weights, examples, len(store))
        if problem is None:
            store.log_probs = saved.log_probs
            return
        if goes_on:
            raise InputError(
                f"{path}: {problem}; give the original model and data, or another --workdir"
            )
    log_probs = _compute(objective, store, initial_params)
    _check_finite(log_probs, store)
    if jax.process_index() == 0:
        _write(path, _Saved(weights, examples, log_probs))
    store.log_probs = log_probs


def _difference(
    saved: _Saved, weights: str, examples: str, count: int
) -> str | None:
    """Returns a description of the difference between saved and required values; None if equal."""
    if saved.weights != weights:
        return (
            f"the reference model has the weights {weights}, but the run started with "
            f"{saved.weights}"
        )
    if saved.examples != examples or len(saved.log_probs) != count:
        return f"the examples have the hash {examples}, but the run started with {saved.examples}"
    return None


def _compute(
    objective: Preferences,
    store: ReferencedExamples,
    initial_params: Params | None,
) -> np.ndarray:
    """Returns the log-probabilities of all pairs, float32 [examples, 2], equal on all hosts."""
    run = objective.setup.run
    mesh, rules = make_mesh(run.mesh), run.mesh.rules
    rows = run.data.batch_size // run.training.accumulation
    log_probs = np.zeros((len(store), 2), np.float32)
    params = _place(objective, initial_params)
    shown = run.training.progress and jax.process_index() == 0
    bar = Bar(
        total=len(store), desc="reference model", unit="pair", disable=not shown
    )
    with activate(mesh, rules), bar:
        for indices, length in _groups(
            store.lengths, objective.source_lengths, rows
        ):
            # Each host reads its share of the rows.
            numbers = host_rows(mesh).rows_of(rows)
            examples = [store[indices[n]] for n in numbers if n < len(indices)]
            batch = pad_batch(
                examples,
                rows=len(numbers),
                source_length=length,
                pad_id=objective.setup.config.pad_token_id,
                **objective.batch_options(),
            )
            values = objective.pair_log_probs(params, put_batch(batch, mesh))
            log_probs[indices] = jax.device_get(values)[: len(indices)]
            bar.update(len(indices))
    return log_probs


def _place(objective: Preferences, initial_params: Params | None) -> Params:
    """Returns the initial parameters of the run, placed on its mesh."""
    setup = objective.setup
    init, mesh = setup.family.init_params(setup.config), setup.run.mesh
    key = initialization_key(setup.run.training.seed)
    # no moments, since only the parameters of the state are used
    optimizer = optax.identity()
    abstract, _ = plan_state(init, optimizer, make_mesh(mesh), mesh.rules, key)
    return create_state(abstract, init, optimizer, key, initial_params).params


def _groups(
    lengths: np.ndarray, buckets: Sequence[int], rows: int
) -> Iterator[tuple[np.ndarray, int]]:
    """Yields the example indices of each batch, and its padded length."""
    bucket_of = np.searchsorted(buckets, lengths[:, 0])
    for bucket, length in enumerate(buckets):
        indices = np.flatnonzero(bucket_of == bucket)
        for start in range(0, len(indices), rows):
            yield indices[start : start + rows], length


def _check_finite(log_probs: np.ndarray, store: ReferencedExamples) -> None:
    damaged = np.flatnonzero(~np.isfinite(log_probs).all(1))
    if damaged.size:
        example = store[int(damaged[0])]
        raise InputError(
            f'config.init_from: the reference model gives a summary of "{example["id"]}" the '
            f"log-probability {log_probs[damaged[0]].tolist()}; give a model whose weights are "
            "finite"
        )


def _hash_of(store: ReferencedExamples) -> str:
    """Returns a short hash of the token ids of all examples."""
    digest = hashlib.blake2b(digest_size=8)
    for example in store:
        for ids in (
            example["input_ids"],
            example["labels"],
            example["rejected"],
        ):
            digest.update(len(ids).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(ids, np.int32).data)
    return digest.hexdigest()


def _read(path: Path) -> _Saved:
    """Returns the content of a file written by ``_write``.

    Raises:
        InputError: the file is missing or damaged.
    """
    content = read_json(path, MAX_ROWS_BYTES)
    try:
        values: Any = content["log_probs"]
        log_probs = np.asarray(values, np.float32).reshape(-1, 2)
        return _Saved(
            str(content["weights"]), str(content["examples"]), log_probs
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is damaged ({error}); copy the run again"
        ) from None


def _write(path: Path, saved: _Saved) -> None:
    # A flat list, because nested lists would exceed the limit of containers in
    # a JSON file.
    numbers = [float(value) for value in saved.log_probs.reshape(-1)]
    content = {
        "weights": saved.weights,
        "examples": saved.examples,
        "log_probs": numbers,
    }
    assert all(map(math.isfinite, numbers))  # JSON has only finite numbers
    try:
        atomic.write_text(path, json.dumps(content) + "\n")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); free up space or give another --workdir"
        ) from error
