"""Removes lines that the writer of a mail did not write: quoted mail and its header,
signatures, mailing list footers, notices of mail programs and companies.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

QUOTED = ">"  # first character of a quoted line

# Header field names that mail programs write above replied or forwarded mail.
_FIELD_NAMES = {
    "from": "from von de da van från fra od от lähettäjä kimden gönderen feladó mittente 发件人 "
    "寄件者 差出人 보낸사람",
    "sent": "sent gesendet envoyé enviado enviado-el enviada-em enviado-em inviato verzonden "
    "skickat sendt wysłano wysłane отправлено lähetetty gönderildi gönderilme-tarihi küldve "
    "odesláno 发送时间 发送日期 寄件日期 送信日時 보낸날짜",
    "date": "date datum data fecha dato дата tarih dátum päivämäärä 日期 日時",
    "to": "to an à a para aan till til do кому vastaanottaja kime címzett komu 收件人 收件者 宛先 "
    "받는사람",
    "copy": "cc kopie copia cópia kopia kopi dw копия 抄送 副本",
    "subject": "subject betreff objet asunto assunto oggetto onderwerp ämne emne temat тема aihe "
    "konu tárgy předmět 主题 主旨 件名 제목",
    "other": "reply-to importance priority attachments bcc antwort-an répondre-à",
}
_FIELDS = {
    name.replace("-", " "): kind
    for kind, names in _FIELD_NAMES.items()
    for name in names.split()
}
_FIELDS["reply-to"] = "other"
_LONGEST_LINE = 500  # characters of headers, rules and attributions
_FIELD = re.compile(
    r"[\s>|]*\*{0,2}([^\W\d_][^:\uff1a*\n]{0,20}?)\s*\*{0,2}\s*[:\uff1a]"
)

# Titles of separators before replied mail, before forwarded mail, and of Apple
# Mail.
_ORIGINAL = (
    "original message|reply message|(?:ursprüngliche |original-?)nachricht|"
    "message d['\u2019]origine|message original|mensaje original|mensagem original|"
    "messaggio originale|oorspronkelijk bericht|ursprungligt meddelande|originalmeddelande|"
    "oprindelig meddelelse|opprinnelig melding|wiadomość oryginalna|oryginalna wiadomość|"
    "исходное сообщение|původní zpráva|alkuperäinen viesti|özgün ileti|eredeti üzenet|原始邮件|"
    "元のメッセージ|원본 메시지"
)
_PASSED_ON = (
    "forwarded message|forwarded by .{1,60}|weitergeleitete nachricht|"
    "message (?:transféré|réexpédié)|mensaje reenviado|mensagem (?:re)?encaminhada|"
    "messaggio inoltrato|doorgestuurd bericht|vidarebefordrat meddelande|"
    "videresendt (?:meddelelse|melding)|przekazana wiadomość|wiadomość przekazana dalej|"
    "(?:пересылаемое|пересланное) сообщение|转发(?:的)?邮件|轉寄郵件|転送メッセージ"
)
_BEGINS = (
    "begin forwarded message|anfang der weitergeleiteten nachricht|"
    "début du message (?:réexpédié|transféré)|inicio del mensaje reenviado|"
    "início da mensagem (?:re)?encaminhada|inizio (?:del )?messaggio inoltrato|"
    "begin doorgestuurd bericht|vidarebefordrat brev|videresendt besked|"
    "początek przekazywanej wiadomości|начало переадресованного сообщения|下面是被转发的邮件"
)
_ANSWERED_RULE = re.compile(
    rf"\s*-{{2,}} ?(?:(?:{_ORIGINAL})|.{{1,100}}\bwrote:?) ?-{{2,}}\s*",
    re.IGNORECASE,
)
_FORWARD_RULE = re.compile(
    rf"[\s>]*(?:-{{2,}} ?(?:{_PASSED_ON}):? ?-{{2,}}|(?:{_BEGINS}) ?[:\uff1a])\s*",
    re.IGNORECASE,
)
# A line of ten or more rule characters, next to a header or footer.
_RULE = re.compile(r"\s*(?:[_\-=*~#]{10,}|(?:-=){5,}-?)\s*")

# "On Monday, Ann wrote:" in the languages of mail programs.
_WROTE = (
    r"(?:wrote|writes|schrieb(?:en)?|(?:a )?écrit|escribió|(?:ha )?scritto|escreveu|schreef|skrev|"
    r"napisał(?:\(a\)|a)?|пишет|(?:на)?писал(?:\(\u0430\)|\u0430)?|kirjoitti|yazd\u0131|írta|napsal(?:\(a\)|a)?|"
    r"写道|寫道|작성)"
)
_ADDRESS = r"(?:[<\[(]+(?:mailto:)?[^<>\s@]+@[^<>\s@]+[>\])]+)"
_ATTRIBUTIONS = (
    re.compile(
        r"(?:On|Am|Le|El|Il|Em|Op|Den|D\.|Dnia|W dniu|Dne|På|V)\b"
        rf".{{0,300}}\b{_WROTE}.{{0,100}}[:\uff1a]",
        re.IGNORECASE,
    ),
    # A date, a name and an address.
    re.compile(rf"(?=.{{0,25}}\d).{{1,200}}{_ADDRESS}.{{0,60}}[:\uff1a]"),
    re.compile(
        rf"[^.!?]{{1,60}}(?:{_ADDRESS} )?{_WROTE}(?: ?\([^()]*\)| [^.!?]{{0,40}}\d)?\s?:"
    ),
    re.compile(rf"[^.!?]{{1,60}}{_ADDRESS} {_WROTE}.{{0,60}}:"),
    re.compile(r"(?:Quoting|Citando|Zitat von) .{1,100}:"),
    re.compile(rf"\* .{{0,60}}{_ADDRESS} [\[(].{{1,40}}[\])]:"),
)
_HAS_ADDRESS = re.compile(_ADDRESS)
# Attributions before quoted lines without marks: the word "wrote", or a time in
# front of an address at the end. Others may be sentences of the writer.
_UNMARKED = re.compile(
    rf"{_WROTE}|^(?:Quoting|Citando|Zitat von|\*) "
    r"|\d[:.h]\d\d\b.{0,100}<[^<>\s@]+@[^<>\s@]+>\s*[:\uff1a]\s*$",
    re.IGNORECASE,
)
_LONGEST_ATTRIBUTION = 3  # lines

_DASHES = re.compile(r"--[ \xa0]?")
# lines after dashes that lack the space of a signature separator
_LONGEST_SIGNATURE = 10
# Mail programs and devices in lines such as "Sent from my iPhone".
_PROGRAMS = (
    r"(?:my |mein(?:em|er) |mon |ma |mi |min |mijn |meu |mio |dal mio |moj\w+ |моего )?"
    r"(?:\w+[\s-])?(?:iphone|ipad|android|galaxy|samsung|huawei|xiaomi|pixel|blackberry|nokia|"
    r"windows|mobile|phone|telephone|smartphone|handy|tablet|mobil\w*|outlook|yahoo|gmx|web\.de|"
    r"aol|proton|mail|thunderbird|mailbird|spark|airmail|k-9|fairemail|телефона|устройства)\b"
)
_DEVICE = re.compile(
    r"(?:(?:sent|gesendet|envoyé|enviado|enviada|inviato|verzonden|verstuurd|skickat|sendt|wysłane|"
    r"wysłano|отправлено|lähetetty)\b"
    r"(?: (?:from|with|via|by|using|von|mit|über|de|depuis|à partir de|desde|do|con|com|da|dal|"
    r"vanaf|met|från|fra|z|\u0441|из|через))+ "
    rf"(?:the |der |l['\u2019]|un |une )?{_PROGRAMS}[^.!?]{{0,60}}[.!]?"
    r"|von mein(?:em|er) .{1,40} gesendet\.?|diese nachricht wurde von mein.{1,60} gesendet\.?"
    r"|get outlook for .{1,60}|outlook für .{1,60} beziehen|holen sie sich outlook für .{1,60}"
    r"|(?:télécharger|obtenez|obtener|obtenha|scarica|ottieni|download|hämta|hent|pobierz) "
    r"(?:o )?outlook .{1,60}|lähetetty \w+sta|iphoneから送信|从我的\w+发送|發自我的 ?\w+"
    r"|(?:mit der|with the) .{1,30} mail app gesendet)",
    re.IGNORECASE,
)
# Words of mailing list footers below a rule, and sentences that begin footers
# without one.
_LIST_WORDS = re.compile(
    r"mailing.?list|listinfo|unsubscribe|google groups|groups\.io|yahoo groups|\bsympa\b|mailman|"
    r"liste de diffusion|désabonn|désinscri|lista de (?:correo|discuss)|abmelde|afmelden|"
    r"subscribed",
    re.IGNORECASE,
)
_LONGEST_FOOTER = 12  # lines
_LIST_SENTENCE = re.compile(
    r"(?:to (?:un|post|manage|change your)\w*.{0,60}(?:list|group|subscri|unsubscri|visit|send)|"
    r"you (?:received|are receiving|have received) this (?:message|e-?mail) because|"
    r"you are (?:currently )?subscribed to)",
    re.IGNORECASE,
)
# Phrases of confidentiality notices, and names of a mail, one of which a notice
# contains.
_NOTICES = re.compile(
    r"\bconfidential\b|\bprivileged\b|intended (?:solely|only|exclusively)? ?(?:for|recipient)|"
    r"received (?:it|this (?:e-?mail|message|communication)) (?:in|by) (?:error|mistake)|"
    r"not the (?:intended|named) (?:recipient|addressee)|notify (?:the|us|me)|\bdisclos|"
    r"delete (?:it|this|the)|"
    r"vertraulich|irrtümlich|(?:nicht der|nicht für) .{0,40}(?:adressat|empfänger)|"
    r"unbefugt|vernichten sie|informieren sie|"
    r"confidentiel|destinataire|par erreur|détrui|"
    r"confidencia|destinatari|por (?:error|engano)|per errore|riservat|notifi(?:que|car)|"
    r"vertrouwelijk|geadresseerde|ten onrechte|konfidentiell|avsedd|av misstag|fortrolig|"
    r"poufn|конфиденциальн",
    re.IGNORECASE,
)
_THE_MAIL = re.compile(
    r"e-?mail|\bmail|message|communication|transmission|nachricht|courriel|mensaje|correo|mensagem|"
    r"messaggio|bericht|meddelande|meddelelse|melding|wiadomość|сообщение",
    re.IGNORECASE,
)
_MOST_ENDINGS = 10
# phrases of a confidentiality notice; ordinary letters contain at most one
_FEWEST_NOTICES = 2
_PRINTING = re.compile(
    r"\W*(?:(?:please )?(?:consider|think of) (?:the|our) environment before printing"
    r"|bitte (?:denken|prüfen) .{1,80}(?:drucken|ausdruck)"
    r"|(?:pensez|merci de penser) à l['\u2019]environnement|antes de imprimir"
    r"|prima di stampare|denk aan het milieu).{0,100}",
    re.IGNORECASE,
)


_SIGNED = "-----BEGIN PGP SIGNED MESSAGE-----"
_PGP_SIGNATURE, _PGP_END = (
    "-----BEGIN PGP SIGNATURE-----",
    "-----END PGP SIGNATURE-----",
)


class OwnLines(NamedTuple):
    """The lines of a mail that are its content.

    Attributes:
        lines: lines of the input; None for a removed line. Forwarded lines lack
            their quotation marks.
        notes: one note for each kind of removed lines, except quoted ones.
        num_quoted: number of characters of the removed quoted mail.
        is_forward: True if the content was written by others.
    """

    lines: list[str | None]
    notes: list[str]
    num_quoted: int = 0
    is_forward: bool = False


def own_lines(lines: Sequence[str], *, is_forward: bool) -> OwnLines:
    """Removes the lines that the writer of a mail did not write.

    Quoted lines are removed together with the line that introduces them;
    replies between them are kept. Everything after the header of a replied mail
    is removed. The content of a forwarded mail is kept, without its header. If
    no other text remains, a reply is treated as a forwarded mail.

    Args:
        lines: lines of the mail's body.
        is_forward: True if the subject marks the mail as forwarded.
    """
    lines = _without_armor(lines)
    header = _first_header(lines)
    is_forward = is_forward or (header is not None and header.is_forward)
    if not is_forward:
        answer = _without_history(lines, header)
        if any((line or "").strip() for line in answer.lines):
            return answer
    return _with_forwarded(lines, header)


def _without_armor(lines: Sequence[str]) -> Sequence[str]:
    """Returns lines in which the PGP armor around signed text is blank."""
    if _SIGNED not in lines or _PGP_SIGNATURE not in lines:
        return lines
    start = lines.index(_SIGNED)
    end = lines.index(_PGP_SIGNATURE)
    blank = next((i for i in range(start, end) if not lines[i].strip()), end)
    text = [line.removeprefix("- ") for line in lines[blank:end]]
    rest = lines[end:]
    if _PGP_END in rest:
        close = rest.index(_PGP_END) + 1
    else:
        close = len(rest)
    return [
        *lines[:start],
        *[""] * (blank - start),
        *text,
        *[""] * close,
        *rest[close:],
    ]


def has_forward(lines: Sequence[str]) -> bool:
    """Returns True if the first mail inside this one was forwarded, not replied to."""
    header = _first_header(lines)
    return header is not None and header.is_forward


class _Header(NamedTuple):
    """The position of a header inside a body: ``lines[start:end]``."""

    start: int
    end: int
    is_forward: bool


def _first_header(lines: Sequence[str]) -> _Header | None:
    end = 0
    for start, line in enumerate(lines):
        if (
            start < end
            or len(line) > _LONGEST_LINE
            or line.lstrip().startswith(QUOTED)
        ):
            continue
        is_forward = _FORWARD_RULE.fullmatch(line) is not None
        if is_forward or _ANSWERED_RULE.fullmatch(line) is not None:
            return _Header(
                start, _end_of_fields(lines, start + 1)[0], is_forward
            )
        if _field(line) is None:
            continue
        end, kinds = _end_of_fields(lines, start)
        # The date and the places of a journey are not a header.
        is_mail = "subject" in kinds or any(
            "@" in field for field in lines[start:end]
        )
        if {"from", "sent"} <= kinds or (is_mail and {"from", "date"} <= kinds):
            while start and (
                not lines[start - 1].strip()
                or _RULE.fullmatch(lines[start - 1])
            ):
                start -= 1
            return _Header(start, end, is_forward=False)
    return None


def _end_of_fields(lines: Sequence[str], start: int) -> tuple[int, set[str]]:
    """Returns the end of the header that begins at ``start``, and the kinds of its fields.

    An empty line may separate two fields, unless sender and date have already
    been read. A field may continue on the next line with a list of addresses.
    """
    end = start
    kinds: set[str] = set()
    for number in range(start, len(lines)):
        line = lines[number]
        kind = _field(line)
        is_complete = "from" in kinds and not kinds.isdisjoint(("sent", "date"))
        if kind is not None and (
            number == end or lines[end].strip() or not is_complete
        ):
            kinds.add(kind)
            end = number + 1
            continue
        is_wrapped = line[:1].isspace() or lines[number - 1].rstrip().endswith(
            (",", ";")
        )
        if number == end > start and line.strip() and is_wrapped:
            end = number + 1
        elif number > end or (line.strip() and "@" not in line):
            break
    return end, kinds


def _field(line: str) -> str | None:
    match = _FIELD.match(line)
    if match is None:
        return None
    return _FIELDS.get(match.group(1).casefold())


def _without_history(lines: Sequence[str], header: _Header | None) -> OwnLines:
    end = len(lines) if header is None else header.start
    result: list[str | None] = [*lines[:end], *[None] * (len(lines) - end)]
    is_quoted = [line.lstrip().startswith(QUOTED) for line in lines[:end]]
    last_quoted = max((i for i in range(end) if is_quoted[i]), default=-1)
    for number in range(end):
        if is_quoted[number]:
            result[number] = None
        elif lines[number].rstrip().endswith((":", "\uff1a")):
            start = _attribution_start(lines, number)
            if start is None:
                continue
            following = next(
                (i for i in range(number + 1, end) if lines[i].strip()), None
            )
            if following is not None and is_quoted[following]:
                result[start : number + 1] = [None] * (number + 1 - start)
            elif last_quoted < number and _opens_unmarked(
                " ".join(lines[start : number + 1])
            ):
                # The rest is quoted without a mark.
                result[start:] = [None] * (len(lines) - start)
                break
    num_quoted = sum(
        len(line) + 1
        for line, result_line in zip(lines, result, strict=True)
        if result_line is None
    )
    return OwnLines(result, _drop_endings(result, 0), num_quoted)


def _opens_unmarked(attribution: str) -> bool:
    """Returns True if what follows an attribution is quoted although no line is marked."""
    return all(
        pattern.search(attribution) for pattern in (_HAS_ADDRESS, _UNMARKED)
    )


def _attribution_start(lines: Sequence[str], last: int) -> int | None:
    """Returns the first line of the attribution that ends in line ``last``; None if there is none.

    The longest match is used, since mail programs wrap attributions.
    """
    for start in range(max(0, last + 1 - _LONGEST_ATTRIBUTION), last + 1):
        part = [line.strip() for line in lines[start : last + 1]]
        if not all(part) or any(
            line.endswith((".", "!", "?", ":")) for line in part[:-1]
        ):
            continue
        if any(
            line.startswith(QUOTED) or len(line) > _LONGEST_LINE
            for line in part
        ):
            continue
        patterns = _ATTRIBUTIONS if start == last else _ATTRIBUTIONS[:2]
        if any(pattern.fullmatch(" ".join(part)) for pattern in patterns):
            return start
    return None


def _with_forwarded(lines: Sequence[str], header: _Header | None) -> OwnLines:
    result: list[str | None] = list(lines)
    start = 0
    if header is not None:
        # Apple Mail quotes the header like the text.
        start = header.start
        result[start : header.end] = [None] * (header.end - start)
    for number in range(start, len(lines)):
        line = result[number]
        if line is not None and line.lstrip().startswith(QUOTED):
            result[number] = line.lstrip()[1:].removeprefix(" ")
    notes = _drop_endings(result, start)
    if start:
        beginning = result[:start]
        notes += [
            note for note in _drop_endings(beginning, 0) if note not in notes
        ]
        result[:start] = beginning
    if header is not None:
        notes.append("header of forwarded mail left out")
    return OwnLines(result, notes, is_forward=True)


def _drop_endings(lines: list[str | None], start: int) -> list[str]:
    """Removes, in place, footers and signatures after the text of a mail; returns notes about them.

    Args:
        lines: lines of the mail; None for lines that are already removed.
        start: first line of the text, which is never removed as a whole.
    """
    notes: dict[str, None] = {}
    for _ in range(_MOST_ENDINGS):
        shown = [
            i for i in range(start, len(lines)) if (lines[i] or "").strip()
        ]
        ending = None
        if shown:
            ending = next(_endings(lines, shown), None)
        if ending is None:
            break
        first, end, note = ending
        lines[first:end] = [None] * (end - first)
        notes[note] = None
    return list(notes)


def _endings(
    lines: Sequence[str | None], shown: Sequence[int]
) -> Iterator[tuple[int, int, str]]:
    """Yields possible endings of a text: first line, end and note.

    Args:
        lines: lines of the text.
        shown: numbers of the remaining lines that are not blank.
    """
    texts = [lines[i] or "" for i in shown]
    end = shown[-1] + 1
    footer, signature, notice = (
        "footer left out",
        "signature left out",
        "notice left out",
    )
    for index in range(
        len(shown) - 1, max(0, len(shown) - 1 - _LONGEST_FOOTER), -1
    ):
        is_rule = _RULE.fullmatch(texts[index]) or _DASHES.fullmatch(
            texts[index]
        )
        if is_rule and _LIST_WORDS.search("\n".join(texts[index + 1 :])):
            yield shown[index], end, footer
    for index in range(len(shown) - 1, 0, -1):
        text = texts[index]
        num_after = len(shown) - 1 - index
        if text == "-- " or (
            _DASHES.fullmatch(text) and num_after <= _LONGEST_SIGNATURE
        ):
            # A signature ends before quoted lines, because replies may follow
            # them.
            following = range(shown[index] + 1, end)
            yield (
                shown[index],
                next((i for i in following if lines[i] is None), end),
                signature,
            )
    if len(shown) == 1:
        return
    if _DEVICE.fullmatch(texts[-1].strip()):
        yield shown[-1], end, signature
    first = len(shown) - 1
    while first and shown[first] == shown[first - 1] + 1:
        first -= 1
    paragraph = " ".join(" ".join(texts[first:]).split())
    if first == 0:
        return
    is_list = (
        _LIST_SENTENCE.match(paragraph)
        and "unsubscribe" in paragraph.casefold()
    )
    if is_list and re.search(r"@|://", paragraph):
        yield shown[first], end, footer
    phrases = {phrase.casefold() for phrase in _NOTICES.findall(paragraph)}
    if len(phrases) >= _FEWEST_NOTICES and _THE_MAIL.search(paragraph):
        yield shown[first], end, notice
    if _PRINTING.fullmatch(paragraph):
        yield shown[first], end, notice
