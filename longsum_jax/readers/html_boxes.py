"""Boxes of a page outside its text: known by the names of elements or by headings."""

import re
from collections import Counter
from typing import Any

from longsum_jax.readers.box_names import (
    COMMENT_WORDS,
    LIST_WORDS,
    WINDOW_WORDS,
    BoxHeading,
    box_words,
    heading_of_box,
    name_space,
)
from longsum_jax.readers.html_links import FEWEST_LINKS
from longsum_jax.readers.html_tree import (
    HEADING_TAGS,
    HEADINGS,
    MOST_OF_PAGE,
    ancestors,
    letters,
    outermost,
    remove,
    sibling,
    text_length,
)

# Attributes other than class and id that name the parts of a page.
_DATA_NAMES = "testid test component hook module name role qa block area region zone gu-name"
NAME_ATTRIBUTES = (
    "aria-label",
    *(f"data-{name}" for name in _DATA_NAMES.split()),
)
_NEVER_BY_NAME = HEADING_TAGS | {
    "html",
    "body",
    "main",
    "article",
    "td",
    "th",
    "tr",
    "tbody",
}
_BY_NAME = ", ".join(f"[{name}]" for name in ("class", "id", *NAME_ATTRIBUTES))
_FEWEST_IN_NAMESPACE = 5  # class names of a page that begin with the same word
_OWN_TAG = re.compile(r"<([a-z]+(?:-[a-z]+)+)\b", re.IGNORECASE)
_PAGE_HEADERS = "#header, #site-header, #page-header, #top-bar, #topbar"
# unlinked characters of a text part with a menu's name
_LEAST_TEXT_OF_MENU = 200
_REVIEW = re.compile("review", re.IGNORECASE)
_POST = re.compile(r"post|message|comment|mail", re.IGNORECASE)
_HEADING_LIKE = (
    f'{HEADINGS}, [class*="title"], [class*="heading"], strong, b, th, legend'
)
_LONGEST_HEADING = 200  # characters of a heading of a box
LONGEST_REQUEST = 600  # characters of a box with a request to users
# maximum characters per link in a box of links to other pages
_LONGEST_LINK = 150
# minimum share of linked characters below "Related articles"
_LINK_SHARE_OF_BOX = 0.25
_MOST_SIBLINGS = 50  # maximum elements after a heading that form a box with it


def box_tags(text: str) -> str:
    """Returns a CSS selector of custom elements whose tags name boxes; "" if there are none.

    Such tags are "amp-ad" and "share-button".

    Args:
        text: HTML of a page.
    """
    tags = {tag.lower() for tag in _OWN_TAG.findall(text)}
    return ", ".join(sorted(filter(_is_box_tag, tags)))


def _is_box_tag(tag: str) -> bool:
    """Returns True if the tag of a custom element names a box, with or without its prefix."""
    return bool(box_words(tag) or box_words(tag.partition("-")[2]))


def drop_by_name(root: Any, box_tags: str, panels: set[str | None]) -> None:
    """Removes elements whose tag, class, id or label names a box outside the text.

    Args:
        root: root of the text.
        box_tags: CSS selector of custom elements that are boxes, or "".
        panels: ids of elements that a control of the page shows and hides.
    """
    most = MOST_OF_PAGE * text_length(root)
    named = root.css(_BY_NAME)
    namespaces = _namespaces(named)
    boxes = root.css(box_tags) if box_tags else []
    for node in root.css(_PAGE_HEADERS):
        if not _has_title(node):
            boxes.append(node)
    comments = []
    for node in named:
        words = _box_words(node, namespaces)
        if words and words <= COMMENT_WORDS:
            if not _is_below(node, _REVIEW):
                comments.append(node)
        elif words == {"signature"}:
            # Functions have signatures as well.
            if _is_below(node, _POST):
                boxes.append(node)
        elif words and not _is_text(node, words, panels):
            boxes.append(node)
    # In a forum or on a page of reviews, the comments are the text.
    if sum(map(text_length, outermost(comments))) <= most:
        boxes += comments
    for node in outermost(boxes):
        if text_length(node) <= most:
            node.decompose()


def _is_text(node: Any, words: set[str], panels: set[str | None]) -> bool:
    """Returns True for parts of the text whose names resemble menus or dialogues."""
    if words <= WINDOW_WORDS:
        return node.attributes.get("id") in panels
    if not words <= LIST_WORDS:
        return False
    linked = sum(map(text_length, node.css("a[href]")))
    return text_length(node) - linked > max(linked, _LEAST_TEXT_OF_MENU)


