"""Characters of literals and escaped ones are set apart while marks of layout are removed."""

_FIRST = 0xF0000  # of the private characters that stand for those of ASCII meanwhile
_APART = {code: _FIRST + code for code in range(0x21, 0x7F)}
_BACK = {private: code for code, private in _APART.items()}


def set_apart(text: str) -> str:
    """Returns a text of which no character is a mark."""
    return text.translate(_APART)


def put_back(text: str) -> str:
    """Returns a text with the characters that were set apart."""
    return text if text.isascii() else text.translate(_BACK)
