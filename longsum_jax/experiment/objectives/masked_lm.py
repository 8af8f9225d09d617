"""Masked language models: an encoder guesses hidden tokens (Devlin et al. 2019; masks drawn anew,
as in RoBERTa)."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.data.examples.base import Example, add_special_tokens
from longsum_jax.data.examples.masked_lm import masked_lm_examples
from longsum_jax.data.padding import pad_batch
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.evaluation.tables import score_table
from longsum_jax.experiment.objectives.base import Evaluation, Objective, Row
from longsum_jax.ops.losses import token_cross_entropy
from longsum_jax.ops.masking import mask_tokens
from longsum_jax.text.documents import Document
from longsum_jax.training.step import LossFn, LossOutput
from longsum_jax.typing import Array, Params

COLUMNS = ("accuracy", "bits_per_token", "bits_per_character")


@dataclasses.dataclass(frozen=True)
class MaskingOptions:
    """Which tokens are to be guessed.

    Attributes:
        probability: with which a token is chosen; special tokens never are.
        masked, random: shares of the chosen tokens that become the mask or a random token; the rest
            stays.
    """

    probability: float = 0.15
    masked: float = 0.8
    random: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise InputError(f"mlm.probability: {self.probability} must be above 0 and at most 1")
        if min(self.masked, self.random) < 0 or self.masked + self.random > 1:
            raise InputError(
                f"mlm.masked={self.masked} and mlm.random={self.random} are shares of the chosen tokens; "
                "give at least 0 each and at most 1 together"
            )


class MaskedLanguageModel(Objective):
    """Hidden tokens of documents, all of whose text is read, in pieces."""

    kind = "encoder"
    ranking = ("accuracy", "negative_bits_per_token")

    def resolve(self, task: Task, config: Any) -> tuple[Task, Any]:
        return task, dataclasses.replace(config, head="masked_lm")

    def label_options(self) -> dict[str, Any]:
        return {}

    def masks(self, rng: Array, ids: Array, mask: Array) -> tuple[Array, Array]:
        """Inputs and labels int [B, L] for ids [B, L]; see ``ops.masking``."""
        regular = np.setdiff1d(np.arange(self.experiment.config.vocab_size), self.special_ids)
        return mask_tokens(
            rng,
            ids,
            self._is_text(ids, mask),
            mask_id=self.mask_id,
            replacements=jnp.asarray(regular),
            **dataclasses.asdict(self.experiment.mlm),
        )

    def _is_text(self, ids: Array, mask: Array) -> Array:
        return mask.astype(bool) & ~jnp.isin(ids, jnp.asarray(self.special_ids))

    def loss_fn(self) -> LossFn:
        """Cross-entropy of the chosen tokens; also counts tokens and right guesses."""
        module = self.experiment.family.module_class(self.experiment.config)
        _ = self.special_ids  # a tokenizer that does not fit should not show inside a compilation

        def loss_fn(params: Params, batch: Mapping[str, Array], rng: Array) -> LossOutput:
            mask_key, dropout_key = jax.random.split(rng)
            inputs, labels = self.masks(mask_key, batch["input_ids"], batch["attention_mask"])
            logits = module.apply(
                {"params": params},
                inputs,
                batch["attention_mask"],
                deterministic=False,
                rngs={"dropout": dropout_key},
            )
            loss_sum, weight = token_cross_entropy(logits, labels)
            counts = {
                "tokens": batch["attention_mask"].sum(),
                "right_tokens": (logits.argmax(-1) == labels).sum(),
            }
            return LossOutput(
                loss_sum, weight, {name: x.astype(np.float32) for name, x in counts.items()}
            )

        return loss_fn

    @cached_property
    def mask_id(self) -> int:
        """The tokenizer's mask, or its first sentinel where it has none."""
        tokenizer = self.experiment.tokenizer
        if (found := getattr(tokenizer, "mask_id", None)) is not None:
            return found
        ids = tokenizer.encode("<extra_id_0>")
        if len(ids) != 1:
            raise InputError(
                "the tokenizer has no mask token for a masked language model; give one that has, or train one with "
                "tokenizer.extra_ids=1"
            )
        return ids[0]

    @cached_property
    def special_ids(self) -> np.ndarray:
        """Ids that are never chosen, nor drawn in place of chosen ones."""
        tokenizer = self.experiment.tokenizer
        around = add_special_tokens(tokenizer, tokenizer.encode(self.experiment.task.prefix))
        return np.unique([tokenizer.pad_id, tokenizer.eos_id, self.mask_id, *around])

    @cached_property
    def documents(self) -> list[tuple[Document, list[Example]]]:
        """The documents that evaluation reads, with their pieces."""
        task, tokenizer = self.experiment.task, self.experiment.tokenizer
        docs = documents(task, self.experiment.evaluation.split)
        made = ((document, masked_lm_examples(task, tokenizer, document)) for document in docs)
        return self.first((document, pieces) for document, pieces in made if pieces)

    def read_evaluation(self) -> None:
        _ = self.documents

    def evaluate(self, params: Params) -> Evaluation:
        """Accuracy and bits of the guesses; the masks are the same at every evaluation.

        Bits per token are the mean over the chosen tokens; bits per character are those times the
        number of tokens (special ones left out) over the number of characters of the documents:
        what all tokens would cost if each cost as much as the chosen ones. Each is guessed from
        both sides, so neither is a compression rate.
        """
        guesses = [jax.device_get(self._guess(params, *batch)) for batch in self._batches()]
        counts = np.concatenate(guesses, axis=1).T.astype(np.float64)  # [pieces, 4]
        rows = []
        for document, pieces in self.documents:
            (tokens, chosen, right, bits), counts = (
                counts[: len(pieces)].sum(0),
                counts[len(pieces) :],
            )
            whole = {"tokens": int(tokens), "chosen": int(chosen), "right": int(right)}
            rows.append(
                {
                    "id": document.id,
                    "characters": len(document.document),
                    **whole,
                    "bits": round(bits, 4),
                }
            )
        return Evaluation(masked_lm_scores(rows), rows)

    def report(self, evaluation: Evaluation) -> str:
        rows, scores = evaluation.rows, evaluation.scores
        chosen, tokens = (sum(row[name] for row in rows) for name in ("chosen", "tokens"))
        table = score_table(COLUMNS, {"model": [scores[name] for name in COLUMNS]})
        return f"{table}\n\n{chosen} of {tokens} tokens guessed in {len(rows)} documents"

    def _batches(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Numbers [b] of the pieces, by which their masks are drawn, ids [b, L] and attention mask
        [b, L]."""
        experiment, size = self.experiment, self.experiment.evaluation.batch_size
        pieces = [piece for _, pieces in self.documents for piece in pieces]
        for start in range(0, len(pieces), size):
            batch = pad_batch(
                pieces[start : start + size],
                rows=size,
                source_length=experiment.task.max_source_length,
                pad_id=experiment.config.pad_token_id,
            )
            yield np.arange(start, start + size), batch["input_ids"], batch["attention_mask"]

    @cached_property
    def _guess(self) -> Callable[..., Array]:
        """Compiled (parameters, numbers, ids, mask) -> float32 [4, B]: tokens, chosen, right, bits
        of every row."""
        key = jax.random.key(self.experiment.evaluation.seed)

        def guess(params: Params, numbers: Array, ids: Array, mask: Array) -> Array:
            keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(numbers)
            inputs, labels = jax.vmap(self.masks)(keys, ids, mask)
            logits = self.logits(params, inputs, mask)
            losses, chosen = jax.vmap(token_cross_entropy)(logits[:, None], labels[:, None])
            right = (logits.argmax(-1) == labels).sum(-1)
            return jnp.stack(
                [self._is_text(ids, mask).sum(-1), chosen, right, losses / math.log(2)]
            )

        return jax.jit(guess)


def masked_lm_scores(rows: Sequence[Row]) -> dict[str, float]:
    """Accuracy (0 to 100), bits per token and per character of rows with characters, tokens,
    chosen, right, bits."""
    characters, tokens, chosen, right, bits = (
        sum(row[name] for row in rows)
        for name in ("characters", "tokens", "chosen", "right", "bits")
    )
    bits_per_token = bits / max(chosen, 1)
    return {
        "accuracy": 100 * right / max(chosen, 1),
        "bits_per_token": bits_per_token,
        "bits_per_character": bits_per_token * tokens / characters,
        "negative_bits_per_token": -bits_per_token,
    }
