"""Tokens that are no text: those around a document, and those that may stand within one."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from longsum_jax.errors import InputError


class Closing:
    """How a tokenizer closes a text.

    T5 and PEGASUS end it with `</s>`; BART and RoBERTa put it between `<s>` and `</s>`, BERT
    between `[CLS]` and `[SEP]`.

    Attributes:
        prefix_ids, suffix_ids: what a model expects before and after the ids of a text.
    """

    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()

    def close(self, ids: Sequence[int], limit: int | None = None) -> list[int]:
        """Returns ``ids`` between the special tokens.

        Args:
            ids: of a text, as ``encode`` gives them.
            limit: tokens at most; it is the text that gets cut, at its end.

        Raises:
            InputError: a limit below the number of special tokens.
        """
        around = len(self.prefix_ids) + len(self.suffix_ids)
        if limit is not None and limit < around:
            raise InputError(
                f"length {limit} leaves no room for the {around} special tokens; give at least {around}"
            )
        kept = ids if limit is None else ids[: limit - around]
        return [*self.prefix_ids, *kept, *self.suffix_ids]


class SpecialTokens:
    """Strings that get one id each wherever they stand in a text, as transformers treats its
    special tokens.

    Args:
        ids: string to id.
    """

    def __init__(self, ids: Mapping[str, int]):
        self.by_text = dict(ids)
        self.ids = frozenset(ids.values())
        self._pattern = re.compile("|".join(map(re.escape, ids)))

    def occur_in(self, text: str) -> bool:
        return self._pattern.search(text) is not None

    def encode(self, text: str, encode_part: Callable[[str], Iterable[int]]) -> list[int]:
        """Ids of a text: special ones, and what ``encode_part`` makes of the parts between them."""
        ids: list[int] = []
        start = 0
        for match in self._pattern.finditer(text):
            ids += encode_part(text[start : match.start()])
            ids.append(self.by_text[match[0]])
            start = match.end()
        ids += encode_part(text[start:])
        return ids
