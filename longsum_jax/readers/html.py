"""HTML as parsed by browsers, without the surroundings of an article: menus, banners, links."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from longsum_jax.errors import InputError
from longsum_jax.extra import import_extra
from longsum_jax.readers.box_names import (
    BODY_NAME,
    COMMENT_WORDS,
    LIST_WORDS,
    NOTE_NAME,
    WINDOW_WORDS,
    BoxHeading,
    box_words,
    heading_of_box,
    name_space,
)
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.source import Source

_NEVER_SHOWN = (
    "script, style, template, noscript, iframe, object, embed, svg, math annotation, canvas, "
    "audio, video, head, select, datalist, textarea"
)
_BOILERPLATE = (
    "nav, footer, dialog, menu, "
    '[role="navigation"], [role="banner"], [role="contentinfo"], [role="search"], '
    '[role="complementary"], [role="dialog"], [role="alertdialog"], [role="menu"], '
    '[role="menubar"], [role="toolbar"], [role="status"], del, '
    ".mw-editsection, a.headerlink, rp, rt"
)
_HIDDEN = '[aria-hidden="true"], [hidden], [style*="display:none"], [style*="display: none"]'
_HEADING_TAGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_HEADINGS = ", ".join(sorted(_HEADING_TAGS))
# Text fields of a form, and all of its controls.
_TEXT_FIELDS = (
    'input:not([type]), input[type="text"], input[type="email"], input[type="password"], '
    'input[type="search"], input[type="tel"], input[type="url"]'
)
_CONTROLS = 'input:not([type="hidden"]), button, label'
_FEWEST_PARAGRAPHS = 3  # paragraphs of a form that belongs to the text
_CAPTIONS = "figcaption, caption"
_CAPTION_NAME = re.compile(
    r"(?:[a-z]+[-_])?(?:fig|figure|image|img|table|thumb)?caption(?:[-_]?text)?"
)
_LONGEST_CAPTION = 1000  # characters of an element with the class of a caption
_NOTE_MARKS = 'sup.reference, [role="doc-noteref"], [epub\\:type~="noteref"]'
# Attributes other than class and id that name the parts of a page.
_DATA_NAMES = "testid test component hook module name role qa block area region zone gu-name"
_NAME_ATTRIBUTES = (
    "aria-label",
    *(f"data-{name}" for name in _DATA_NAMES.split()),
)
_NEVER_BY_NAME = _HEADING_TAGS | {
    "html",
    "body",
    "main",
    "article",
    "td",
    "th",
    "tr",
    "tbody",
}
_BY_NAME = ", ".join(f"[{name}]" for name in ("class", "id", *_NAME_ATTRIBUTES))
_FEWEST_IN_NAMESPACE = 5  # class names of a page that begin with the same word

_BLOCK = re.compile(
    r"address|article|aside|blockquote|body|caption|center|dd|details|dialog|div|dl|dt|fieldset|"
    r"figcaption|figure|footer|form|h[1-6]|header|hgroup|hr|html|li|main|nav|ol|p|pre|section|"
    r"summary|table|tbody|tfoot|thead|tr|ul"
)
_SPACES = re.compile(r"[ \t\n\r\f\xa0]+")

_META_CHARSET = re.compile(
    rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE
)
_XML_CHARSET = re.compile(rb"\A\s*<\?xml[^>]+encoding\s*=\s*[\"']([\w-]+)")
# In XHTML these may be self-closing; HTML would treat all following content as
# their children.
_SELF_CLOSED = re.compile(
    r"<(script|style|title|iframe|textarea|noscript|a|div|p|span|i|b)\b([^<>]*)/>",
    re.IGNORECASE,
)
_OWN_TAG = re.compile(r"<([a-z]+(?:-[a-z]+)+)\b", re.IGNORECASE)
# The time to build the tree is quadratic in the nesting depth of these
# elements.
_NESTED = re.compile(
    r"<(/?)(?:div|section|article|ul|ol|dl|blockquote|table|center|form|fieldset|details|main|"
    r"nav|aside|header|footer|figure|address|menu|pre|button|applet|marquee|object|select|"
    r"b|big|code|em|font|i|nobr|s|small|span|strike|strong|tt|u)\b",
    re.IGNORECASE,
)
_MAX_NESTED = 4000
# The time of lexbor is quadratic in the number of attributes of an element, and
# in the number of different names in a page.
_MAX_ATTRIBUTES = 500
_MAX_NAMES = 20_000
_NAME = r"[^\s/>=][^\s/>=]*+"
_VALUE = r"""(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?)?"""
_ATTRIBUTE = rf"[\s/]++{_NAME}{_VALUE}"
# A script or a style, or a tag (group 1) up to its last allowed attribute; group
# 2 is a further one. Nothing is read twice.
_TAG = re.compile(
    r"<(?:script|style)\b[^>]*+>.*?(?:</(?:script|style)|\Z)|"
    rf"(<[a-z][^\s/>]*+(?:{_ATTRIBUTE}){{0,{_MAX_ATTRIBUTES}}})({_ATTRIBUTE})?",
    re.IGNORECASE | re.DOTALL,
)
_NAMES = re.compile(rf"(?:<|[\s/]++)({_NAME}){_VALUE}")

_NOTE_NUMBER = re.compile(r"\[\d{1,3}\]|\d{1,3}")
_SENTENCE_ENDS = (".", "!", "?", ".”", '."')
_PERMALINKS = ("#", "¶", "§", "🔗")
_LEAST_MAIN = 0.3  # share of a page's text in <main> if the rest is boilerplate
# maximum share of a page's text removed because of a class name
_MOST_BY_NAME = 0.5
_LONGEST_CELL = 300  # characters of a cell whose paragraphs are one text
# minimum share of linked characters in a list that is a menu
_LINK_SHARE = 0.75
_FEWEST_LINKS = 3
_MENU_ELEMENTS = (
    "ul, ol, dl, table, div, section, p, center, tr, small, span, td, font"
)
_PAGE_HEADERS = "#header, #site-header, #page-header, #top-bar, #topbar"
_LIST_TAGS = frozenset({"ul", "ol", "dl", "table"})
_PARTS_OF_LISTS = _HEADING_TAGS | {"li", "td", "th", "dt", "dd"}
# minimum share of linked characters below "Related articles"
_LINK_SHARE_OF_BOX = 0.25
_HEADING_LIKE = (
    f'{_HEADINGS}, [class*="title"], [class*="heading"], strong, b, th, legend'
)
_LONGEST_CARD = 300  # characters of a headline and its teaser
# unlinked characters of a text part with a menu's name
_LEAST_TEXT_OF_MENU = 200
_LONGEST_HEADING = 200  # characters of a heading of a box
_MOST_SIBLINGS = 50  # maximum elements after a heading that form a box with it
_MOST_LEVELS = 100  # maximum nesting levels searched for the article
_MOST_ANCESTORS = 12  # maximum ancestors examined of a heading or field
# maximum characters per link in a box of links to other pages
_LONGEST_LINK = 150
_SHORTEST_HEADLINE = 15
_ASKING = 'input[type="email"], input[type="password"], button'
_CONSENT_BUTTON = re.compile(
    r"(?:yes,? )?(?:i )?(?:accept|agree|allow|reject|decline|got it|ok|okay|understood)\b.{0,30}",
    re.IGNORECASE,
)
_LONGEST_DIALOGUE = 600  # characters of a box with a request to users
_MOST_OF_DIALOGUE = 0.2  # share of a page's text
_COPYRIGHT = re.compile(
    r"(?:©|\(c\)|copyright) ?\d{4}|all rights reserved", re.IGNORECASE
)
_SIGNATURE = re.compile(r"_{8,}|-{12,}")
_REVIEW = re.compile("review", re.IGNORECASE)
_POST = re.compile(r"post|message|comment|mail", re.IGNORECASE)
_MOST_BEFORE_TITLE = 0.25  # share of a page's text
# minimum ratio of the characters of a main column to a narrow one
_LEAST_RATIO_OF_COLUMNS = 3
_LEAST_OF_BODY = 0.7  # minimum share of a page's text in the article element


def read(source: Source) -> Iterator[Document]:
    """Reads one page.

    Raises:
        InputError: the content is not HTML, or the page has no text.
    """
    yield page_document(source, declared_encoding(source.content))


def page_document(source: Source, declared: str | None) -> Document:
    """Returns the document of a page.

    Args:
        source: content of the page, as bytes.
        declared: encoding declared by the page or its message, or None.

    Raises:
        InputError: the content is not HTML, or the page has no text.
    """
    text, notes = source.decoded(declared)
    page = Page(text, source)
    title = page.title
    if not source.options.keep_all:
        notes += page.drop_boilerplate()
    blocks = page.blocks()
    if title is None:
        title = next((block.text for block in blocks if block.level == 1), None)
    return source.document(
        blocks, title=title, has_pictures=page.has_pictures, notes=notes
    )


def declared_encoding(content: bytes) -> str | None:
    """Returns the encoding that a page declares near its beginning; None if it declares none."""
    match = _META_CHARSET.search(content[:4096]) or _XML_CHARSET.search(
        content[:200]
    )
    return match.group(1).decode() if match else None


class Page:
    """The tree of a page.

    Args:
        text: HTML or XHTML.
        source: source of the page.

    Attributes:
        title: title in the page's head, or None.
        has_pictures: True if the page contains pictures.

    Raises:
        InputError: elements are nested too deeply.
    """

    def __init__(self, text: str, source: Source) -> None:
        lexbor = import_extra("selectolax.lexbor", source.name, "HTML")
        _check_nesting(text, source.name)
        _check_names(text, source.name)
        self._source = source
        is_xml = (
            text[:200].lstrip().startswith("<?xml") or "/xhtml" in text[:1000]
        )
        if is_xml:
            text = _SELF_CLOSED.sub(r"<\1\2></\1>", text)
        tree = lexbor.LexborHTMLParser(text)
        head_title = tree.css_first("title")
        if head_title:
            self.title = head_title.text().strip() or None
        else:
            self.title = None
        self.has_pictures = tree.css_first("img, image") is not None
        self._root = tree.body or tree.root
        if self._root is not None:
            _remove(self._root.css(_NEVER_SHOWN))
        # Custom elements whose tags name boxes, as in "amp-ad" and
        # "share-button".
        tags = {tag.lower() for tag in _OWN_TAG.findall(text)}
        self._box_tags = ", ".join(sorted(filter(_is_box_tag, tags)))
        self._tree = tree  # nodes are valid only as long as the tree

    def drop_boilerplate(self) -> list[str]:
        """Removes the surroundings of the text; returns notes with the number of characters."""
        if self._root is None:
            return []
        before = self._length(self._root)
        self._root = self._main(before)
        controls = self._root.css("[aria-controls]:not(input)")
        panels = {
            control.attributes.get("aria-controls") for control in controls
        }
        self._panels = panels - {None}
        self._drop_dialogues()
        self._source.check_time()
        _remove(self._root.css(_BOILERPLATE))
        self._drop_forms()
        self._drop_marked()
        self.drop_captions()
        self.drop_note_marks()
        _remove(
            [
                node
                for node in self._root.css("header")
                if not node.css("h1, h2")
            ]
        )
        for link in self._root.css("a[href]"):
            if link.text().strip() in _PERMALINKS:
                link.decompose()
        self._source.check_time()
        self._drop_by_name()
        self._source.check_time()
        self._drop_by_heading()
        self._drop_cards()
        self._drop_links()
        self._source.check_time()
        self._drop_columns()
        self._narrow()
        self._drop_before_title()
        dropped = before - self._length(self._root)
        if dropped > 0:
            return [f"boilerplate of {dropped:,} characters left out"]
        return []

    def has_adjacent_text(self, selector: str) -> bool:
        """Returns True if the page has elements of this selector, and text outside of them."""
        if self._root is None:
            return False
        inside = sum(map(self._length, _outermost(self._root.css(selector))))
        return 0 < inside < self._length(self._root)

    def drop(self, selector: str) -> tuple[int, int]:
        """Removes elements; returns the number of elements and of their characters."""
        if self._root is None:
            return 0, 0
        nodes = _outermost(self._root.css(selector))
        length = sum(map(self._length, nodes))
        for node in nodes:
            node.decompose()
        return len(nodes), length

    def replace_quotations(self, selector: str, boxes: str, mark: str) -> int:
        """Replaces quotations with a line that contains a mark; returns their character count.

        Args:
            selector: CSS selector of quotations.
            boxes: CSS selector of elements that are quotations if they contain
                no ``blockquote``.
            mark: content of the new line.
        """
        if self._root is None:
            return 0
        whole = [
            node
            for node in self._root.css(boxes)
            if node.css_first("blockquote") is None
        ]
        nodes = _outermost([*self._root.css(selector), *whole])
        length = sum(map(self._length, nodes))
        for node in nodes:
            node.replace_with(f"\v{mark}\v")  # see _block_text
        return length

    def drop_captions(self) -> int:
        """Removes captions of pictures and tables; returns the number of captions with text."""
        if self._root is None:
            return 0
        named = [
            node
            for node in self._root.css("p[class], div[class]")
            if _is_named_caption(node)
        ]
        captions = _outermost([*self._root.css(_CAPTIONS), *named])
        count = sum(self._length(node) > 0 for node in captions)
        for node in captions:
            node.decompose()
        return count

    def drop_note_marks(self) -> None:
        """Removes footnote numbers, which would look like parts of the preceding words."""
        if self._root is None:
            return
        _remove(self._root.css(_NOTE_MARKS))
        for node in _outermost(self._root.css("sup")):
            if _is_note_mark(node):
                node.decompose()

    def blocks(self) -> list[Block]:
        """Returns headings and paragraphs."""
        if self._root is not None:
            return list(_blocks(self._root))
        return []

    def _main(self, length: int) -> Any:
        """Returns the element that the page marks as its main content, or the root."""
        self._has_main = True
        for selector in ("main", '[role="main"]', "article"):
            nodes = self._root.css(selector)
            if (
                len(nodes) == 1
                and self._length(nodes[0]) >= _LEAST_MAIN * length
            ):
                return nodes[0]
        self._has_main = False
        return self._root

    def _drop_dialogues(self) -> None:
        """Removes boxes that ask for an address, a password or consent, including their text."""
        most = min(
            _LONGEST_DIALOGUE, _MOST_OF_DIALOGUE * self._length(self._root)
        )
        boxes = []
        for field in self._root.css(_ASKING):
            if field.tag != "input" and not _CONSENT_BUTTON.fullmatch(
                field.text().strip()
            ):
                continue
            box = None
            for parent in self._ancestors(field):
                if (
                    self._length(parent) > most
                    or parent.css_first("h1") is not None
                ):
                    break
                box = parent
            # Consent is requested in sentences about cookies; other buttons
            # accept other things.
            if box is not None and (
                field.tag == "input" or "cookie" in box.text().lower()
            ):
                boxes.append(box)
        _remove(boxes)

    def _drop_forms(self) -> None:
        """Removes buttons, and forms unless they contain the text, as on some forums."""
        most = _MOST_BY_NAME * self._length(self._root)
        forms = []
        for form in self._root.css("form"):
            paragraphs = form.css("p")
            is_text = len(paragraphs) >= _FEWEST_PARAGRAPHS and not form.css(
                _TEXT_FIELDS
            )
            if (
                self._length(form) <= most
                and form.css(_CONTROLS)
                and not is_text
            ):
                forms.append(form)
        for node in _outermost([*forms, *self._root.css("button")]):
            if node.tag == "form" or not _is_in_heading(node):
                node.decompose()

    def _drop_marked(self) -> None:
        """Removes hidden elements, asides and alerts unless they belong to the text."""
        nodes = []
        for node in self._root.css(_HIDDEN):
            is_panel = node.attributes.get("role") == "tabpanel"
            if not is_panel and node.attributes.get("id") not in self._panels:
                nodes.append(node)
        for node in self._root.css('[role="tablist"]'):
            if node.css_first('[role="tabpanel"]') is None:
                nodes.append(node)
        for node in self._root.css('aside, [role="alert"]'):
            names = (
                node.attributes.get("class"),
                node.attributes.get("aria-label"),
            )
            is_note = any(NOTE_NAME.fullmatch(name or "") for name in names)
            is_alert = node.tag != "aside" and self._has_main
            if not is_note and not is_alert:
                nodes.append(node)
        _remove(nodes)

    def _drop_by_name(self) -> None:
        most = _MOST_BY_NAME * self._length(self._root)
        named = self._root.css(_BY_NAME)
        namespaces = _namespaces(named)
        if self._box_tags:
            boxes = self._root.css(self._box_tags)
        else:
            boxes = []
        for node in self._root.css(_PAGE_HEADERS):
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
            elif words and not self._is_text(node, words):
                boxes.append(node)
        # In a forum or on a page of reviews, the comments are the text.
        if sum(map(self._length, _outermost(comments))) <= most:
            boxes += comments
        for node in _outermost(boxes):
            if self._length(node) <= most:
                node.decompose()

    def _is_text(self, node: Any, words: set[str]) -> bool:
        """Returns True for parts of the text whose names resemble menus or dialogues."""
        if words <= WINDOW_WORDS:
            return node.attributes.get("id") in self._panels
        if not words <= LIST_WORDS:
            return False
        linked = sum(map(self._length, node.css("a[href]")))
        return self._length(node) - linked > max(linked, _LEAST_TEXT_OF_MENU)

    def _drop_by_heading(self) -> None:
        """Removes boxes with headings such as "Related articles", "Comments" or "Subscribe"."""
        total = self._length(self._root)
        boxes = []
        for heading in self._root.css(_HEADING_LIKE):
            text = heading.text()
            kind = None
            if len(text) <= _LONGEST_HEADING:
                kind = heading_of_box(text)
            if kind is not None:
                boxes += self._box_of(heading, kind, total)
        _remove(boxes)

    def _box_of(self, heading: Any, kind: BoxHeading, total: int) -> list[Any]:
        """Returns the nodes of the box that a heading introduces; [] for a heading of the text."""
        most = _MOST_BY_NAME * total
        if kind is BoxHeading.REQUEST:
            most = min(most, _LONGEST_DIALOGUE)

        def is_box(nodes: list[Any]) -> bool:
            length = sum(map(self._length, nodes))
            if length > most or any(_has_title(node) for node in nodes):
                return False
            if kind is BoxHeading.COMMENTS:
                return any(map(_has_repeated_parts, nodes))
            if kind is not BoxHeading.LINKS:
                return True
            links = [link for node in nodes for link in node.css("a[href]")]
            if len(links) >= _FEWEST_LINKS and length <= _LONGEST_LINK * len(
                links
            ):
                return True
            linked = sum(map(self._length, links))
            return linked >= _LINK_SHARE_OF_BOX * max(
                1, length - self._length(heading)
            )

        result: list[Any] = []
        # Bold words after other text are not headings.
        if heading.tag not in _HEADING_TAGS and _text_before(heading):
            return result
        for first in (heading, *self._ancestors(heading)):
            if first.tag in _NEVER_BY_NAME and first.tag not in _HEADING_TAGS:
                break
            if first.mem_id != heading.mem_id and is_box([first]):
                result = [first]
            elif self._length(first) > most:
                break
            if not result:
                # The box may have no separate element: a heading and its
                # following siblings.
                flat = self._until_heading(first, heading)
                if len(flat) > 1 and is_box(flat):
                    result = flat
            if _text_before(first):
                break
        return result

    @staticmethod
    def _until_heading(first: Any, heading: Any) -> list[Any]:
        """Returns an element and its siblings up to the next heading."""
        is_marked = heading.tag in _HEADING_TAGS
        nodes = [first]
        node = first.next
        while node is not None:
            if node.is_element_node:
                is_heading = node.tag in _HEADING_TAGS
                if is_heading or (
                    is_marked and node.css_first(_HEADINGS) is not None
                ):
                    break
                nodes.append(node)
            if len(nodes) > _MOST_SIBLINGS:
                return []
            node = node.next
        return nodes

    def _drop_cards(self) -> None:
        """Removes rows of cards: headlines that link to other pages, with teasers."""
        groups: dict[int, list[Any]] = {}
        for heading in self._root.css("h2, h3, h4, h5"):
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
            for parent in self._ancestors(heading):
                if (
                    self._length(parent) > _LONGEST_CARD
                    or len(parent.css("h2, h3, h4, h5")) > 1
                ):
                    break
                card = parent
            groups.setdefault(card.parent.mem_id, []).append(card)
        cards = [
            card
            for group in groups.values()
            if len(group) > 1
            for card in group
        ]
        # On an overview page, the cards are the text.
        if sum(map(self._length, cards)) <= _MOST_BY_NAME * self._length(
            self._root
        ):
            _remove(cards)

    def _drop_links(self) -> None:
        """Removes menus: blocks and lists that consist of links."""
        counts = _count_links(self._root)
        total, total_linked, _ = counts[self._root.mem_id]
        # On pages that mostly consist of links, only lists are removed.
        is_overview = total_linked > _MOST_BY_NAME * total
        has_copyright = _COPYRIGHT.search(self._root.text()) is not None
        nodes = []
        for node in self._root.css(_MENU_ELEMENTS):
            length, linked, num_links = counts[node.mem_id]
            is_list = node.tag in _LIST_TAGS
            tags = (node.tag, node.parent.tag)
            if node.mem_id == self._root.mem_id or (
                is_overview and not is_list
            ):
                continue
            if num_links >= _FEWEST_LINKS and linked >= _LINK_SHARE * max(
                1, length
            ):
                is_menu = is_list or length <= _MOST_BY_NAME * total
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
        _remove(nodes)

    def _narrow(self) -> None:
        """Removes everything after the end of an article."""
        least = _LEAST_OF_BODY * self._length(self._root)
        names = Counter(
            map(_tag_and_class, self._root.css("article, div, section"))
        )
        body = None
        node = self._root
        for _ in range(_MOST_LEVELS):
            node = next(
                (part for part in node.iter() if self._length(part) >= least),
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
        while node.mem_id != self._root.mem_id:
            while node.next is not None:
                node.next.decompose()
            node = node.parent

    def _drop_before_title(self) -> None:
        """Removes everything before the title, unless it is long."""
        node = self._find_title()
        if node is None:
            return
        before = []
        while node.mem_id != self._root.mem_id:
            sibling = node.prev
            while sibling is not None:
                before.append(sibling)
                sibling = sibling.prev
            node = node.parent
        if sum(map(self._length, before)) <= _MOST_BEFORE_TITLE * self._length(
            self._root
        ):
            for node in before:
                node.decompose()

    def _find_title(self) -> Any:
        """Returns the heading that matches the page's title, or the only heading of level 1."""
        title = _letters(self.title or "")
        for selector in ("h1", "h2", 'h3, [class*="title"], b'):
            for node in self._root.css(selector):
                heading = _letters(node.text())
                if len(heading) >= _SHORTEST_HEADLINE and heading in title:
                    return node
        headings = self._root.css("h1")
        return headings[0] if len(headings) == 1 else None

    def _drop_columns(self) -> None:
        """Removes narrow columns of layout tables, and signatures."""
        nodes = []
        longest: dict[int, int] = {}  # longest cell of each row, by row
        for cell in self._root.css("td[width]"):
            length = self._length(cell)
            if cell.css_first("div, br, table") is None:
                continue
            row = cell.parent
            if row.mem_id not in longest:
                longest[row.mem_id] = max(map(self._length, row.iter()))
            if longest[row.mem_id] >= max(
                _LONGEST_CELL, _LEAST_RATIO_OF_COLUMNS * length
            ):
                nodes.append(cell)
        if _SIGNATURE.search(self._root.text()):
            for node in self._root.css("div, p, span"):
                if (
                    _SIGNATURE.match(node.text().lstrip())
                    and self._length(node) <= _LONGEST_CARD
                ):
                    nodes.append(node)
        _remove(nodes)

    def _ancestors(self, node: Any) -> Iterator[Any]:
        """Yields the nearest ancestors of an element, below the root."""
        for _ in range(_MOST_ANCESTORS):
            node = node.parent
            if node is None or node.mem_id == self._root.mem_id:
                return
            yield node

    @staticmethod
    def _length(node: Any) -> int:
        """Returns the number of characters of a node that are not white space."""
        return len("".join(node.text().split()))


