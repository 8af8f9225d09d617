"""Masked language modeling: an encoder predicts masked tokens.

Devlin et al. 2019; masks are redrawn at every step, as in RoBERTa.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.data.examples.base import Example
from longsum_jax.data.examples.masked_lm import masked_lm_examples
from longsum_jax.data.padding import pad_batch
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import Task
from longsum_jax.errors import counted
from longsum_jax.evaluation.tables import score_table
from longsum_jax.experiment.config import RunConfig
from longsum_jax.experiment.objectives.base import (
    Evaluation,
    Objective,
    Row,
    loss_with_counts,
    replicate,
)
from longsum_jax.ops.losses import count_labels
from longsum_jax.ops.masking import mask_tokens
from longsum_jax.text.documents import DataRow
from longsum_jax.tokenizers.base import mask_id_of
from longsum_jax.training.loss import LossFn, LossOutput
from longsum_jax.training.mesh import MeshJit
from longsum_jax.typing import IGNORED_LABEL, Array, Params

COLUMNS = ("accuracy", "bits_per_token", "bits_per_character")


class MaskedLanguageModel(Objective):
    """Masked language modeling of whole documents, read in pieces."""

    head = "masked_lm"

    @classmethod
    def ranking(cls, run: RunConfig) -> tuple[str, ...]:
        return ("accuracy", "negative_bits_per_token")

    @classmethod
    def resolve(cls, run: RunConfig) -> tuple[Task, Any]:
        return run.task, dataclasses.replace(run.model, head=cls.head)

    def batch_options(self) -> dict[str, Any]:
        return {}

    def masks(self, rng: Array, ids: Array, mask: Array) -> tuple[Array, Array]:
        """Returns inputs and labels, int [b, l], for ids [b, l]; see ``ops.masking``."""
        special = [*self.special_ids, *self._prefix]
        regular = np.setdiff1d(np.arange(self.setup.config.vocab_size), special)
        return mask_tokens(
            rng,
            ids,
            self._is_text(ids, mask),
            mask_id=self.mask_id,
            replacements=jnp.asarray(regular),
            **dataclasses.asdict(self.setup.run.mlm),
        )

    def _is_text(self, ids: Array, mask: Array) -> Array:
        """Returns True for tokens of the text, excluding the prefix and special tokens."""
        num_before = len(self.setup.tokenizer.prefix_ids) + len(self._prefix)
        is_after_prefix = jnp.arange(ids.shape[-1]) >= num_before
        return (
            mask.astype(bool)
            & is_after_prefix
            & ~jnp.isin(ids, jnp.asarray(self.special_ids))
        )

    def loss_fn(self) -> LossFn:
        """Returns the cross-entropy of selected tokens; counts tokens and correct predictions."""
        # raises for an unsuitable tokenizer before compilation
        _ = self.special_ids

        def loss_fn(
            params: Params, batch: Mapping[str, Array], rng: Array
        ) -> LossOutput:
            mask = batch["attention_mask"]
            mask_key, dropout_key = jax.random.split(rng)
            inputs, labels = self.masks(mask_key, batch["input_ids"], mask)
            scores = self.module.apply(
                {"params": params},
                inputs,
                mask,
                labels,
                deterministic=False,
                rngs={"dropout": dropout_key},
                method="score_targets",
            )
            loss_sum, weight = scores.losses.sum(), count_labels(labels)
            num_right = scores.is_right.sum()
            return loss_with_counts(
                loss_sum, weight, tokens=mask.sum(), right_tokens=num_right
            )

        return loss_fn

    @cached_property
    def mask_id(self) -> int:
        """Id of the mask token, see ``mask_id_of``."""
        return mask_id_of(self.setup.tokenizer)

    @cached_property
    def special_ids(self) -> np.ndarray:
        """Ids that are never selected, nor sampled as replacements."""
        return np.unique([*self._around(), self.mask_id])

    @cached_property
    def _prefix(self) -> list[int]:
        """The ids before the text of every piece; its words count elsewhere in the text."""
        return self.setup.tokenizer.encode(self.setup.task.prefix)

    def _around(self) -> list[int]:
        """Returns padding, and the special ids before and after every piece of text."""
        tokenizer = self.setup.tokenizer
        return [
            tokenizer.pad_id,
            tokenizer.eos_id,
            *tokenizer.add_special_tokens([]),
        ]

    @cached_property
    def documents(self) -> list[tuple[DataRow, list[Example]]]:
        """The evaluation documents with their pieces."""
        task, tokenizer = self.setup.task, self.setup.tokenizer
        docs = documents(task, self.setup.run.evaluation.split)
        made = (
            (document, masked_lm_examples(task, tokenizer, document))
            for document in docs
        )
        return self.first_examples(
            (document, pieces) for document, pieces in made if pieces
        )

    def read_evaluation(self) -> None:
        _ = self.documents

    def evaluate(self, params: Params) -> Evaluation:
        """Returns accuracy and bits of the predictions; masks are the same in every evaluation.

        Bits per token is the mean over selected tokens; bits per character is
        that mean times the number of tokens (without special tokens) over the
        number of characters of the documents: the cost of all tokens if each
        cost as much as the selected ones. Tokens are predicted from both sides,
        so neither is a compression rate.
        """
        guesses = [
            jax.device_get(self._guess(params, *batch))
            for batch in self._batches()
        ]
        # [pieces, 4]
        counts = np.concatenate(guesses, axis=1).T.astype(np.float64)
        rows = []
        start = 0
        for document, pieces in self.documents:
            tokens, num_chosen, right, bits = counts[
                start : start + len(pieces)
            ].sum(0)
            start += len(pieces)
            rows.append(
                {
                    "id": document.id,
                    "characters": len(document.document),
                    "tokens": int(tokens),
                    "chosen": int(num_chosen),
                    "right": int(right),
                    "bits": round(bits, 4),
                }
            )
        return Evaluation(masked_lm_scores(rows), rows)

    def report(self, evaluation: Evaluation) -> str:
        rows, scores = evaluation.rows, evaluation.scores
        num_chosen = sum(row["chosen"] for row in rows)
        tokens = sum(row["tokens"] for row in rows)
        table = score_table(
            COLUMNS, {"model": [scores[name] for name in COLUMNS]}
        )
        size = counted(len(rows), "document")
        return f"{table}\n\n{num_chosen} of {tokens} tokens guessed in {size}"

    def _batches(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yields indices [b] of pieces, which seed their masks, ids [b, l] and masks [b, l]."""
        size = self.setup.run.evaluation.batch_size
        pieces = [piece for _, pieces in self.documents for piece in pieces]
        for start in range(0, len(pieces), size):
            batch = pad_batch(
                pieces[start : start + size],
                rows=size,
                source_length=self.setup.task.max_source_length,
                pad_id=self.setup.config.pad_token_id,
            )
            yield (
                np.arange(start, start + size),
                batch["input_ids"],
                batch["attention_mask"],
            )

    @cached_property
    def _guess(self) -> Callable[..., Array]:
        """Compiled function (parameters, indices, ids, mask) -> float32 [4, b].

        The four rows are counts of tokens, selected tokens, correct
        predictions, and bits.
        """
        key = jax.random.key(self.setup.run.evaluation.seed)

        def guess(
            params: Params, numbers: Array, ids: Array, mask: Array
        ) -> Array:
            keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(
                numbers
            )
            inputs, labels = jax.vmap(self.masks)(keys, ids, mask)
            scores = self.module.apply(
                {"params": params}, inputs, mask, labels, method="score_targets"
            )
            tokens = self._is_text(ids, mask).sum(-1)
            num_chosen = (labels != IGNORED_LABEL).sum(-1)
            right = scores.is_right.sum(-1)
            bits = scores.losses.sum(-1) / math.log(2)
            return replicate(jnp.stack([tokens, num_chosen, right, bits]))

        return MeshJit(guess)


def masked_lm_scores(rows: Sequence[Row]) -> dict[str, float]:
    """Returns accuracy (0 to 100), bits per token and bits per character over all documents; NaN if
    no token was selected.

    Args:
        rows: rows with "characters", "tokens", "chosen", "right" and "bits" of
            a document.
    """
    names = ("characters", "tokens", "chosen", "right", "bits")
    totals = {name: sum(row[name] for row in rows) for name in names}
    guesses = totals["chosen"] or math.nan  # NaN never ranks best
    bits_per_token = totals["bits"] / guesses
    return {
        "accuracy": 100 * totals["right"] / guesses,
        "bits_per_token": bits_per_token,
        "bits_per_character": bits_per_token
        * totals["tokens"]
        / totals["characters"],
        "negative_bits_per_token": -bits_per_token,
    }
