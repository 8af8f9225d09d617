"""The protocol of all tokenizers."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol


class Tokenizer(Protocol):
    """What models, data and commands use of a tokenizer."""

    vocab_size: int  # rows of the embedding: pieces, extra ids, unused rows
    pad_id: int
    eos_id: int
    unk_id: int
    mask_id: int | None  # what a masked language model has to fill in
    prefix_ids: tuple[int, ...]  # what ``close`` puts before a text

    @property
    def fingerprint(self) -> str:
        """A short hash of all that decides ids; equal fingerprints give equal ids."""

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text alone; special tokens that stand in it (`<extra_id_0>`, `</s>`)
        get theirs."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes several texts; the same ids as one by one."""

    def close(self, ids: Sequence[int], limit: int | None = None) -> list[int]:
        """Returns ids between the special tokens that the model expects around a text, ``limit`` at
        most in all."""

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of token ids, without special tokens and unused rows.

        Raises:
            InputError: an id outside [0, vocab_size).
        """

    def save(self, directory: str | Path) -> None:
        """Writes the files that `load_tokenizer` and transformers read."""
