"""Captions and footnote marks of a page, which interrupt its sentences."""

import re
from typing import Any

from longsum_jax.readers.html_tree import (
    letters,
    outermost,
    remove,
    text_length,
)

_CAPTIONS = "figcaption, caption"
_CAPTION_NAME = re.compile(
    r"(?:[a-z]+[-_])?(?:fig|figure|image|img|table|thumb)?caption(?:[-_]?text)?"
)
_LONGEST_CAPTION = 1000  # characters of an element with the class of a caption
_NOTE_MARKS = 'sup.reference, [role="doc-noteref"], [epub\\:type~="noteref"]'
_NOTE_NUMBER = re.compile(r"\[\d{1,3}\]|\d{1,3}")
_SENTENCE_ENDS = (".", "!", "?", ".”", '."')


def drop_captions(root: Any) -> int:
    """Removes captions of pictures and tables; returns the number of captions with text."""
    named = [
        node
        for node in root.css("p[class], div[class]")
        if _is_named_caption(node)
    ]
    captions = outermost([*root.css(_CAPTIONS), *named])
    count = sum(text_length(node) > 0 for node in captions)
    for node in captions:
        node.decompose()
    return count


def _is_named_caption(node: Any) -> bool:
    names = (node.attributes.get("class") or "").casefold().split()
    is_caption = any(map(_CAPTION_NAME.fullmatch, names))
    return (
        is_caption
        and len(node.text()) <= _LONGEST_CAPTION
        and not node.css("h1, h2, h3")
    )


def drop_note_marks(root: Any) -> None:
    """Removes footnote numbers, which would look like parts of the preceding words."""
    remove(root.css(_NOTE_MARKS))
    for node in outermost(root.css("sup")):
        if _is_note_mark(node):
            node.decompose()


def _is_note_mark(raised: Any) -> bool:
    """Returns True if raised text is a footnote mark: it consists of links to
    anchors, is the only content of such a link, or is a number after the end of
    a sentence.
    """
    if _NOTE_NUMBER.fullmatch(raised.text().strip()) and _ends_sentence(
        raised.prev
    ):
        return True
    around = raised.parent
    is_alone = raised.prev is None and raised.next is None
    if (
        is_alone
        and around.tag == "a"
        and "#" in (around.attributes.get("href") or "")
    ):
        return True
    links = raised.css('a[href*="#"]')
    linked = "".join(link.text() for link in links)
    return len(links) > 0 and letters(linked) == letters(raised.text())


def _ends_sentence(before: Any) -> bool:
    """Returns True if the text before an element ends with sentence punctuation."""
    return before is not None and before.text().rstrip().endswith(
        _SENTENCE_ENDS
    )