def _check_nesting(text: str, name: str) -> None:
    depth = 0
    for match in _NESTED.finditer(text):
        if match.group(1):
            depth = max(0, depth - 1)
        else:
            depth = depth + 1
        if depth > _MAX_NESTED:
            raise InputError(
                f"{name}: more than {_MAX_NESTED} nested elements; the page is damaged"
            )


def _check_names(text: str, name: str) -> None:
    names: set[str] = set()
    for match in _TAG.finditer(text):
        tag, further = match.groups()
        if further:
            raise InputError(
                f"{name}: an element with more than {_MAX_ATTRIBUTES} attributes; the "
                "page is damaged"
            )
        if tag:
            names.update(_NAMES.findall(tag))
        if len(names) > _MAX_NAMES:
            raise InputError(
                f"{name}: more than {_MAX_NAMES} different names of elements and attributes; "
                "the page is damaged"
            )


def _remove(nodes: list[Any]) -> None:
    """Removes nodes with everything inside them; a node may be listed twice."""
    for node in _outermost(nodes):
        node.decompose()


def _outermost(nodes: list[Any]) -> list[Any]:
    """Returns the distinct nodes without those nested in another; removing them removes all."""
    by_id = {node.mem_id: node for node in nodes}
    result = []
    for node in by_id.values():
        parent = node.parent
        while parent is not None and parent.mem_id not in by_id:
            parent = parent.parent
        if parent is None:
            result.append(node)
    return result


