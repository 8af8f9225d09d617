"""E-mail: subject, body and attachments of a message (.eml), messages of a mailbox (.mbox).

Browsers save a page with its pictures as such a message, too: MHTML.
"""

import contextlib
import email
import email.policy
import re
from collections.abc import Iterator
from email.errors import MessageError
from email.message import EmailMessage, MIMEPart
from typing import Any

from longsum_jax.errors import InputError, in_one_line
from longsum_jax.readers.document import Block, Document, Failure
from longsum_jax.readers.encodings import decode
from longsum_jax.readers.html import Page, declared_encoding, page_document
from longsum_jax.readers.plain_text import text_blocks
from longsum_jax.readers.source import Source

_LONGEST_HEADER = 2000  # characters
_SEPARATOR = re.compile(rb"^From \S+.*\n(?=[\w-]+:)", re.MULTILINE)
_ESCAPED = re.compile(rb"^>(>*From )", re.MULTILINE)
# The space is often lost; without it the line may be a rule, but hardly so near to the end.
_SIGNATURE = re.compile(r"^(?:-- |--(?=(?:\n.*+){0,10}\s*\Z))$", re.MULTILINE)
_SIGNATURES = (
    *("application/pgp-signature", "application/pkcs7-signature"),
    "application/x-pkcs7-signature",
)
_PAGES = ("text/html", "application/xhtml+xml")
_QUOTED = re.compile(r"^[ \t]*>.*\n?", re.MULTILINE)
# "On Monday, A. B. wrote:" and what Outlook puts over the message that it answers.
_ANSWERED = re.compile(
    r"^(?:On|Am|Le|El|Il)\b[^\n]{0,200}(?:\n[^\n]{0,200})?(?:wrote|schrieb|écrit|escribió|scritto)"
    r"[^\n]{0,80}:[ \t]*$",
    re.MULTILINE,
)
# What Outlook puts between an answer and what it answers: a line of words or a rule, then headers.
_FORWARDED = re.compile(
    r"^(?:-{2,} ?(?:Original Message|Ursprüngliche Nachricht) ?-{2,}"
    r"|(?:_{10,}[ \t]*\n\s*)?(?:From|Von|De) ?: [^\n]+\n"
    r"(?:[^\n]+\n)?(?:Sent|Gesendet|Envoyé|Date) ?: ).*",
    re.M | re.S,
)


_QUOTED_HTML = '.gmail_quote, .yahoo_quoted, .moz-cite-prefix, blockquote[type="cite"]'
_FORWARD = re.compile(r"(?:fwd?|wg|tr|rv)\s*:", re.IGNORECASE)  # before a subject


class _Policy(email.policy.EmailPolicy):
    """The standard library's policy, which reads headers that the library gives up on as empty, and
    the beginning of long ones: the time that they take grows with the square of their length.
    """

    def header_fetch_parse(self, name: str, value: Any) -> Any:
        is_parsed = hasattr(value, "name")
        try:
            return super().header_fetch_parse(name, value if is_parsed else value[:_LONGEST_HEADER])
        except (ValueError, LookupError, TypeError, AttributeError, MessageError):
            return super().header_fetch_parse(name, "")


def read(source: Source) -> Iterator[Document | Source]:
    """Reads one message; its attachments come after it, to be read as the files they are.

    Raises:
        InputError: a message without text or attachments, or with too deep ones.
    """
    with _limited_depth(source):
        yield from _read(source)


def read_page(source: Source) -> Iterator[Document]:
    """Reads the page that a browser saved as a message (MHTML, RFC 2557), without its frames.

    Raises:
        InputError: a message without a page, a page without text.
    """
    with _limited_depth(source):
        for part in _parsed(source).walk():
            content = part.get_payload(decode=True)
            if part.get_content_type() in _PAGES and isinstance(content, bytes):
                page = source.inner(source.name, content)
                yield page_document(page, part.get_content_charset() or declared_encoding(content))
                return
    raise InputError(f"{source.name}: holds no web page; save the page again, for example as HTML")


