"""HTML as browsers read it, without what surrounds an article: menus, banners, lists of links."""

import functools
import re
from collections.abc import Iterator
from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.extra import import_extra
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.source import Source

_NEVER_SHOWN = (
    "script, style, template, noscript, iframe, object, embed, svg, math annotation, canvas, "
    "audio, video, head, select, datalist, textarea"
)
_BOILERPLATE = (
    "nav, footer, aside, dialog, form, button, menu, "
    '[role="navigation"], [role="banner"], [role="contentinfo"], [role="search"], '
    '[role="complementary"], [role="dialog"], [role="alertdialog"], [role="alert"], '
    '[role="menu"], [role="menubar"], [role="toolbar"], [aria-hidden="true"], [hidden], del, '
    '[style*="display:none"], [style*="display: none"], .mw-editsection, '
    "a.headerlink, rp, rt"
)
_CAPTIONS = "figcaption, caption"
_CAPTION_NAME = re.compile(
    r"(?:[a-z]+[-_])?(?:fig|figure|image|img|table|thumb)?caption(?:[-_]?text)?"
)
_LONGEST_CAPTION = 1000  # characters of an element that its class calls one
_NOTE_MARKS = 'sup.reference, [role="doc-noteref"], [epub\\:type~="noteref"]'
# Words in class and id that name a box beside the text. Two or three words in a row count as one.
_NAVIGATION = """
nav navbar navigation menu menubar navbox sidebar side-bar breadcrumb breadcrumbs toc pagination
pager footer masthead rail skip skip-link hatnote reflist
"""
_CONSENT = """
cookie cookies consent gdpr ccpa banner modal popup overlay paywall privacy-banner cookie-law cmp
cc-window sp-message cybot cookiebot onetrust truste trustarc klaro iubenda osano axeptio
tarteaucitron evidon cmplz borlabs didomi usercentrics sourcepoint quantcast cookiescript cookieyes
moove termly
"""
_PROMOTION = """
share sharing social addthis addtoany sharethis related recommended recommendations trending
read-next up-next most-read most-popular more-stories promo promotion promoted sponsored sponsor ad
ads adsense advert advertisement taboola outbrain newsletter subscribe subscription-box sign-up
signup
"""
_PEOPLE = """
author-bio about-author author-box author-card tag-list post-tags entry-tags post-meta entry-meta
article-meta comments comment-list comment-respond respond disqus
"""
_NOT_SHOWN = """
sr-only screen-reader visually-hidden assistive-text no-print noprint print-only show-for-sr
"""
_BOX_WORDS = frozenset(" ".join((_NAVIGATION, _CONSENT, _PROMOTION, _PEOPLE, _NOT_SHOWN)).split())
_COMMENT_WORDS = frozenset({"comments", "comment-list", "comment-respond", "respond", "disqus"})
# Words that a name has besides. Other ones come from a heading, as in "related-work".
_OTHER_NAMES = """
area article articles bar block blocks body bottom box button buttons column confirmation container
content cover desktop dialog element external fixed form global group header heading icons inline
info injected inner item items large layer left link links list lists main medium mega message
messages mobile module modules more msg new news notice outer page pages panel placeholder post
posts primary reader readers right root row sdk secondary section shell site slot small sticky
story stories tag tags teaser text thread title toggle tool tools top trail unit user users view
widget widgets window wrap wrapper the this your our zone
"""
_BESIDE_NAMES = frozenset(_OTHER_NAMES.split())
# Words of classes that tell the state of a page, as in "has-sidebar".
_STATES = frozenset({"has", "is", "no", "not", "with", "without"})
_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LONGEST_NAME = 100  # characters of a class or id
_FEWEST_LETTERS = 3  # shorter words are prefixes of programs, as in "hs-eu-cookie"
_NEVER_BY_NAME = frozenset({"html", "body", "main", "article", "h1", "h2", "h3", "h4", "h5", "h6"})
_BY_NAME = "div[class], div[id], section[class], section[id], ul[class], ul[id], ol[class], "
_BY_NAME += "p[class], p[id], span[class], sup[class], a[class], header[class], table[class]"

_BLOCK = re.compile(
    r"address|article|aside|blockquote|body|caption|center|dd|details|dialog|div|dl|dt|fieldset|"
    r"figcaption|figure|footer|form|h[1-6]|header|hgroup|hr|html|li|main|nav|ol|p|pre|section|"
    r"summary|table|tbody|tfoot|thead|tr|ul"
)
_HEADING = re.compile(r"h[1-6]")
_SPACES = re.compile(r"[ \t\n\r\f\xa0]+")

