"""Menus and rows of cards of a page: parts that consist of links to other pages."""

import re
from typing import Any

from longsum_jax.readers.html_tree import (
    HEADING_TAGS,
    MOST_OF_PAGE,
    ancestors,
    remove,
    text_length,
    walk,
)

# minimum share of linked characters in a list that is a menu
_LINK_SHARE = 0.75
FEWEST_LINKS = 3  # links of a menu
_MENU_ELEMENTS = (
    "ul, ol, dl, table, div, section, p, center, tr, small, span, td, font"
)
_LIST_TAGS = frozenset({"ul", "ol", "dl", "table"})
_PARTS_OF_LISTS = HEADING_TAGS | {"li", "td", "th", "dt", "dd"}
_LONGEST_CARD = 300  # characters of a headline and its teaser
_SHORTEST_HEADLINE = 15  # characters
_COPYRIGHT = re.compile(
    r"(?:©|\(c\)|copyright) ?\d{4}|all rights reserved", re.IGNORECASE
)


def drop_links(root: Any) -> None:
    """Removes menus: blocks and lists that consist of links."""
    counts = _count_links(root)
    total, total_linked, _ = counts[root.mem_id]
    # On pages that mostly consist of links, only lists are removed.
    is_overview = total_linked > MOST_OF_PAGE * total
    has_copyright = _COPYRIGHT.search(root.text()) is not None
    nodes = []
    for node in root.css(_MENU_ELEMENTS):
        length, linked, num_links = counts[node.mem_id]
        is_list = node.tag in _LIST_TAGS
        tags = (node.tag, node.parent.tag)
        if node.mem_id == root.mem_id or (is_overview and not is_list):
            continue
        if num_links >= FEWEST_LINKS and linked >= _LINK_SHARE * max(1, length):
            is_menu = is_list or length <= MOST_OF_PAGE * total
        elif length > _LONGEST_CARD or not _PARTS_OF_LISTS.isdisjoint(tags):
            continue
        elif 0 < linked == length and node.tag not in ("span", *_LIST_TAGS):
            is_menu = _leads_away(node)
        else:
            is_menu = (
                has_copyright and _COPYRIGHT.search(node.text()) is not None
            )
        if is_menu and (is_list or node.css_first("pre, code") is None):
            nodes.append(node)
    remove(nodes)


def drop_cards(root: Any) -> None:
    """Removes rows of cards: headlines that link to other pages, with teasers."""
    groups: dict[int, list[Any]] = {}
    for heading in root.css("h2, h3, h4, h5"):
        link = heading.css_first("a[href]")
        headline = heading.text().strip()
        if (
            link is None
            or len(headline) < _SHORTEST_HEADLINE
            or not _leads_away(heading)
        ):
            continue
        if link.text().strip() != headline:
            continue
        card = heading
        for parent in ancestors(heading, root):
            if (
                text_length(parent) > _LONGEST_CARD
                or len(parent.css("h2, h3, h4, h5")) > 1
            ):
                break
            card = parent
        groups.setdefault(card.parent.mem_id, []).append(card)
    cards = [
        card for group in groups.values() if len(group) > 1 for card in group
    ]
    # On an overview page, the cards are the text.
    if sum(map(text_length, cards)) <= MOST_OF_PAGE * text_length(root):
        remove(cards)


def _leads_away(node: Any) -> bool:
    """Returns True if no link of an element targets a position on the same page."""
    targets = [link.attributes["href"] or "" for link in node.css("a[href]")]
    return not any(
        target.startswith("#") and len(target) > 1 for target in targets
    )


def _count_links(root: Any) -> dict[int, tuple[int, int, int]]:
    """Returns the number of characters, linked characters and links of each element.

    White space is not counted.
    """
    counts: dict[int, tuple[int, int, int]] = {}
    starts: list[tuple[int, int, int]] = []
    length = linked = num_links = 0
    in_link = 0
    for node, is_start in walk(root):
        if not node.is_element_node:
            if node.is_text_node:
                size = len("".join((node.text_content or "").split()))
                length += size
                linked += size if in_link else 0
            continue
        is_link = node.tag == "a" and "href" in node.attributes
        if is_start:
            starts.append((length, linked, num_links))
            in_link += is_link
            num_links += is_link
        else:
            in_link -= is_link
            before = starts.pop()
            counts[node.mem_id] = (
                length - before[0],
                linked - before[1],
                num_links - before[2],
            )
    return counts