def _is_box_tag(tag: str) -> bool:
    """Returns True if the tag of a custom element names a box, with or without its prefix."""
    return bool(box_words(tag) or box_words(tag.partition("-")[2]))


def _names(node: Any) -> list[str]:
    """Returns the class names of an element and the values of its other name attributes."""
    attributes = node.attributes
    names = (attributes.get("class") or "").split()
    return [
        *names,
        *(
            attributes.get(key) or ""
            for key in ("id", "name", *_NAME_ATTRIBUTES)
        ),
    ]


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


def _is_in_heading(node: Any) -> bool:
    """Returns True if an element is part of a heading, as in accordions."""
    return node.parent is not None and node.parent.tag in _HEADING_TAGS


def _has_title(node: Any) -> bool:
    """Returns True if an element is or contains the title of the page."""
    return node.tag == "h1" or node.css_first("h1") is not None


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


def _tag_and_class(node: Any) -> tuple[str, str | None]:
    """Returns the tag and the class of an element."""
    return node.tag, node.attributes.get("class")


def _has_repeated_parts(box: Any) -> bool:
    """Returns True if an element contains consecutive parts with the same tag and class."""
    for node in box.css("li, article, div, section, details"):
        following = _sibling(node, "next")
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
    for node, is_start in _walk(root):
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
    return len(links) > 0 and _letters(linked) == _letters(raised.text())