_META_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)
_XML_CHARSET = re.compile(rb"\A\s*<\?xml[^>]+encoding\s*=\s*[\"']([\w-]+)")
# In XHTML these may close themselves; HTML would take all that follows as their content.
_SELF_CLOSED = re.compile(
    r"<(script|style|title|iframe|textarea|noscript|a|div|p|span|i|b)\b([^<>]*)/>", re.IGNORECASE
)
# Time to build the tree grows with the square of the depth of these.
_NESTED = re.compile(
    r"<(/?)(?:div|section|article|ul|ol|dl|blockquote|table|center|form|fieldset|details|main|"
    r"nav|aside|header|footer|figure|address|menu|pre|button|applet|marquee|object|select)\b",
    re.IGNORECASE,
)
_MAX_NESTED = 4000

_NOTE_NUMBER = re.compile(r"\[\d{1,3}\]|\d{1,3}")
_SENTENCE_ENDS = (".", "!", "?", ".”", '."')
_PERMALINKS = ("#", "¶", "§", "🔗")
_LEAST_MAIN = 0.3  # share of a page's text in <main>, for the rest to be boilerplate
_MOST_BY_NAME = 0.5  # share of a page's text that a class name may condemn
_LONGEST_CELL = 300  # characters of a cell whose paragraphs are one text
_LINK_SHARE = 0.75  # of the characters of a list that are links, which makes it a menu
_FEWEST_LINKS = 3


def read(source: Source) -> Iterator[Document]:
    """Reads one page.

    Raises:
        InputError: no HTML, or a page without text.
    """
    text, notes = source.decoded(declared_encoding(source.content))
    page = Page(text, source)
    title = page.title
    if not source.options.keep_all:
        notes += page.drop_boilerplate()
    blocks = page.blocks()
    if title is None:
        title = next((block.text for block in blocks if block.level == 1), None)
    yield source.document(blocks, title=title, has_pictures=page.has_pictures, notes=notes)


def declared_encoding(content: bytes) -> str | None:
    """Returns the encoding that a page names near its beginning."""
    found = _META_CHARSET.search(content[:4096]) or _XML_CHARSET.search(content[:200])
    return found.group(1).decode() if found else None


