"""Checks of a tokenizer.json: steps with possibly unbounded output or running time.

The `tokenizers` library runs the regular expressions of a file by backtracking,
and applies any number of replacements. Patterns with potentially exponential
time are therefore rejected by their form, as are steps that together make a
text many times longer. No published tokenizer comes close to these limits.
"""

import base64
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from longsum_jax.errors import InputError
from longsum_jax.files import parse_json
from longsum_jax.schema import shortened
from longsum_jax.tokenizers.files import MAX_ROWS

PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_MAX_STEPS = 1000
# output characters per input character; Unicode's longest decomposition has 18
_MAX_GROWTH = 64
_MAX_TEXT = 1000  # characters of a pattern or of its replacement
# characters of all added tokens; an automaton has a state for each
_MAX_ADDED = 2**20
# unbounded repetitions in one alternative, the exponent of a polynomial time
_MAX_RUNS = 3
# Ways to match with optional parts and alternatives in a row, which all may be
# tried at each character.
_MAX_WAYS = 1024
_ENDLESS = 32  # largest bound of a repetition that does not count as unbounded
_QUANTIFIER = re.compile(r"[*+?]|\{(\d*)(,?)(\d*)\}")
_GROUP_START = re.compile(r"\(\?(?:[imxwWaDSP-]*:|<?[=!]|>|<\w+>|[imx-]+\))")
_ESCAPE = re.compile(r"\\(?:[pPx]\{[^}]*\}|.)", re.DOTALL)


def check_tokenizer_json(content: str, where: str | Path) -> None:
    """Checks the steps of a tokenizer.json.

    Args:
        content: text of the file.
        where: name of the file, for error messages.

    Raises:
        InputError: not JSON, or steps whose running time or output length may
            be unbounded.
    """
    try:
        tokenizer = parse_json(content)
        if not isinstance(tokenizer, dict):
            raise ValueError(
                f"expected a JSON object, got {type(tokenizer).__name__}"
            )
        for part in PARTS:
            _check_part(tokenizer.get(part))
        added = {
            token["content"]: token["id"]
            for token in tokenizer.get("added_tokens") or []
        }
        if sum(map(len, added)) > _MAX_ADDED:
            raise ValueError(
                f"added tokens of more than {_MAX_ADDED} characters"
            )
        check_ids(added)
        vocabulary = tokenizer["model"].get("vocab")
        if isinstance(vocabulary, dict):
            check_ids(vocabulary)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise InputError(
            f"{where}: not a readable tokenizer.json ({error}); copy the file again"
        ) from None


def check_ids(vocabulary: Mapping[str, Any]) -> None:
    """Checks the ids of tokens: the library counts up to the largest one.

    Raises:
        ValueError: an id that is not an integer, or larger than any embedding.
    """
    for token, index in vocabulary.items():
        if type(index) is not int or not 0 <= index < MAX_ROWS:
            raise ValueError(f"piece {token!r} has the id {shortened(index)}")


def _check_part(part: Any) -> None:
    growth = 1
    for number, step in enumerate(_objects(part)):
        if number > _MAX_STEPS:
            raise ValueError(f"more than {_MAX_STEPS} steps")
        pattern = step.get("pattern")
        if isinstance(pattern, dict) and "Regex" in pattern:
            check_regex(pattern["Regex"])
        growth *= _growth(step)
        if growth > _MAX_GROWTH:
            raise ValueError(
                f"its steps make a text more than {_MAX_GROWTH} times longer"
            )
        for name in ("single", "pair"):
            template = step.get(name)
            if (
                isinstance(template, list)
                and sum("Sequence" in piece for piece in template) > 2
            ):
                raise ValueError(f'its template "{name}" repeats the text')


def _objects(part: Any) -> Iterator[dict[str, Any]]:
    """Yields all nested objects of a value, outer objects first."""
    left = [part]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield value
            left += value.values()
        elif isinstance(value, list):
            left += value


def _growth(step: dict[str, Any]) -> int:
    """Returns an upper bound of the number of characters that a step makes of one."""
    if "precompiled_charsmap" in step:
        return _longest_replacement(step["precompiled_charsmap"])
    content = step.get("content") or step.get("prepend") or ""
    pattern = step.get("pattern") or {}
    if isinstance(pattern, dict):
        literal = pattern.get("String", "")
    else:
        literal = ""
    if max(len(content), len(literal)) > _MAX_TEXT:
        raise ValueError(
            f"a step with a text of more than {_MAX_TEXT} characters"
        )
    if "pattern" not in step:
        return 1
    return max(1, math.ceil(len(content) / max(1, len(literal))))


def _longest_replacement(table: str) -> int:
    """Returns the length of the longest text in SentencePiece's normalization table.

    Format of the table: 4 bytes with the length of a trie, the trie,
    zero-terminated texts.
    """
    data = base64.b64decode(table or "", validate=True)
    length = int.from_bytes(data[:4], "little")
    if data and (length % 4 or length > len(data) - 4):
        raise ValueError("precompiled_charsmap is damaged")
    texts = data[4 + length :].decode(errors="replace").split("\0")
    return max(1, *map(len, texts))