def _ends_sentence(before: Any) -> bool:
    """Returns True if the text before an element ends with sentence punctuation."""
    return before is not None and before.text().rstrip().endswith(
        _SENTENCE_ENDS
    )


def _letters(text: str) -> str:
    """Returns the letters and digits of a text, without brackets and commas of notes."""
    return "".join(filter(str.isalnum, text))


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
        elif key in _NAME_ATTRIBUTES:
            words |= box_words(value, namespaces)
        elif key == "id":
            id_words = box_words(value, namespaces)
            if id_words and not _is_named_by_heading(node, value):
                words |= id_words
    return words


def _is_named_by_heading(node: Any, name: str) -> bool:
    """Returns True if the id of an element is derived from its first heading, as in reports."""
    heading = node.css_first(_HEADINGS)
    if heading is None:
        return False
    words = _letters(heading.text()).lower()
    return _letters(name).lower() in (words, words.lstrip("0123456789"))


def _is_named_caption(node: Any) -> bool:
    names = (node.attributes.get("class") or "").casefold().split()
    is_caption = any(map(_CAPTION_NAME.fullmatch, names))
    return (
        is_caption
        and len(node.text()) <= _LONGEST_CAPTION
        and not node.css("h1, h2, h3")
    )


def _blocks(root: Any) -> Iterator[Block]:
    """Yields the blocks of a tree without recursion."""
    parts: list[str] = []  # texts of the current block
    level = 0
    in_pre = 0
    # id of the current table cell, whose paragraphs do not form blocks
    cell = None
    for node, is_start in _walk(root):
        tag = node.tag
        if tag is None:  # comments and processing instructions
            continue
        if tag == "-text":
            parts.append(node.text_content or "")
        elif cell is not None and (tag == "br" or _BLOCK.fullmatch(tag)):
            parts.append(" ")
        elif tag == "br":
            if is_start:
                parts.append("\n" if in_pre else "\v")
        elif tag in ("td", "th"):
            if is_start and any(map(str.strip, parts)):
                parts.append(" | ")
            if is_start and cell is None and _is_short_cell(node):
                cell = node.mem_id
            elif node.mem_id == cell:
                cell = None
        elif _BLOCK.fullmatch(tag):
            text = _block_text(parts, keep_lines=in_pre > 0)
            parts.clear()
            if text:
                yield Block(text, level)
            if tag == "pre":
                in_pre += 1 if is_start else -1
            if tag in _HEADING_TAGS:
                level = int(tag[1]) if is_start else 0
    text = _block_text(parts, keep_lines=False)
    if text:
        yield Block(text, level)


