"""The embedding tables of an encoder-decoder in state dicts, and which of them are one parameter.

A state dict of transformers has up to four names for them: a shared table, and
the tables that the encoder, the decoder and the output read. A file may contain
any of the four: equal tables are often stored once, under one of their names.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from longsum_jax.models.config import EncoderDecoderConfig
from longsum_jax.models.weight_map import WeightRow

OUTPUT_KEY = "lm_head.weight"


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(EncoderDecoderConfig):
    """The fields of configs whose embedding tables may be separate parameters.

    Attributes:
        tie_word_embeddings: True if the output weights are the encoder's
            embeddings. When a checkpoint is read, this is inferred from its
            tensors.
        shared_embeddings: True if encoder and decoder have the same embeddings;
            also inferred.
    """

    tie_word_embeddings: bool = True
    shared_embeddings: bool = True


Config = TypeVar("Config", bound=EmbeddingOptions)


class EmbeddingKeys(NamedTuple):
    """The keys of the embedding tables in state dicts.

    If one is absent, its table is stored under the first of the other keys that
    is present, in the order in which transformers 5 ties them.
    """

    shared: str
    encoder: str
    decoder: str

    @classmethod
    def with_prefix(cls, prefix: str) -> "EmbeddingKeys":
        """Returns the keys of a model whose keys begin with ``prefix``."""
        sides = (
            f"{prefix}{side}.embed_tokens.weight"
            for side in ("encoder", "decoder")
        )
        return cls(f"{prefix}shared.weight", *sides)

    @property
    def source(self) -> tuple[str, ...]:
        """The keys of the encoder's table, in order of precedence."""
        return self.encoder, self.shared, self.decoder, OUTPUT_KEY

    @property
    def target(self) -> tuple[str, ...]:
        """The keys of the decoder's table, in order of precedence."""
        return self.decoder, self.shared, self.encoder, OUTPUT_KEY

    @property
    def output(self) -> tuple[str, ...]:
        """The keys of the output weights, in order of precedence."""
        return OUTPUT_KEY, self.shared, self.encoder, self.decoder


def infer_embeddings(
    config: Config, tensors: Mapping[str, Any], keys: EmbeddingKeys
) -> Config:
    """Returns the config whose tables are one parameter if they are equal in a state dict.

    The flag in config.json is ignored, as in transformers 5, which ties equal
    tables only.
    """
    prefix = f"{config.prefix}."
    bare = {
        key: tensors.get(key.removeprefix(prefix))
        for key in (*keys, OUTPUT_KEY)
    }
    tables = {key: tensors.get(key, bare[key]) for key in bare}
    source, target, output = (
        _first_table(tables, names)
        for names in (keys.source, keys.target, keys.output)
    )
    if source is None:
        # the missing keys are reported by the comparison with the model
        return config
    stored = tables[keys.shared]
    # The class in transformers also has a shared table that differs from both,
    # and reads neither.
    shared = _is_equal(source, target) and (
        stored is None or _is_equal(source, stored)
    )
    return dataclasses.replace(
        config,
        shared_embeddings=shared,
        tie_word_embeddings=config.head != "language_model"
        or _is_equal(source, output),
    )


def _first_table(tables: Mapping[str, Any], names: Sequence[str]) -> Any | None:
    return next(
        (tables[name] for name in names if tables[name] is not None), None
    )


def _is_equal(table: Any, other: Any) -> bool:
    """Returns True if two tables are equal; the same table is not read twice."""
    if table is other:
        return True
    return table.shape == other.shape and np.array_equal(
        np.asarray(table), np.asarray(other)
    )


class EmbeddingRows(NamedTuple):
    """The attributes ``rows``, ``tied`` and ``copies`` of a weight map for the embedding tables."""

    rows: list[WeightRow]
    tied: dict[str, str]
    copies: dict[str, str]


def embedding_rows(
    config: EmbeddingOptions, keys: EmbeddingKeys, *, stores_shared: bool
) -> EmbeddingRows:
    """Returns the rows of embeddings and output weights, and the names of their copies.

    Args:
        config: config with ``shared_embeddings`` and ``tie_word_embeddings``.
        keys: keys of the tables.
        stores_shared: True if equal tables of both stacks can be stored as the
            shared table when the output weights differ; otherwise transformers
            needs a copy of each.
    """
    rows = [WeightRow("shared", keys.shared)]
    tied = {keys.encoder: keys.shared, keys.decoder: keys.shared}
    copies: dict[str, str] = {}
    if config.tie_word_embeddings and config.shared_embeddings:
        return EmbeddingRows(rows, tied | {OUTPUT_KEY: keys.shared}, copies)
    if not (config.shared_embeddings and stores_shared):
        rows, tied = (
            [WeightRow("shared", keys.encoder, alternatives=keys.source)],
            {},
        )
        copies[keys.shared] = keys.encoder
        if config.shared_embeddings:
            copies[keys.decoder] = keys.encoder
        else:
            rows.append(
                WeightRow(
                    "target_embedding", keys.decoder, alternatives=keys.target
                )
            )
    if not config.tie_word_embeddings:
        rows.append(WeightRow("lm_head", OUTPUT_KEY, alternatives=keys.output))
    elif config.head == "language_model":
        copies[OUTPUT_KEY] = keys.encoder
    return EmbeddingRows(rows, tied, copies)
