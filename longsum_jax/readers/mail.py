"""E-mail: subject, body and attachments of messages (.eml), messages of mailboxes (.mbox).

Browsers also save pages with their pictures as such messages (MHTML).
"""

import contextlib
import email
import email.policy
import html
import re
from collections.abc import Iterator, Sequence
from email.errors import MessageError
from email.message import EmailMessage, MIMEPart
from typing import Any

from longsum_jax.errors import InputError, in_one_line
from longsum_jax.readers.document import PARAGRAPH, Block, Document, Failure
from longsum_jax.readers.encodings import decode
from longsum_jax.readers.html import Page, declared_encoding, page_document
from longsum_jax.readers.html_boilerplate import HIDDEN
from longsum_jax.readers.html_tree import letters
from longsum_jax.readers.mail_history import QUOTED, has_forward, own_lines
from longsum_jax.readers.plain_text import text_blocks
from longsum_jax.readers.source import Source

_LONGEST_HEADER = 2000  # characters
# The separator line before a message of a mailbox, and "From " escaped in a
# body.
_SEPARATOR = re.compile(rb"^From \S+.*\n(?=[\w-]+:)", re.MULTILINE)
_ESCAPED = re.compile(rb"^>(>*From )", re.MULTILINE)
_SIGNATURES = (
    *("application/pgp-signature", "application/pkcs7-signature"),
    "application/x-pkcs7-signature",
)
# Elements of HTML that are not shown, comments and tags.
_MARKUP = re.compile(
    r"<(head|style|script)\b.*?(?:</\1\b|\Z)|<!--.*?(?:-->|\Z)|<[^<>]*>?",
    re.IGNORECASE | re.DOTALL,
)
# A plain text may only refer to the HTML of the mail: maximum of its letters, and
# minimum ratio of the letters of HTML to them.
_REFERS = re.compile(r"https?|html|www", re.IGNORECASE)
_LONGEST_NOTICE = 500
_LEAST_RATIO_TO_NOTICE = 5
_PAGES = ("text/html", "application/xhtml+xml")

# Elements with quoted mail. Gmail and Proton Mail put the quotation inside a
# box, which may also contain replies.
_QUOTED_HTML = (
    ".yahoo_quoted, .moz-cite-prefix, .gmail_attr, .zmail_extra, .tutanota_quote, "
    '#mail-editor-reference-message-container, blockquote[type="cite"], blockquote.gmail_quote, '
    "div.gmail_quote > blockquote, .protonmail_quote > blockquote"
)
_QUOTED_BOXES = "div.gmail_quote, div.protonmail_quote"
_SIGNATURE_HTML = (
    ".gmail_signature_prefix, .gmail_signature, .moz-signature, .protonmail_signature_block, "
    ".tutanota_signature, #ms-outlook-mobile-signature"
)
# Prefix of a subject, possibly after the name of a mailing list.
_FORWARD = re.compile(
    r"(?:\[[^\[\]]*\]\s*)?(?:fwd?|wg|tr|rv|enc|vb|pd|doorst|vl|转发)\s*:",
    re.IGNORECASE,
)


class _Policy(email.policy.EmailPolicy):
    """The standard library's policy, made robust.

    Only the beginning of a long header is read, because parsing takes quadratic
    time. Headers that the library fails to parse are read as empty.
    """

    def header_fetch_parse(self, name: str, value: Any) -> Any:
        is_parsed = hasattr(value, "name")
        try:
            if not is_parsed:
                value = value[:_LONGEST_HEADER]
            return super().header_fetch_parse(name, value)
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            MessageError,
        ):
            return super().header_fetch_parse(name, "")


def read(source: Source) -> Iterator[Document | Source]:
    """Reads one message, followed by its attachments as separate files.

    Raises:
        InputError: the message has neither text nor attachments, or is nested
            too deeply.
    """
    with _limited_depth(source):
        yield from _read(source)


def read_page(source: Source) -> Iterator[Document]:
    """Reads the page that a browser saved as a message (MHTML, RFC 2557), without its frames.

    Raises:
        InputError: the message contains no page, or the page has no text.
    """
    with _limited_depth(source):
        for part in _parsed(source).walk():
            content = part.get_payload(decode=True)
            if part.get_content_type() in _PAGES and isinstance(content, bytes):
                page = source.inner(source.name, content)
                yield page_document(
                    page,
                    part.get_content_charset() or declared_encoding(content),
                )
                return
    raise InputError(
        f"{source.name}: holds no web page; save the page again, for example as HTML"
    )