@contextlib.contextmanager
def _limited_depth(source: Source) -> Iterator[None]:
    """Reports parts, or brackets in a header, that are nested too deeply for the parser."""
    try:
        yield
    except RecursionError:
        raise InputError(
            f"{source.name}: its parts lie too deep inside one another; the mail is damaged"
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
    is_forwarded = _FORWARD.match(subject or "") is not None
    for part in bodies:
        text = _text(part, source.name)
        is_own = not (source.options.keep_all or is_forwarded)
        if part.get_content_type() == "text/html":
            page = Page(text, source)
            if is_own and page.has_text_beside(_QUOTED_HTML):
                _, length = page.drop(_QUOTED_HTML)
                notes.append(_about_quoted(length))
            blocks += page.blocks()
        else:
            if not source.options.keep_all:
                text, dropped = _own_words(text, is_forwarded)
                notes += dropped
            blocks += text_blocks(text)
    if subject and blocks:
        blocks.insert(0, Block(subject, 1))
    if blocks or not attachments:
        yield source.document(blocks, title=subject, notes=notes)
    yield from attachments


def _parts(part: MIMEPart, source: Source) -> tuple[list[MIMEPart], list[MIMEPart]]:
    """Returns the parts that make the body, in reading order, and those attached to it."""
    source.check_time()
    if part.get_content_maintype() != "multipart":
        is_text = part.get_content_type() in ("text/plain", "text/html")
        is_body = is_text and not part.is_attachment() and not part.get_filename()
        return ([part], []) if is_body else ([], [part])
    has_alternatives = part.get_content_type() == "multipart/alternative"
    bodies, attached = [], []
    for inner in part.iter_parts():
        body, beside = _parts(inner, source)
        bodies.append(body)
        is_named = inner.is_attachment() or inner.get_filename()
        # The body in another form, as a calendar, is no attachment.
        if not (has_alternatives and beside == [inner] and not is_named):
            attached += beside
    if has_alternatives:
        bodies = [_alternative(bodies, source.name)]
    return [each for body in bodies for each in body], attached


def _alternative(bodies: list[list[MIMEPart]], name: str) -> list[MIMEPart]:
    """Returns the one of several forms of a body that is read: plain text, unless it is blank."""
    for body in sorted(bodies, key=_has_html):
        if any(_text(part, name).strip() for part in body):
            return body
    return []


def _has_html(body: list[MIMEPart]) -> bool:
    return any(part.get_content_type() == "text/html" for part in body)


def _attachments(parts: list[MIMEPart], source: Source) -> tuple[list[Source], list[str]]:
    """Returns the attachments that may hold text, and a note about the others."""
    found, left_out = [], []
    names: set[str] = set()
    for number, part in enumerate(parts, 1):
        name = part.get_filename() or f"attachment {number}"
        content = _content(part)
        if content is None:
            left_out.append(name)
        else:
            name = f"{number}-{name}" if name in names else name
            names.add(name)
            # A message within a message has no name.
            is_mail = part.get_content_type() == "message/rfc822"
            inner = in_one_line(f"{source.name}/{name}")
            found.append(source.inner(inner, content, "message.eml" if is_mail else name))
    return found, [f"attachments not read: {', '.join(left_out)}"] if left_out else []


def _content(part: MIMEPart) -> bytes | None:
    """Returns what an attachment holds; None for pictures, sound, films and signatures."""
    is_signature = part.get_content_type() in _SIGNATURES
    if part.get_content_maintype() in ("image", "audio", "video") or is_signature:
        return None
    if part.get_content_type() == "message/rfc822":
        return b"".join(bytes(each) for each in part.iter_parts())
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else None


def messages(source: Source) -> Iterator[Source | Failure]:
    """Yields the messages of a mailbox.

    Raises:
        InputError: no message in it.
    """
    starts = [match.end() for match in _SEPARATOR.finditer(source.content)]
    ends = [match.start() for match in _SEPARATOR.finditer(source.content)][1:]
    if not starts:
        raise InputError(f"{source.name}: no message in the mailbox; check the file")
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


def _own_words(text: str, is_forwarded: bool) -> tuple[str, list[str]]:
    """Returns a body without quoted mail and signature, and notes about these.

    What is forwarded stays, for it is what the mail tells.
    """
    notes = []
    signature = list(_SIGNATURE.finditer(text))
    if signature:
        text = text[: signature[-1].start()]
        notes.append("signature left out")
    if is_forwarded:
        return text, notes
    without = _QUOTED.sub("", _FORWARDED.sub("", _ANSWERED.sub("", text)))
    if without != text and without.strip():
        notes.append(_about_quoted(len(text) - len(without)))
        text = without
    return text, notes


def _about_quoted(num_chars: int) -> str:
    return f"quoted mail of {num_chars:,} characters left out"


def _header(message: EmailMessage, name: str) -> str | None:
    value = message[name]
    return str(value) if value else None
