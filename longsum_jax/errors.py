"""The one exception for bad input, and the sentence that suggests what was meant."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something the user gave does not fit; commands print its one sentence and exit with code
    2."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns ``did you mean "x"? known: a, b, c`` for an unknown ``name``."""
    known = sorted(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    guess = f'did you mean "{close[0]}"? ' if close else ""
    return f"{guess}known: {', '.join(known)}"
