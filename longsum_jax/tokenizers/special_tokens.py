"""Special tokens: the template around a text, and tokens that may occur inside one."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from longsum_jax.errors import InputError


class SpecialTokenTemplate:
    """The special tokens that a model expects around a text; a base of all tokenizers.

    T5 and PEGASUS end a text with `</s>`. BART and RoBERTa put it between `<s>` and `</s>`, BERT
    between `[CLS]` and `[SEP]`.

    Attributes:
        prefix_ids, suffix_ids: ids before and after those of a text.
    """

    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()

    def add_special_tokens(self, ids: Sequence[int], limit: int | None = None) -> list[int]:
        """Returns ``ids`` with the special tokens around them.

        Args:
            ids: the ids of a text, as ``encode`` returns them.
            limit: the largest number of tokens of the result; the end of the text is cut off.

        Raises:
            InputError: a limit below the number of special tokens.
        """
        count = len(self.prefix_ids) + len(self.suffix_ids)
        if limit is not None:
            if limit < count:
                raise InputError(
                    f"length {limit} leaves no room for the {count} special tokens; "
                    f"give at least {count}"
                )
            ids = ids[: limit - count]
        return [*self.prefix_ids, *ids, *self.suffix_ids]


class SpecialTokens:
    """Strings that are one token each wherever they occur in a text, as in transformers.

    Args:
        ids: string to id.
    """

    def __init__(self, ids: Mapping[str, int]):
        self.by_text = dict(ids)
        self.ids = frozenset(ids.values())
        self._pattern = re.compile("|".join(map(re.escape, ids)))

    def occur_in(self, text: str) -> bool:
        """Returns whether a text contains a special token."""
        return self._pattern.search(text) is not None

    def encode(self, text: str, encode_plain: Callable[[str], Iterable[int]]) -> list[int]:
        """Returns the ids of a text; ``encode_plain`` encodes the text between special tokens."""
        ids: list[int] = []
        start = 0
        for match in self._pattern.finditer(text):
            ids += encode_plain(text[start : match.start()])
            ids.append(self.by_text[match[0]])
            start = match.end()
        ids += encode_plain(text[start:])
        return ids