@contextlib.contextmanager
def _limited_depth(source: Source) -> Iterator[None]:
    """Reports parts, or header brackets, that are nested too deeply for the parser."""
    try:
        yield
    except RecursionError:
        raise InputError(
            f"{source.name}: its parts are nested too deeply; the mail is damaged"
        ) from None


def _parsed(source: Source) -> EmailMessage:
    message = email.message_from_bytes(source.content, policy=_Policy())
    assert isinstance(message, EmailMessage)
    return message


def _read(source: Source) -> Iterator[Document | Source]:
    message = _parsed(source)
    bodies, attached = _parts(message, source)
    attachments, notes = _attachments(attached, source)
    blocks: list[Block] = []
    subject = _header(message, "subject")
    is_forward = _FORWARD.match(subject or "") is not None
    for part in bodies:
        text = _text(part, source.name)
        if part.get_content_type() == "text/html":
            part_blocks, dropped = _page_blocks(
                Page(text, source), source, is_forward
            )
        else:
            part_blocks, dropped = _text_blocks(text, source, is_forward)
        blocks += part_blocks
        notes += dropped
    if subject and blocks:
        blocks.insert(0, Block(subject, 1))
    if blocks or not attachments:
        yield source.document(blocks, title=subject, notes=notes)
    yield from attachments


def _parts(
    part: MIMEPart, source: Source
) -> tuple[list[MIMEPart], list[MIMEPart]]:
    """Returns the parts of the body, in reading order, and the attached parts."""
    source.check_time()
    if part.get_content_maintype() != "multipart":
        is_text = part.get_content_type() in ("text/plain", "text/html")
        is_body = (
            is_text and not part.is_attachment() and not part.get_filename()
        )
        return ([part], []) if is_body else ([], [part])
    has_alternatives = part.get_content_type() == "multipart/alternative"
    bodies, attached = [], []
    for inner in part.iter_parts():
        body, others = _parts(inner, source)
        bodies.append(body)
        is_named = inner.is_attachment() or inner.get_filename()
        # The body in another form, such as a calendar, is not an attachment.
        if not (has_alternatives and others == [inner] and not is_named):
            attached += others
    if has_alternatives or _are_equal(bodies, source.name):
        bodies = [_alternative(bodies, source.name)]
    return [body_part for body in bodies for body_part in body], attached


def _alternative(bodies: list[list[MIMEPart]], name: str) -> list[MIMEPart]:
    """Returns the alternative form of a body to read: plain text, unless it is
    blank or only refers to the HTML.
    """
    filled = [
        body
        for body in bodies
        if any(_text(part, name).strip() for part in body)
    ]
    if not filled:
        return []
    filled.sort(key=_has_html)
    text = _letters(filled[0], name)
    if (
        len(text) <= _LONGEST_NOTICE
        and _REFERS.search(text)
        and len(_letters(filled[-1], name)) > _LEAST_RATIO_TO_NOTICE * len(text)
    ):
        return filled[-1]
    return filled[0]


def _are_equal(bodies: list[list[MIMEPart]], name: str) -> bool:
    """Returns True if there are two bodies with the same text, one of them in HTML."""
    filled = list(filter(None, bodies))
    return (
        len(filled) == 2
        and sum(map(_has_html, filled)) == 1
        and _letters(filled[0], name) == _letters(filled[1], name)
    )


def _letters(body: list[MIMEPart], name: str) -> str:
    """Returns the letters and digits of a body, without markup."""
    texts = []
    for part in body:
        text = _text(part, name)
        if part.get_content_type() == "text/html":
            text = html.unescape(_MARKUP.sub("", text))
        texts.append(letters(text))
    return "".join(texts)


def _has_html(body: list[MIMEPart]) -> bool:
    return any(part.get_content_type() == "text/html" for part in body)


