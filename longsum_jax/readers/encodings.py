"""Finds the encoding of a text: a byte order mark, what the file declares, UTF-8, else a guess."""

import codecs
import re
from typing import Any, NamedTuple

from longsum_jax.errors import InputError
from longsum_jax.extra import import_extra

# UTF-32 first: its mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Encodings of Windows that have characters where these have control characters.
_WIDER = {"iso8859-1": "cp1252", "iso8859-9": "cp1254"}
_WINDOWS_BYTES = re.compile(rb"[\x80-\x9f]")
_SAMPLE = 2**18  # bytes that a guess is made of
# Windows-1252 is by far the most frequent of the encodings that resemble one another: it is taken
# unless another one fits better by this much, and where there is too little to tell.
_COMMON = "cp1252"
_MARGIN = 0.03
# So many characters in UTF-8 for each that is damaged do not come about in another encoding.
_GOOD_PER_BAD = 10
_FEW_BYTES = 4
# Share of strange characters that a text may have, at the first and at the second attempt.
_CHAOS = 0.2
_MORE_CHAOS = 0.5
# Where ASCII makes so much of the words with other letters in them, these are Latin.
_LATIN = ["cp1252", "cp1250", "cp1254", "cp1257", "iso8859_2", "iso8859_9"]
_LATIN_SHARE = 0.5


class Decoded(NamedTuple):
    """A text, its encoding where that was guessed, and characters that are damaged in UTF-8."""

    text: str
    guess: str | None = None
    num_damaged: int = 0


def decode(content: bytes, name: str, declared: str | None = None) -> Decoded:
    """Returns the text of a file.

    Args:
        content: of the file.
        name: of the file, for errors.
        declared: encoding that the file names; disregarded where it does not fit.

    Raises:
        InputError: bytes that are no text, or text in no known encoding.
    """
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return Decoded(_strictly(content[len(mark) :], encoding, name))
    # What could be read so far is not in UTF-16, whatever it says.
    if declared is not None and not declared.casefold().startswith(("utf-16", "utf-32")):
        found = _fitting(content, _as_browsers_read(declared, content))
        if found is None:
            found = _fitting(content, declared)
        if found is not None:
            return Decoded(found)
    wide = _wide_encoding(content)
    if wide is not None:
        return Decoded(_strictly(content, wide, name), wide)
    if b"\0" in content:
        raise InputError(
            f"{name}: NUL byte at position {content.index(0)}; give text, not a binary file"
        )
    found = _fitting(content, "utf-8")
    if found is not None:
        return Decoded(found)
    damaged = _damaged_utf8(content)
    if damaged is not None:
        return damaged
    guess = _guess(content, name)
    return Decoded(_strictly(content, guess, name), guess)


def _as_browsers_read(declared: str, content: bytes) -> str:
    """Returns the encoding that is meant where a file says Latin-1 and has quotes of Windows."""
    try:
        wider = _WIDER.get(codecs.lookup(declared).name)
    except (LookupError, ValueError):
        return declared
    return wider if wider is not None and _WINDOWS_BYTES.search(content) else declared


def _strictly(content: bytes, encoding: str, name: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        byte = f"0x{content[error.start]:02x} at position {error.start}"
        raise InputError(
            f"{name}: byte {byte} is not {encoding.upper()}; convert the file to UTF-8"
        ) from None


def _fitting(content: bytes, encoding: str) -> str | None:
    """Returns the text in this encoding; None where it does not fit or is unknown."""
    try:
        text = content.decode(encoding)
    except (LookupError, ValueError):
        return None
    return None if "\0" in text else text


def _damaged_utf8(content: bytes) -> Decoded | None:
    """Returns the text in UTF-8 with a mark for each damaged character; None if these are many."""
    text = content.decode("utf-8", errors="replace")
    num_damaged = text.count("\ufffd")
    num_others = len(text) - len(text.encode("ascii", errors="ignore"))
    is_utf8 = num_others - num_damaged >= _GOOD_PER_BAD * num_damaged
    return Decoded(text, num_damaged=num_damaged) if is_utf8 else None


def _wide_encoding(content: bytes) -> str | None:
    """Returns UTF-16 where, without a mark, half of the bytes are NULs as in most of its texts."""
    sample = content[: _SAMPLE & ~1]
    if len(sample) < 8 or len(content) % 2:
        return None
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    many, few = len(sample) // 4, len(sample) // 64
    if odd > many and even <= few:
        return "utf-16-le"
    if even > many and odd <= few:
        return "utf-16-be"
    return None


def _guess(content: bytes, name: str) -> str:
    charset_normalizer = import_extra("charset_normalizer", name, "text that is not UTF-8")
    start = next(i for i, byte in enumerate(content) if byte > 127)
    sample = content[max(0, start - _SAMPLE // 4) :][:_SAMPLE]
    words = b"".join(word for word in sample.split() if not word.isascii())
    num_ascii = sum(byte < 128 for byte in words)
    is_latin = num_ascii >= _LATIN_SHARE * len(words)
    if len(words) - num_ascii < _FEW_BYTES and _fitting(content, _COMMON) is not None:
        return _COMMON
    fitting: list[Any] = []
    for isolation, threshold in ((_LATIN if is_latin else None, _CHAOS), (None, _MORE_CHAOS)):
        matches = charset_normalizer.from_bytes(
            sample,
            threshold=threshold,
            cp_isolation=isolation,
            cp_exclusion=["utf_16_le", "utf_16_be"],
        )
        # A guess from the sample may fail further on.
        fitting = [match for match in matches if _fitting(content, match.encoding) is not None]
        if fitting:
            break
    if not fitting:
        raise InputError(
            f"{name}: byte 0x{content[start]:02x} at position {start} is not UTF-8, and no other "
            "encoding fits; convert the file to UTF-8"
        )
    best = fitting[0]
    for match in fitting:
        plausible = match.chaos <= best.chaos + _MARGIN
        if match.encoding == _COMMON and plausible and match.coherence >= best.coherence - _MARGIN:
            return _COMMON
    return best.encoding