def check_regex(pattern: str) -> None:
    """Checks that a regular expression cannot take exponential time.

    A repeated group must contain neither repetitions nor alternatives, so that
    a text matches in only one way; references and recursion are not allowed.

    Raises:
        ValueError: another form, or a form that this simple check does not
            support.
    """
    if len(pattern) > _MAX_TEXT:
        raise ValueError(f"a pattern of more than {_MAX_TEXT} characters")
    groups = [_Group()]
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "(":
            match = _GROUP_START.match(pattern, position)
            if match is None and pattern.startswith("(?", position):
                raise _costly(pattern, "has an unsupported kind of group")
            if match:
                position = match.end()
            else:
                position = position + 1
            if not (match and match[0].endswith(")")):
                groups.append(_Group())
            continue
        if char == "|":
            groups[-1].next_branch()
            position += 1
            continue
        inner = None
        if char == ")":
            if len(groups) == 1:
                raise _costly(pattern, "closes a group that is not open")
            inner = groups.pop()
            inner.next_branch()
            position += 1
        else:
            position = _after_atom(pattern, position)
        after = _after_quantifiers(pattern, position)
        groups[-1].add(inner, after, after.position > position, pattern)
        position = after.position
    groups[-1].next_branch()
    if groups[-1].runs > _MAX_RUNS:
        raise _costly(
            pattern, f"has more than {_MAX_RUNS} repetitions in a row"
        )
    if groups[-1].ways > _MAX_WAYS:
        raise _costly(
            pattern,
            "has optional parts and alternatives in a row that match in more than "
            f"{_MAX_WAYS} ways",
        )


class _Group:
    """The state of a group while its pattern is parsed.

    Attributes:
        is_simple: True if the group contains neither repetitions nor
            alternatives.
        runs: largest number of unbounded repetitions in one of its
            alternatives.
        ways: number of ways to match its alternatives, unbounded repetitions
            counted once.
    """

    def __init__(self) -> None:
        self.is_simple = True
        self.runs = 0
        self.ways = 0
        self._branch_runs = 0
        self._branch_ways = 1
        self._branches = 0

    def add(
        self,
        inner: "_Group | None",
        quantifiers: "_Quantifiers",
        is_quantified: bool,
        pattern: str,
    ) -> None:
        """Adds an atom or a group with its quantifiers."""
        most = quantifiers.most
        self._branch_ways *= quantifiers.choices
        if inner is not None:
            self._branch_ways *= inner.ways
            if most > 1 and not inner.is_simple:
                raise _costly(
                    pattern, "repeats a group of repetitions or alternatives"
                )
            self.is_simple = self.is_simple and inner.is_simple
            self._branch_runs += inner.runs
        self.is_simple = self.is_simple and not is_quantified
        self._branch_runs += most > _ENDLESS

    def next_branch(self) -> None:
        """Ends an alternative."""
        self.runs = max(self.runs, self._branch_runs)
        self.ways += self._branch_ways
        self._branch_runs = 0
        self._branch_ways = 1
        self._branches += 1
        self.is_simple = self.is_simple and self._branches == 1


def _after_atom(pattern: str, position: int) -> int:
    """Returns the position after a character, an escape or a character class."""
    if pattern[position] == "\\":
        match = _ESCAPE.match(pattern, position)
        if match is None or match[0][1] in "gk123456789":
            raise _costly(pattern, "refers to a group")
        return match.end()
    if pattern[position] != "[":
        return position + 1
    depth = 0
    while position < len(pattern):
        char = pattern[position]
        depth += (char == "[") - (char == "]")
        position += 2 if char == "\\" else 1
        if not depth:
            return position
    raise _costly(pattern, "has a class of characters without an end")


class _Quantifiers(NamedTuple):
    """The quantifiers of an atom.

    Attributes:
        position: position after them.
        most: maximum number of occurrences.
        choices: number of possible numbers of occurrences; 1 if unbounded.
    """

    position: int
    most: int
    choices: int


def _after_quantifiers(pattern: str, position: int) -> _Quantifiers:
    most = choices = 1
    while match := _QUANTIFIER.match(pattern, position):
        if match[0] in ("*", "+") and most == 1:
            most = _ENDLESS + 1
        elif match[0].startswith("{"):
            low, comma, high = match.groups()
            if comma:
                limit = high or str(_ENDLESS + 1)
            else:
                limit = low
            if len(limit) < 9:
                most *= int(limit or 1)
            else:
                most *= _ENDLESS + 1
            if comma and most <= _ENDLESS:
                choices *= max(1, most - int(low or 0) + 1)
        else:  # optional, or lazy after another quantifier
            choices *= 2
        position = match.end()
    if most > _ENDLESS:
        choices = 1
    return _Quantifiers(position, most, choices)


def _costly(pattern: str, reason: str) -> ValueError:
    return ValueError(
        f"the pattern {shortened(pattern)} {reason}, which may take very long"
    )
