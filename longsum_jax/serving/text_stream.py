"""Sends the text of a summary in parts while it is decoded."""

from collections.abc import Callable

# The last characters of a text without spaces that later tokens may change: a
# character cut in the middle has at most three bytes, each decoded separately.
_MAX_HELD = 16


def stable_prefix(text: str) -> str:
    """Returns the beginning of a decoded text that later tokens do not change.

    The last word is withheld: later tokens may continue a character that is cut
    in the middle, and tokenizers remove spaces before punctuation. Of a long
    text without spaces, such as Chinese, the last characters are withheld.
    """
    end = max(len(text) - _MAX_HELD, 0)
    start = max(end, len(text.rstrip()) - 1)
    for index in range(start, end, -1):
        if text[index].isspace():
            end = index
            break
    return text[:end].rstrip()


class TextStream:
    """Sends the parts of one summary; joined, they are its final text.

    Args:
        send: function that receives each part, and True if it is the summary of
            a segment.
    """

    def __init__(self, send: Callable[[str, bool], None]) -> None:
        self._send = send
        self._sent = ""

    def update(self, text: str) -> None:
        """Sends the new part of an unfinished text that is final.

        Args:
            text: decoded text so far. A shorter text than before, of a
                summary that is decoded again, sends nothing.
        """
        self._send_rest(stable_prefix(text), is_segment=False)

    def add_segment(self, text: str) -> None:
        """Sends the summary of the next segment; segments are joined by spaces."""
        if text:
            if self._sent:
                joined = f"{self._sent} {text}"
            else:
                joined = text
            self._send_rest(joined, is_segment=True)

    def finish(self, text: str) -> None:
        """Sends what is left of the final text.

        Raises:
            RuntimeError: the text does not begin with the parts that were sent.
        """
        if not text.startswith(self._sent):
            raise RuntimeError("the parts of a stream differ from the summary")
        self._send_rest(text, is_segment=False)

    def _send_rest(self, text: str, *, is_segment: bool) -> None:
        if len(text) <= len(self._sent):
            return
        part = text[len(self._sent) :]
        self._sent += part
        self._send(part, is_segment)