def _is_short_cell(cell: Any) -> bool:
    """Returns True if a cell is data of a table row, not part of a page's layout table."""
    if (
        not _has_neighbor(cell)
        or cell.css_first(f"{_HEADINGS}, table, pre") is not None
    ):
        return False
    return len(cell.text()) <= _LONGEST_CELL


def _has_neighbor(cell: Any) -> bool:
    """Returns True if the row of a cell has another cell."""
    return (
        _sibling(cell, "prev") is not None or _sibling(cell, "next") is not None
    )


def _sibling(node: Any, step: Literal["prev", "next"]) -> Any:
    """Returns the nearest element before or after a node in its parent, or None."""
    sibling = getattr(node, step)
    while sibling is not None and not sibling.is_element_node:
        sibling = getattr(sibling, step)
    return sibling


def _block_text(parts: list[str], *, keep_lines: bool) -> str:
    text = "".join(parts)
    if keep_lines:
        return text.strip("\n").rstrip()
    lines = [
        _SPACES.sub(" ", line).strip().removesuffix(" |")
        for line in text.split("\v")
    ]
    return "\n".join(line for line in lines if line)


def _walk(root: Any) -> Iterator[tuple[Any, bool]]:
    """Yields every node at its start, and every element again at its end."""
    node = root
    while True:
        yield node, True
        child = None
        if node.is_element_node:
            child = node.first_child
        if child is not None:
            node = child
            continue
        while True:
            if node.is_element_node:
                yield node, False
            if node.mem_id == root.mem_id:
                return
            if node.next is not None:
                node = node.next
                break
            node = node.parent
