"""Special tokens: the template around a text, and tokens that may occur inside one."""

import copy
import functools
import re
from collections.abc import (
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Literal, NamedTuple, Self

from longsum_jax.errors import InputError, did_you_mean

Truncation = Literal["longest", "second"]
Span = tuple[int, int]
_NO_SPACE = re.compile(r"\S")


class TokenPair(NamedTuple):
    """The tokens of two texts, including special tokens.

    Attributes:
        ids: token ids.
        token_type_ids: 1 for the tokens of the second text in models that
            distinguish them (BERT), otherwise 0.
        second: slice of the tokens of the second text.
    """

    ids: list[int]
    token_type_ids: list[int]
    second: slice


class SpecialTokenTemplate:
    """The special tokens that a model expects around a text; base class of all tokenizers.

    T5 and PEGASUS append `</s>` to a text. BART and RoBERTa put it between
    `<s>` and `</s>`, BERT between `[CLS]` and `[SEP]`. Each of two texts ends
    like this: `[CLS] a [SEP] b [SEP]`. But RoBERTa and BART have `<s> a
    </s></s> b </s>`, and PEGASUS has `a b </s>`.

    Attributes:
        prefix_ids, suffix_ids: ids before and after the ids of one text, or of
            two.
        middle_ids: ids between two texts.
        second_type: token type of the second text and of the ids after it.
        control_ids: ids of the special tokens that control a model.
        chat_template: Jinja template of conversations, or None.
        named_tokens: texts of special tokens by name ("bos_token"), for the
            template.
    """

    prefix_ids: tuple[int, ...] = ()
    middle_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    second_type: int = 0
    control_ids: frozenset[int] = frozenset()
    chat_template: str | None = None
    named_tokens: dict[str, str] = {}  # noqa: RUF012 (read only)
    _is_plain: bool = False

    @functools.cached_property
    def plain(self) -> Self:
        """This tokenizer, but special tokens in a text are encoded as text."""
        if self._is_plain:
            return self
        tokenizer = copy.copy(self)
        tokenizer._is_plain = True
        return tokenizer

    def add_special_tokens(
        self, ids: Sequence[int], limit: int | None = None
    ) -> list[int]:
        """Returns ``ids`` with the special tokens around them.

        Args:
            ids: ids of a text, as returned by ``encode``.
            limit: largest number of tokens of the result; the end of the text
                is truncated.

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

    def join_pair(
        self,
        first: Sequence[int],
        second: Sequence[int],
        limit: int | None = None,
        truncation: Truncation = "longest",
    ) -> TokenPair:
        """Returns two texts with the special tokens around and between them.

        Args:
            first, second: ids of two texts, as returned by ``encode``.
            limit: largest number of tokens of the result.
            truncation: text to truncate, always at the end: the longer text
                until both have the same length, then both ("longest"); or only
                the second text ("second").

        Raises:
            InputError: a limit that leaves no room for the texts (for "second",
                none for the second text); an unknown truncation.
        """
        if truncation not in ("longest", "second"):
            suggestion = did_you_mean(truncation, ("longest", "second"))
            raise InputError(
                f'truncation "{truncation}" is unknown; {suggestion}'
            )
        if limit is not None:
            room = limit - self._num_special_of_pair
            lengths = _lengths_in(room, len(first), len(second), truncation)
            if lengths is None:
                needed = self._num_special_of_pair
                if truncation == "second":
                    needed += len(first) + 1
                raise InputError(
                    f"length {limit} leaves no room for two texts; give at least {needed}, or cut "
                    "the first text"
                )
            first, second = first[: lengths[0]], second[: lengths[1]]
        start = [*self.prefix_ids, *first, *self.middle_ids]
        end = [*second, *self.suffix_ids]
        types = [0] * len(start) + [self.second_type] * len(end)
        return TokenPair(
            start + end, types, slice(len(start), len(start) + len(second))
        )

    @property
    def _num_special_of_pair(self) -> int:
        return (
            len(self.prefix_ids) + len(self.middle_ids) + len(self.suffix_ids)
        )


def _lengths_in(
    room: int, first: int, second: int, truncation: str
) -> tuple[int, int] | None:
    """Returns the numbers of ``first`` and ``second`` tokens to keep, at most ``room`` in total.

    If ``room`` is odd, the longer text keeps one more, as in the `tokenizers`
    library. Returns None if there is no room.
    """
    if room < 0:
        return None
    if first + second <= room:
        return first, second
    if truncation == "second":
        if room > first:
            return (first, room - first)
        return None
    shorter = min(first, second, room // 2)
    if first <= second:
        return (shorter, room - shorter)
    return (room - shorter, shorter)


class SpecialTokens:
    """Strings that are encoded as a single token anywhere in a text, as in transformers.

    Of several strings that begin at the same position, the longest is used.

    Args:
        ids: ids by string.
        with_spaces: strings that include white space on both sides.
    """

    def __init__(
        self, ids: Mapping[str, int], with_spaces: Container[str] = ()
    ):
        self.by_text = dict(ids)
        self.ids = frozenset(ids.values())
        longest_first = sorted(ids, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        self._with_spaces = with_spaces

    def occur_in(self, text: str) -> bool:
        """Returns True if a text contains a special token."""
        return self._pattern.search(text) is not None

    def encode(
        self, text: str, encode_plain: Callable[[str], Iterable[int]]
    ) -> list[int]:
        """Returns the ids of a text; ``encode_plain`` encodes the text between special tokens."""
        ids: list[int] = []
        for offset, plain, token in self._parts(text):
            del offset
            ids += encode_plain(plain)
            if token is not None:
                ids.append(self.by_text[token[0]])
        return ids

    def spans(
        self, text: str, spans_plain: Callable[[str], Iterable[Span]]
    ) -> list[Span]:
        """Returns the character spans of ``encode``'s tokens; ``spans_plain`` for plain text."""
        result: list[Span] = []
        for offset, plain, token in self._parts(text):
            result += _moved(spans_plain(plain), offset)
            if token is not None:
                result.append(token.span())
        return result

    def _parts(
        self, text: str
    ) -> Iterator[tuple[int, str, re.Match[str] | None]]:
        """Yields the texts between special tokens with their position and the next token."""
        start = 0
        for match in self._pattern.finditer(text):
            plain = text[start : match.start()]
            has_spaces = match[0] in self._with_spaces
            yield start, plain.rstrip() if has_spaces else plain, match
            start = match.end()
            if has_spaces:
                word = _NO_SPACE.search(text, start)
                start = word.start() if word else len(text)
        yield start, text[start:], None


def _moved(spans: Iterable[Span], offset: int) -> list[Span]:
    return [(start + offset, end + offset) for start, end in spans]