def _box_words(node: Any, namespaces: frozenset[str]) -> set[str]:
    """Returns the words in the names of an element that identify a box outside the text.

    Args:
        node: element.
        namespaces: words that begin many class names of the page.
    """
    if node.tag in _NEVER_BY_NAME:
        return set()
    words: set[str] = set()
    for key, value in node.attributes.items():
        if not value:
            continue
        if key == "class":
            for name in value.split():
                words |= box_words(name, namespaces)
        elif key in NAME_ATTRIBUTES:
            words |= box_words(value, namespaces)
        elif key == "id":
            id_words = box_words(value, namespaces)
            if id_words and not _is_named_by_heading(node, value):
                words |= id_words
    return words


def _is_named_by_heading(node: Any, name: str) -> bool:
    """Returns True if the id of an element is derived from its first heading, as in reports."""
    heading = node.css_first(HEADINGS)
    if heading is None:
        return False
    words = letters(heading.text()).lower()
    return letters(name).lower() in (words, words.lstrip("0123456789"))


def _namespaces(named: list[Any]) -> frozenset[str]:
    """Returns words that begin many class names of a page: prefixes of a program."""
    names: set[str] = set()
    for node in named:
        names.update((node.attributes.get("class") or "").split())
    counts = Counter(filter(None, map(name_space, names)))
    return frozenset(
        word for word, count in counts.items() if count >= _FEWEST_IN_NAMESPACE
    )


def _is_below(node: Any, name: re.Pattern[str]) -> bool:
    """Returns True if the class or id of an element or an ancestor matches."""
    while node is not None and node.is_element_node:
        attributes = node.attributes
        if name.search(f"{attributes.get('class')} {attributes.get('id')}"):
            return True
        node = node.parent
    return False


def drop_by_heading(root: Any) -> None:
    """Removes boxes with headings such as "Related articles", "Comments" or "Subscribe"."""
    total = text_length(root)
    boxes = []
    for heading in root.css(_HEADING_LIKE):
        text = heading.text()
        kind = None
        if len(text) <= _LONGEST_HEADING:
            kind = heading_of_box(text)
        if kind is not None:
            boxes += _box_of(heading, kind, root, total)
    remove(boxes)


def _box_of(heading: Any, kind: BoxHeading, root: Any, total: int) -> list[Any]:
    """Returns the nodes of the box that a heading introduces; [] for a heading of the text."""
    most = MOST_OF_PAGE * total
    if kind is BoxHeading.REQUEST:
        most = min(most, LONGEST_REQUEST)

    def is_box(nodes: list[Any]) -> bool:
        length = sum(map(text_length, nodes))
        if length > most or any(_has_title(node) for node in nodes):
            return False
        if kind is BoxHeading.COMMENTS:
            return any(map(_has_repeated_parts, nodes))
        if kind is not BoxHeading.LINKS:
            return True
        links = [link for node in nodes for link in node.css("a[href]")]
        if len(links) >= FEWEST_LINKS and length <= _LONGEST_LINK * len(links):
            return True
        linked = sum(map(text_length, links))
        return linked >= _LINK_SHARE_OF_BOX * max(
            1, length - text_length(heading)
        )

    result: list[Any] = []
    # Bold words after other text are not headings.
    if heading.tag not in HEADING_TAGS and _text_before(heading):
        return result
    for first in (heading, *ancestors(heading, root)):
        if first.tag in _NEVER_BY_NAME and first.tag not in HEADING_TAGS:
            break
        if first.mem_id != heading.mem_id and is_box([first]):
            result = [first]
        elif text_length(first) > most:
            break
        if not result:
            # The box may have no separate element: a heading and its
            # following siblings.
            flat = _until_heading(first, heading)
            if len(flat) > 1 and is_box(flat):
                result = flat
        if _text_before(first):
            break
    return result


def _until_heading(first: Any, heading: Any) -> list[Any]:
    """Returns an element and its siblings up to the next heading."""
    is_marked = heading.tag in HEADING_TAGS
    nodes = [first]
    node = first.next
    while node is not None:
        if node.is_element_node:
            is_heading = node.tag in HEADING_TAGS
            if is_heading or (
                is_marked and node.css_first(HEADINGS) is not None
            ):
                break
            nodes.append(node)
        if len(nodes) > _MOST_SIBLINGS:
            return []
        node = node.next
    return nodes


def _has_title(node: Any) -> bool:
    """Returns True if an element is or contains the title of the page."""
    return node.tag == "h1" or node.css_first("h1") is not None


def _has_repeated_parts(box: Any) -> bool:
    """Returns True if an element contains consecutive parts with the same tag and class."""
    for node in box.css("li, article, div, section, details"):
        following = sibling(node, "next")
        if following is None or following.tag != node.tag:
            continue
        if following.attributes.get("class") == node.attributes.get("class"):
            return True
    return box.css_first("li, article, .comment") is not None


def _text_before(node: Any) -> bool:
    """Returns True if there is text before an element within its parent."""
    before = node.prev
    while before is not None:
        if (
            before.text()
            if before.is_element_node
            else before.text_content or ""
        ).strip():
            return True
        before = before.prev
    return False
