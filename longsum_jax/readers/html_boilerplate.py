"""The surroundings of a page's text: the order in which they are removed, and the simpler steps."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from longsum_jax.readers.box_names import BODY_NAME, NOTE_NAME
from longsum_jax.readers.html_boxes import (
    LONGEST_REQUEST,
    NAME_ATTRIBUTES,
    drop_by_heading,
    drop_by_name,
)
from longsum_jax.readers.html_links import drop_cards, drop_links
from longsum_jax.readers.html_marks import drop_captions, drop_note_marks
from longsum_jax.readers.html_tree import (
    HEADING_TAGS,
    MOST_OF_PAGE,
    ancestors,
    letters,
    outermost,
    remove,
    text_length,
)

_BOILERPLATE = (
    "nav, footer, dialog, menu, "
    '[role="navigation"], [role="banner"], [role="contentinfo"], [role="search"], '
    '[role="complementary"], [role="dialog"], [role="alertdialog"], [role="menu"], '
    '[role="menubar"], [role="toolbar"], [role="status"], del, '
    ".mw-editsection, a.headerlink, rp, rt"
)
HIDDEN = (
    '[aria-hidden="true"], [hidden], '
    '[style*="display:none" i], [style*="display: none" i]'
)
# Text fields of a form, and all of its controls.
_TEXT_FIELDS = (
    'input:not([type]), input[type="text"], input[type="email"], input[type="password"], '
    'input[type="search"], input[type="tel"], input[type="url"]'
)
_CONTROLS = 'input:not([type="hidden"]), button, label'
_FEWEST_PARAGRAPHS = 3  # paragraphs of a form that belongs to the text
_PERMALINKS = ("#", "¶", "§", "🔗")
_LEAST_MAIN = 0.3  # share of a page's text in <main> if the rest is boilerplate
_ASKING = 'input[type="email"], input[type="password"], button'
_CONSENT_BUTTON = re.compile(
    r"(?:yes,? )?(?:i )?(?:accept|agree|allow|reject|decline|got it|ok|okay|understood)\b.{0,30}",
    re.IGNORECASE,
)
_MOST_OF_DIALOGUE = 0.2  # share of a page's text
_SIGNATURE = re.compile(r"_{8,}|-{12,}")
_LONGEST_SIGNATURE = 300  # characters
_SHORTEST_TITLE = 15  # characters
_MOST_BEFORE_TITLE = 0.25  # share of a page's text
# Minimum ratio of the characters of a main column to a narrow one.
_LEAST_RATIO_OF_COLUMNS = 3
_SHORTEST_COLUMN = 300  # characters of a main column
_LEAST_OF_BODY = 0.7  # minimum share of a page's text in the article element
_MOST_LEVELS = 100  # maximum nesting levels searched for the article


def drop_boilerplate(
    root: Any, title: str | None, box_tags: str, check_time: Callable[[], None]
) -> Any:
    """Removes the surroundings of a page's text; returns the root of the text.

    The order matters: elements with a telling tag or role go first, so that fewer
    are left for the rules that guess by names, headings, links and lengths.

    Args:
        root: body of the page.
        title: title in the page's head, or None.
        box_tags: CSS selector of custom elements that are boxes, or "".
        check_time: function that raises if reading takes too long.
    """
    main = _main(root)
    root = root if main is None else main
    controls = root.css("[aria-controls]:not(input)")
    panels = {control.attributes.get("aria-controls") for control in controls}
    panels.discard(None)
    _drop_dialogues(root)
    check_time()
    remove(root.css(_BOILERPLATE))
    _drop_forms(root)
    _drop_marked(root, panels, has_main=main is not None)
    drop_captions(root)
    drop_note_marks(root)
    headers = root.css("header")
    remove([node for node in headers if not node.css("h1, h2")])
    for link in root.css("a[href]"):
        if link.text().strip() in _PERMALINKS:
            link.decompose()
    check_time()
    drop_by_name(root, box_tags, panels)
    check_time()
    drop_by_heading(root)
    drop_cards(root)
    drop_links(root)
    check_time()
    _drop_columns(root)
    _drop_after_article(root)
    _drop_before_title(root, title)
    return root


def _main(root: Any) -> Any:
    """Returns the element that the page marks as its main content, or None."""
    least = _LEAST_MAIN * text_length(root)
    for selector in ("main", '[role="main"]', "article"):
        nodes = root.css(selector)
        if len(nodes) == 1 and text_length(nodes[0]) >= least:
            return nodes[0]
    return None


def _drop_dialogues(root: Any) -> None:
    """Removes boxes that ask for an address, a password or consent, including their text."""
    most = min(LONGEST_REQUEST, _MOST_OF_DIALOGUE * text_length(root))
    boxes = []
    for field in root.css(_ASKING):
        if field.tag != "input" and not _CONSENT_BUTTON.fullmatch(
            field.text().strip()
        ):
            continue
        box = None
        for parent in ancestors(field, root):
            if text_length(parent) > most or parent.css_first("h1") is not None:
                break
            box = parent
        # Consent is requested in sentences about cookies; other buttons
        # accept other things.
        if box is not None and (
            field.tag == "input" or "cookie" in box.text().lower()
        ):
            boxes.append(box)
    remove(boxes)


def _drop_forms(root: Any) -> None:
    """Removes buttons, and forms unless they contain the text, as on some forums."""
    most = MOST_OF_PAGE * text_length(root)
    forms = []
    for form in root.css("form"):
        paragraphs = form.css("p")
        is_text = len(paragraphs) >= _FEWEST_PARAGRAPHS and not form.css(
            _TEXT_FIELDS
        )
        if text_length(form) <= most and form.css(_CONTROLS) and not is_text:
            forms.append(form)
    for node in outermost([*forms, *root.css("button")]):
        if node.tag == "form" or not _is_in_heading(node):
            node.decompose()


def _is_in_heading(node: Any) -> bool:
    """Returns True if an element is part of a heading, as in accordions."""
    return node.parent is not None and node.parent.tag in HEADING_TAGS


def _drop_marked(root: Any, panels: set[str | None], *, has_main: bool) -> None:
    """Removes hidden elements, asides and alerts unless they belong to the text."""
    nodes = []
    for node in root.css(HIDDEN):
        is_panel = node.attributes.get("role") == "tabpanel"
        if not is_panel and node.attributes.get("id") not in panels:
            nodes.append(node)
    for node in root.css('[role="tablist"]'):
        if node.css_first('[role="tabpanel"]') is None:
            nodes.append(node)
    for node in root.css('aside, [role="alert"]'):
        names = (
            node.attributes.get("class"),
            node.attributes.get("aria-label"),
        )
        is_note = any(NOTE_NAME.fullmatch(name or "") for name in names)
        is_alert = node.tag != "aside" and has_main
        if not is_note and not is_alert:
            nodes.append(node)
    remove(nodes)


def _drop_columns(root: Any) -> None:
    """Removes narrow columns of layout tables, and signatures."""
    nodes = []
    longest: dict[int, int] = {}  # longest cell of each row, by row
    for cell in root.css("td[width]"):
        length = text_length(cell)
        if cell.css_first("div, br, table") is None:
            continue
        row = cell.parent
        if row.mem_id not in longest:
            longest[row.mem_id] = max(map(text_length, row.iter()))
        if longest[row.mem_id] >= max(
            _SHORTEST_COLUMN, _LEAST_RATIO_OF_COLUMNS * length
        ):
            nodes.append(cell)
    if _SIGNATURE.search(root.text()):
        for node in root.css("div, p, span"):
            if (
                _SIGNATURE.match(node.text().lstrip())
                and text_length(node) <= _LONGEST_SIGNATURE
            ):
                nodes.append(node)
    remove(nodes)


def _drop_after_article(root: Any) -> None:
    """Removes everything after the end of an article."""
    least = _LEAST_OF_BODY * text_length(root)
    names = Counter(map(_tag_and_class, root.css("article, div, section")))
    body = None
    node = root
    for _ in range(_MOST_LEVELS):
        node = next(
            (part for part in node.iter() if text_length(part) >= least),
            None,
        )
        if node is None:
            break
        # Several elements with the same name contain similar texts, such as
        # posts.
        if _is_body(node) and names[_tag_and_class(node)] <= 1:
            body = node
    if body is None:
        return
    node = body
    while node.mem_id != root.mem_id:
        while node.next is not None:
            node.next.decompose()
        node = node.parent


def _is_body(node: Any) -> bool:
    """Returns True if the tag or a name of an element marks an article."""
    if (
        node.tag == "article"
        or node.attributes.get("itemprop") == "articleBody"
    ):
        return True
    return node.tag in ("div", "section") and any(
        map(BODY_NAME.fullmatch, _names(node))
    )


def _names(node: Any) -> list[str]:
    """Returns the class names of an element and the values of its other name attributes."""
    attributes = node.attributes
    names = (attributes.get("class") or "").split()
    return [
        *names,
        *(
            attributes.get(key) or ""
            for key in ("id", "name", *NAME_ATTRIBUTES)
        ),
    ]


def _tag_and_class(node: Any) -> tuple[str, str | None]:
    """Returns the tag and the class of an element."""
    return node.tag, node.attributes.get("class")


def _drop_before_title(root: Any, title: str | None) -> None:
    """Removes everything before the title, unless it is long."""
    node = _find_title(root, title)
    if node is None:
        return
    before = []
    while node.mem_id != root.mem_id:
        sibling = node.prev
        while sibling is not None:
            before.append(sibling)
            sibling = sibling.prev
        node = node.parent
    if sum(map(text_length, before)) <= _MOST_BEFORE_TITLE * text_length(root):
        for node in before:
            node.decompose()


def _find_title(root: Any, title: str | None) -> Any:
    """Returns the heading that matches the page's title, or the only heading of level 1."""
    title_letters = letters(title or "")
    for selector in ("h1", "h2", 'h3, [class*="title"], b'):
        for node in root.css(selector):
            heading = letters(node.text())
            if len(heading) >= _SHORTEST_TITLE and heading in title_letters:
                return node
    headings = root.css("h1")
    return headings[0] if len(headings) == 1 else None
