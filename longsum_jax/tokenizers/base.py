"""The protocol of all tokenizers."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from longsum_jax.errors import InputError
from longsum_jax.tokenizers.special_tokens import TokenPair, Truncation

NO_TOKEN = -1  # in place of a token index


class Tokenizer(Protocol):
    """The interface of tokenizers that models, data and commands rely on."""

    vocab_size: int  # rows of the embedding: pieces, extra ids, unused rows
    pad_id: int
    eos_id: int
    unk_id: int
    mask_id: int | None  # the mask token of a masked language model
    prefix_ids: tuple[int, ...]  # the special tokens before a text
    # The special tokens that control a model; unknown text is not one of them.
    control_ids: frozenset[int]
    chat_template: str | None  # Jinja template of conversations
    named_tokens: dict[str, str]  # texts of special tokens, for the template

    @property
    def fingerprint(self) -> str:
        """A short hash; tokenizers with equal fingerprints give equal ids."""

    @property
    def plain(self) -> "Tokenizer":
        """This tokenizer, but special tokens inside a text are encoded as text.

        The ids of a user's texts, such as documents, then contain no
        ``control_ids``.
        """

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without the special tokens around it.

        Special tokens inside the text (`<extra_id_0>`, `</s>`) become their
        ids.
        """

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of several texts, equal to encoding one by one."""

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the [start, end) character offsets of every token of ``encode(text)``.

        White space may be part of a token.
        """

    def add_special_tokens(
        self, ids: Sequence[int], limit: int | None = None
    ) -> list[int]:
        """Returns ``ids`` with the model's special tokens around them, at most ``limit`` ids."""

    def join_pair(
        self,
        first: Sequence[int],
        second: Sequence[int],
        limit: int | None = None,
        truncation: Truncation = "longest",
    ) -> TokenPair:
        """Returns two texts with the model's special tokens around and between them.

        See ``special_tokens.SpecialTokenTemplate.join_pair``.
        """

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of token ids, without special tokens and unused rows.

        Raises:
            InputError: an id outside [0, vocab_size).
        """

    def save(self, directory: str | Path) -> None:
        """Writes the files that `load_tokenizer` and transformers read.

        Files of another tokenizer in the directory are removed.
        """


def first_tokens(
    words: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]
) -> list[int]:
    """Returns the index of the first token of every word, from character spans of words and tokens.

    It is ``NO_TOKEN`` for a word without tokens, whose characters the tokenizer
    drops.
    """
    firsts = []
    token = 0
    for start, end in words:
        while token < len(spans) and spans[token][1] <= start:
            token += 1
        has_token = token < len(spans) and spans[token][0] < end
        firsts.append(token if has_token else NO_TOKEN)
    return firsts


def mask_id_of(tokenizer: Tokenizer) -> int:
    """Returns the id of a tokenizer's mask token, or of its first sentinel if it has none.

    Raises:
        InputError: the tokenizer has neither.
    """
    if tokenizer.mask_id is not None:
        return tokenizer.mask_id
    ids = tokenizer.encode("<extra_id_0>")
    if len(ids) != 1:
        raise InputError(
            "the tokenizer has no mask token for a masked language model; give one that has, or "
            "train one with tokenizer.extra_ids=1"
        )
    return ids[0]