def _attachments(
    parts: list[MIMEPart], source: Source
) -> tuple[list[Source], list[str]]:
    """Returns the attachments that may contain text, and a note about the others."""
    attachments, left_out = [], []
    names: set[str] = set()
    for number, part in enumerate(parts, 1):
        name = part.get_filename() or f"attachment {number}"
        content = _content(part)
        if content is None:
            left_out.append(name)
        else:
            if name in names:
                name = f"{number}-{name}"
            names.add(name)
            # A message within a message has no name.
            is_mail = part.get_content_type() == "message/rfc822"
            inner = in_one_line(f"{source.name}/{name}")
            attachments.append(
                source.inner(inner, content, "message.eml" if is_mail else name)
            )
    return attachments, [
        f"attachments not read: {', '.join(left_out)}"
    ] if left_out else []


def _content(part: MIMEPart) -> bytes | None:
    """Returns the content of an attachment; None for pictures, audio, video and signatures."""
    is_signature = part.get_content_type() in _SIGNATURES
    if (
        part.get_content_maintype() in ("image", "audio", "video")
        or is_signature
    ):
        return None
    if part.get_content_type() == "message/rfc822":
        return b"".join(bytes(subpart) for subpart in part.iter_parts())
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else None


def messages(source: Source) -> Iterator[Source | Failure]:
    """Yields the messages of a mailbox.

    Raises:
        InputError: the mailbox contains no message.
    """
    starts = [match.end() for match in _SEPARATOR.finditer(source.content)]
    ends = [match.start() for match in _SEPARATOR.finditer(source.content)][1:]
    if not starts:
        raise InputError(
            f"{source.name}: no message in the mailbox; check the file"
        )
    ends.append(len(source.content))
    for number, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        content = _ESCAPED.sub(rb"\1", source.content[start:end])
        yield source.inner(f"{source.name}:{number}", content, "message.eml")


def _text(part: MIMEPart, name: str) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    text = decode(content, name, part.get_content_charset()).text
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _text_blocks(
    text: str, source: Source, is_forward: bool
) -> tuple[list[Block], list[str]]:
    """Returns the blocks of a plain body, and notes about removed content."""
    if source.options.keep_all:
        return text_blocks(text), []
    answer = own_lines(text.split("\n"), is_forward=is_forward)
    text = "\n".join(line for line in answer.lines if line is not None)
    return text_blocks(text), answer.notes + _about_quoted(answer.num_quoted)


def _page_blocks(
    page: Page, source: Source, is_forward: bool
) -> tuple[list[Block], list[str]]:
    """Returns the blocks of an HTML body, and notes about removed content."""
    if source.options.keep_all:
        return page.blocks(), []
    page.drop(HIDDEN)
    blocks = page.blocks()
    if not (is_forward or has_forward(_lines(blocks))):
        num_quoted = page.replace_quotations(
            _QUOTED_HTML, _QUOTED_BOXES, QUOTED
        )
        has_signature = page.has_adjacent_text(_SIGNATURE_HTML)
        if has_signature:
            page.drop(_SIGNATURE_HTML)
        answer = page.blocks()
        answer_lines = own_lines(_lines(answer), is_forward=False)
        if not answer_lines.is_forward:
            if has_signature:
                notes = {"signature left out": None}
            else:
                notes = {}
            notes |= dict.fromkeys(answer_lines.notes)
            return _with_lines(answer, answer_lines.lines), [
                *notes,
                *_about_quoted(num_quoted + answer_lines.num_quoted),
            ]
    answer_lines = own_lines(_lines(blocks), is_forward=True)
    return _with_lines(blocks, answer_lines.lines), answer_lines.notes


def _about_quoted(num_chars: int) -> list[str]:
    if num_chars:
        return [f"quoted mail of {num_chars:,} characters left out"]
    return []


def _lines(blocks: Sequence[Block]) -> list[str]:
    """Returns the lines of blocks, with an empty line after each block."""
    return [line for block in blocks for line in (*block.text.split("\n"), "")]


def _with_lines(
    blocks: Sequence[Block], lines: Sequence[str | None]
) -> list[Block]:
    """Returns blocks with only the lines that are not None, in the order of ``_lines``."""
    result = []
    start = 0
    for block in blocks:
        end = start + block.text.count("\n") + 1
        text = "\n".join(
            line for line in lines[start:end] if line is not None
        ).strip()
        if text:
            text = re.sub(r"\n{3,}", PARAGRAPH, text)
            result.append(block._replace(text=text))
        start = end + 1
    return result


def _header(message: EmailMessage, name: str) -> str | None:
    value = message[name]
    return str(value) if value else None
