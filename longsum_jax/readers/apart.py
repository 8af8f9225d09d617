"""Protects literal and escaped characters while layout marks are removed."""

# first of the private-use characters that temporarily replace ASCII
_FIRST = 0xF0000
_APART = {code: _FIRST + code for code in range(0x21, 0x7F)}
_BACK = {private: code for code, private in _APART.items()}


def set_apart(text: str) -> str:
    """Replaces the ASCII characters of a text, so that none of them is parsed as markup."""
    return text.translate(_APART)


def put_back(text: str) -> str:
    """Returns a text with the original characters restored."""
    if text.isascii():
        return text
    return text.translate(_BACK)
