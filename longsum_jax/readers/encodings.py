"""Detects the encoding of a text: byte order mark, declared encoding, UTF-8, or a guess."""

import codecs
import re
from typing import NamedTuple

from longsum_jax.errors import InputError
from longsum_jax.extra import import_extra

# UTF-32 first: its mark begins with the mark of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Windows encodings that define printable characters for the control characters
# of these encodings.
_WIDER = {"iso8859-1": "cp1252", "iso8859-9": "cp1254"}
_WINDOWS_BYTES = re.compile(rb"[\x80-\x9f]")
# Escape sequences that switch the character set in Japanese and Korean mail and
# news.
_SWITCHES = re.compile(rb"\x1b(?:\$[@B]|\$\([DOPQ]|\$\)C|\([IJ])")
_SWITCHING = ("iso2022_jp_ext", "iso2022_jp_2004", "iso2022_kr")
# Characters that occur in every longer text, and control characters that do not
# occur in text.
_COMMON_CHARACTERS = re.compile("[ \n.,;:!?\u3001\u3002\uff0c]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
_HIGH_CONTROLS = re.compile("[\x80-\x9f]")
_COMMON_SHARE = 0.02
_SAMPLE = 2**18  # largest number of bytes that a guess is based on
# Windows-1252 is by far the most frequent encoding in Latin script, and a few
# bytes fit many.
_COMMON = "cp1252"
_FEW_BYTES = 4
_WEAK = 0.1
_NOISE = 0.06  # confidence that random bytes in other scripts stay below
_CLOSE = 0.01
# Encodings that are still in use; chardet supports many more, which short texts
# resemble.
_ENCODINGS = (
    *(
        "cp1250",
        "cp1251",
        "cp1252",
        "cp1253",
        "cp1254",
        "cp1255",
        "cp1256",
        "cp1257",
        "cp1258",
    ),
    *("iso8859-2", "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8"),
    *(
        "iso8859-13",
        "iso8859-15",
        "koi8-r",
        "koi8-u",
        "mac-roman",
        "mac-latin2",
        "mac-cyrillic",
    ),
    *(
        "cp437",
        "cp850",
        "cp852",
        "cp866",
        "cp874",
        "cp932",
        "cp949",
        "euc_kr",
        "euc_jis_2004",
    ),
    *("gb18030", "big5hkscs"),
)
# In other encodings, so many valid UTF-8 characters per damaged one do not
# occur by chance.
_GOOD_PER_BAD = 10
# Words with non-ASCII letters are in Latin script if ASCII makes up this share
# of their bytes.
_LATIN_SHARE = 0.5


class Decoded(NamedTuple):
    """A decoded text and the reliability of its encoding.

    Attributes:
        text: decoded text.
        guess: name of a guessed encoding; None if a mark, a declaration or
            UTF-8 determined it.
        num_damaged: number of damaged UTF-8 characters.
        rival: encoding that fits equally well but gives another text; None if
            there is none.
    """

    text: str
    guess: str | None = None
    num_damaged: int = 0
    rival: str | None = None


def decode(content: bytes, name: str, declared: str | None = None) -> Decoded:
    """Returns the text of a file.

    Args:
        content: bytes of the file.
        name: name of the file, for errors.
        declared: encoding declared by the file; ignored if it does not fit.

    Raises:
        InputError: the bytes are not text, or the encoding is unknown.
    """
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return Decoded(
                _decode_strictly(content[len(mark) :], encoding, name)
            )
    # A declaration that was readable as ASCII cannot be in a UTF-16 file.
    if declared is not None and not declared.casefold().startswith(
        ("utf-16", "utf-32")
    ):
        for encoding in (_as_browsers_read(declared, content), declared):
            text = _decode_if_fitting(content, encoding)
            if text is not None:
                return Decoded(text)
    text = _decode_if_fitting(content, "utf-8")
    if text is not None and _SWITCHES.search(content) is None:
        return Decoded(text)
    guess = _switching_encoding(content) or _wide_encoding(content)
    if guess is not None:
        return Decoded(_decode_strictly(content, guess, name), guess)
    if text is not None:
        return Decoded(text)
    if b"\0" in content:
        raise InputError(
            f"{name}: NUL byte at position {content.index(0)}; give text, not a binary file"
        )
    damaged = _damaged_utf8(content)
    if damaged is not None:
        return damaged
    return _guess(content, name)


def _as_browsers_read(declared: str, content: bytes) -> str:
    """Returns the Windows encoding if a file declares Latin-1 but contains Windows quotes."""
    try:
        wider = _WIDER.get(codecs.lookup(declared).name)
    except (LookupError, ValueError):
        return declared
    if wider is not None and _WINDOWS_BYTES.search(content):
        return wider
    return declared


def _decode_strictly(content: bytes, encoding: str, name: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        byte = f"0x{content[error.start]:02x} at position {error.start}"
        raise InputError(
            f"{name}: byte {byte} is not {encoding.upper()}; convert the file to UTF-8"
        ) from None


def _decode_if_fitting(content: bytes, encoding: str) -> str | None:
    """Returns the text in this encoding; None if it does not fit or is unknown."""
    try:
        text = content.decode(encoding)
    except (LookupError, ValueError):
        return None
    return None if "\0" in text else text


def _damaged_utf8(content: bytes) -> Decoded | None:
    """Returns the text in UTF-8 with replacement characters; None if there are too many."""
    text = content.decode("utf-8", errors="replace")
    num_damaged = text.count("\ufffd")
    num_others = len(text) - len(text.encode("ascii", errors="ignore"))
    is_utf8 = num_others - num_damaged >= _GOOD_PER_BAD * num_damaged
    if is_utf8:
        return Decoded(text, num_damaged=num_damaged)
    return None


def _switching_encoding(content: bytes) -> str | None:
    """Returns the encoding of a text that switches character sets by escape sequences."""
    if _SWITCHES.search(content) is None:
        return None
    for encoding in _SWITCHING:
        text = _decode_if_fitting(content, encoding)
        if text is not None and "\x1b" not in text:
            return encoding
    return None


def _wide_encoding(content: bytes) -> str | None:
    """Returns UTF-16 in the byte order in which a text without a mark has spaces and stops."""
    if len(content) % 2:
        return None
    sample = content[:_SAMPLE]
    shares = {}
    for encoding in ("utf-16-le", "utf-16-be"):
        text = sample.decode(encoding, errors="replace")
        if _CONTROLS.search(text) is None and "\ufffd" not in text[:-1]:
            shares[encoding] = len(_COMMON_CHARACTERS.findall(text)) / max(
                len(text), 1
            )
    if not shares:
        return None
    best = max(shares, key=shares.__getitem__)
    return best if shares[best] >= _COMMON_SHARE else None


def _guess(content: bytes, name: str) -> Decoded:
    """Returns the text in the encoding whose letter pairs best match a language."""
    chardet = import_extra("chardet", name, "text that is not UTF-8")
    start = next(i for i, byte in enumerate(content) if byte > 127)
    sample = content[max(0, start - _SAMPLE // 4) :][:_SAMPLE]
    words = b"".join(word for word in sample.split() if not word.isascii())
    num_ascii = sum(byte < 128 for byte in words)
    is_latin = num_ascii >= _LATIN_SHARE * len(words)
    common = _decode_if_fitting(content, _COMMON)
    if common is not None and len(words) - num_ascii < _FEW_BYTES:
        return Decoded(common, _COMMON)
    guesses = chardet.detect_all(
        sample,
        max_bytes=_SAMPLE,
        compat_names=False,
        include_encodings=_ENCODINGS,
    )
    fitting: list[tuple[str, float, str]] = []
    for guess in guesses:  # the most probable one is first
        if fitting and guess["confidence"] < fitting[0][1] - _CLOSE:
            break
        # A guess from the sample may fail later, or decode quotes as control
        # characters.
        text = guess["encoding"] and _decode_if_fitting(
            content, guess["encoding"]
        )
        is_text = is_latin or guess["confidence"] >= _NOISE
        if text and is_text and _HIGH_CONTROLS.search(text) is None:
            fitting.append((guess["encoding"], guess["confidence"], text))
    if not fitting:
        raise InputError(
            f"{name}: byte 0x{content[start]:02x} at position {start} is not UTF-8, and no other "
            "encoding fits; convert the file to UTF-8"
        )
    encoding, confidence, text = fitting[0]
    if common is not None and is_latin and confidence < _WEAK:
        encoding, text = _COMMON, common
    rival = next(
        (other for other, _, other_text in fitting if other_text != text), None
    )
    return Decoded(text, encoding, rival=rival)