class Page:
    """The tree of a page.

    Args:
        text: HTML or XHTML.
        source: that it comes from.

    Attributes:
        title: in its head, or None.
        has_pictures: whether it shows any.

    Raises:
        InputError: elements nested too deeply.
    """

    def __init__(self, text: str, source: Source) -> None:
        lexbor = import_extra("selectolax.lexbor", source.name, "HTML")
        _check_nesting(text, source.name)
        self._source = source
        is_xml = text[:200].lstrip().startswith("<?xml") or "/xhtml" in text[:1000]
        if is_xml:
            text = _SELF_CLOSED.sub(r"<\1\2></\1>", text)
        tree = lexbor.LexborHTMLParser(text)
        head_title = tree.css_first("title")
        self.title = head_title.text().strip() or None if head_title else None
        self.has_pictures = tree.css_first("img, image") is not None
        self._root = tree.body or tree.root
        if self._root is not None:
            _remove(self._root, _NEVER_SHOWN)
        self._tree = tree  # nodes live as long as it does

    def drop_boilerplate(self) -> list[str]:
        """Removes what surrounds the text; returns a note about how much that was."""
        if self._root is None:
            return []
        before = self._length(self._root)
        self._root = self._main(before)
        self._source.check_time()
        _remove(self._root, _BOILERPLATE)
        self.drop_captions()
        self.drop_note_marks()
        for node in self._root.css("header"):
            if not node.css("h1, h2"):
                node.decompose()
        for link in self._root.css("a[href]"):
            if link.text().strip() in _PERMALINKS:
                link.decompose()
        self._drop_by_name()
        self._source.check_time()
        self._drop_link_lists()
        dropped = before - self._length(self._root)
        return [f"boilerplate of {dropped:,} characters left out"] if dropped > 0 else []

    def has_text_beside(self, selector: str) -> bool:
        """Tells whether the page has some of these elements, and other text than theirs."""
        if self._root is None:
            return False
        inside = sum(map(self._length, _outermost(self._root.css(selector))))
        return 0 < inside < self._length(self._root)

    def drop(self, selector: str) -> tuple[int, int]:
        """Removes elements; returns how many, and how many characters."""
        if self._root is None:
            return 0, 0
        nodes = _outermost(self._root.css(selector))
        length = sum(map(self._length, nodes))
        for node in nodes:
            node.decompose()
        return len(nodes), length

    def replace_quotations(self, selector: str, boxes: str, mark: str) -> int:
        """Replaces quotations by a line with a mark; returns how many characters they have.

        Args:
            selector: quotations.
            boxes: elements that are quotations if no ``blockquote`` lies in them.
            mark: content of the line.
        """
        if self._root is None:
            return 0
        whole = [node for node in self._root.css(boxes) if node.css_first("blockquote") is None]
        nodes = _outermost([*self._root.css(selector), *whole])
        length = sum(map(self._length, nodes))
        for node in nodes:
            node.replace_with(f"\v{mark}\v")  # see _block_text
        return length

    def drop_captions(self) -> int:
        """Removes captions of pictures and tables; returns how many had words."""
        if self._root is None:
            return 0
        named = [node for node in self._root.css("p[class], div[class]") if _is_named_caption(node)]
        captions = _outermost([*self._root.css(_CAPTIONS), *named])
        count = sum(self._length(node) > 0 for node in captions)
        for node in captions:
            node.decompose()
        return count

    def drop_note_marks(self) -> None:
        """Removes numbers of footnotes, which would look like parts of the words before them."""
        if self._root is None:
            return
        _remove(self._root, _NOTE_MARKS)
        for node in _outermost(self._root.css("sup")):
            if _is_note_mark(node):
                node.decompose()

    def blocks(self) -> list[Block]:
        """Returns headings and paragraphs."""
        return list(_blocks(self._root)) if self._root is not None else []

    def _main(self, length: int) -> Any:
        """Returns the element that holds the text, where the page marks one."""
        for selector in ("main", '[role="main"]', "article"):
            found = self._root.css(selector)
            if len(found) == 1 and self._length(found[0]) >= _LEAST_MAIN * length:
                return found[0]
        return self._root

    def _drop_by_name(self) -> None:
        most = _MOST_BY_NAME * self._length(self._root)
        boxes = []
        comments = []
        for node in self._root.css(_BY_NAME):
            words = _box_words(node)
            if words and words <= _COMMENT_WORDS:
                comments.append(node)
            elif words:
                boxes.append(node)
        # The text of a forum or of a page of reviews is comments.
        if sum(map(self._length, _outermost(comments))) <= most:
            boxes += comments
        for node in _outermost(boxes):
            if self._length(node) <= most:
                node.decompose()

    def _drop_link_lists(self) -> None:
        lists = []
        for node in self._root.css("ul, ol, dl, table"):
            links = node.css("a[href]")
            if len(links) < _FEWEST_LINKS:
                continue
            linked = sum(self._length(link) for link in links)
            if linked >= _LINK_SHARE * max(1, self._length(node)):
                lists.append(node)
        for node in _outermost(lists):
            node.decompose()

    @staticmethod
    def _length(node: Any) -> int:
        """Returns the characters of a node that are no white space."""
        return len("".join(node.text().split()))


def _check_nesting(text: str, name: str) -> None:
    depth = 0
    for match in _NESTED.finditer(text):
        depth = max(0, depth - 1) if match.group(1) else depth + 1
        if depth > _MAX_NESTED:
            raise InputError(
                f"{name}: more than {_MAX_NESTED} elements inside one another; the page is damaged"
            )


def _remove(root: Any, selector: str) -> None:
    for node in _outermost(root.css(selector)):
        node.decompose()


def _outermost(nodes: list[Any]) -> list[Any]:
    """Returns the nodes that lie in no other of them: removing these removes all."""
    ids = {node.mem_id for node in nodes}
    found = []
    for node in nodes:
        parent = node.parent
        while parent is not None and parent.mem_id not in ids:
            parent = parent.parent
        if parent is None:
            found.append(node)
    return found


def _is_note_mark(raised: Any) -> bool:
    """Tells whether raised text is the number of a note: nothing but links, inside of it or around
    it, or a number after the end of a sentence."""
    if _NOTE_NUMBER.fullmatch(raised.text().strip()) and _ends_sentence(raised.prev):
        return True
    around = raised.parent
    is_alone = raised.prev is None and raised.next is None
    if is_alone and around.tag == "a" and "#" in (around.attributes.get("href") or ""):
        return True
    links = raised.css('a[href*="#"]')
    linked = "".join(link.text() for link in links)
    return len(links) > 0 and _letters(linked) == _letters(raised.text())


def _ends_sentence(before: Any) -> bool:
    """Tells whether the text before an element ends as sentences do."""
    return before is not None and before.text().rstrip().endswith(_SENTENCE_ENDS)


def _letters(text: str) -> str:
    """Returns the letters and digits of a text, without the brackets and commas of notes."""
    return "".join(filter(str.isalnum, text))


def _box_words(node: Any) -> set[str]:
    """Returns the words in the class and id of an element that name a box beside the text."""
    if node.tag in _NEVER_BY_NAME:
        return set()
    words: set[str] = set()
    for name in (node.attributes.get("class") or "").split():
        words |= _box_words_in(name)
    name = node.attributes.get("id") or ""
    if not _is_named_by_heading(node, name):
        words |= _box_words_in(name)
    return words


@functools.lru_cache(maxsize=10_000)
def _box_words_in(name: str) -> frozenset[str]:
    """Returns the words of a name that name a box; none if the name has words of a text.

    Args:
        name: class or id, such as "cookieConsentBanner", "related_articles" or "adslot-2".
    """
    words: list[str] = []
    for part in _NAME_WORD.findall(name[:_LONGEST_NAME]):
        words += _joined_words(part.lower()) or [part.lower()]
    result = set()
    position = 0
    while position < len(words):
        for size in (3, 2, 1):
            term = "-".join(words[position : position + size])
            if term in _BOX_WORDS:
                result.add(term)
                break
        else:
            size = 1
            word = words[position]
            is_prefix = len(word) < _FEWEST_LETTERS and word not in _STATES
            if not is_prefix and word not in _BESIDE_NAMES:
                return frozenset()
        position += size
    return frozenset(result)


@functools.lru_cache(maxsize=10_000)
def _joined_words(word: str) -> list[str]:
    """Returns the two words of names that a word joins, as in "cookiebanner"; [] if it does not."""
    if word in _BOX_WORDS or word in _BESIDE_NAMES:
        return [word]
    for end in range(2, len(word) - 1):
        first, second = word[:end], word[end:]
        if f"{first}-{second}" in _BOX_WORDS:
            return [first, second]
        is_first = first in _BOX_WORDS or first in _BESIDE_NAMES
        is_second = second in _BOX_WORDS or second in _BESIDE_NAMES
        if is_first and is_second:
            return [first, second]
    return []


def _is_named_by_heading(node: Any, name: str) -> bool:
    """Returns True if the id of an element is made of its first heading, as of a report's parts."""
    heading = node.css_first("h1, h2, h3, h4, h5, h6")
    return heading is not None and _letters(heading.text()).lower() == _letters(name).lower()


def _is_named_caption(node: Any) -> bool:
    names = (node.attributes.get("class") or "").casefold().split()
    is_caption = any(map(_CAPTION_NAME.fullmatch, names))
    return is_caption and len(node.text()) <= _LONGEST_CAPTION and not node.css("h1, h2, h3")


def _blocks(root: Any) -> Iterator[Block]:
    """Yields the blocks of a tree, which is walked without recursion."""
    parts: list[str] = []  # of the block at hand
    level = 0
    in_pre = 0
    cell = None  # of a row, of which paragraphs make no blocks
    for node, is_start in _walk(root):
        tag = node.tag
        if tag is None:  # comments and instructions to a program
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
            if _HEADING.fullmatch(tag):
                level = int(tag[1]) if is_start else 0
    text = _block_text(parts, keep_lines=False)
    if text:
        yield Block(text, level)


def _is_short_cell(cell: Any) -> bool:
    """Tells whether a cell is one of a row, and not a part of a page that a table lays out."""
    if not _has_neighbour(cell) or cell.css_first("h1, h2, h3, h4, h5, h6, table, pre") is not None:
        return False
    return len(cell.text()) <= _LONGEST_CELL


def _has_neighbour(cell: Any) -> bool:
    """Tells whether the row of a cell has another one."""
    for step in ("prev", "next"):
        beside = getattr(cell, step)
        while beside is not None and not beside.is_element_node:
            beside = getattr(beside, step)
        if beside is not None:
            return True
    return False


def _block_text(parts: list[str], *, keep_lines: bool) -> str:
    text = "".join(parts)
    if keep_lines:
        return text.strip("\n").rstrip()
    lines = [_SPACES.sub(" ", line).strip().removesuffix(" |") for line in text.split("\v")]
    return "\n".join(line for line in lines if line)


def _walk(root: Any) -> Iterator[tuple[Any, bool]]:
    """Yields every node when it begins, and every element when it ends."""
    node = root
    while True:
        yield node, True
        child = node.first_child if node.is_element_node else None
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
