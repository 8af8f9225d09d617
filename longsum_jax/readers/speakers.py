"""Speaker names before spoken text: "Anna Lund: ...", "Speaker 1: ...", "[Moderator] ..."."""

import re
from collections import Counter
from collections.abc import Collection, Iterable

from longsum_jax.text.person_names import is_capitalized, words_of_name

# Direction marks, which WhatsApp puts before notices and around numbers.
DIRECTION_MARKS = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")
LONGEST_NAME = 60  # characters
MOST_WORDS = 7  # maximum of a name
# A name and a colon, or a name in brackets.
NAMED = re.compile(
    rf"[ \t]*\*{{0,2}}(?:(?P<name>[^\W_+~\[(<][^:\uff1a*\n?!;<>\u201c\u201d\"]{{0,{LONGEST_NAME}}}"
    rf"|[+~][^:\uff1a\n?!;<>]{{3,{LONGEST_NAME}}})\*{{0,2}}(?::\*{{0,2}}(?=\s|\Z)|\uff1a)"
    rf"|\[(?P<bracketed>(?=.{{0,9}}[^\W\d_]{{3}})[^\[\]:<>\n]{{3,{LONGEST_NAME}}})\](?::|(?=[ \t]))"
    rf"|\((?P<rounded>(?=.{{0,9}}[^\W\d_]{{3}})[^():\n]{{3,{LONGEST_NAME}}})\):)[ \t]*"
)
# Pronouns after a name, as in "Anna Lund (she/her)".
_PRONOUNS = re.compile(
    r"\s*[\[(](?:she|he|they|ze|xe|any|sie|er|elle|il|iel|ella|él|elles?|lei|lui|ela|ele|zij|hij|"
    r"hen|hon|han|hun|de|dey|она|он|они)(?: ?[/|,] ?\w+)*(?: pronouns)?[\])]",
    re.IGNORECASE,
)
_RECEIVERS = re.compile(r"From (\S.*?)(?:\s+to\s+\S.*)?")  # in Zoom chats
# Words before a colon that are not names.
_LABEL_WORDS = """
abstract act action actions address agenda aim answer appendix article aside assignee attendees
attention author background bonus caption cause caution chapter city clause comment comments
conclusion conclusions context cook date day deadline decision decisions definition description
details difficulty due email episode example examples exercise exhibit explanation fact facts fig
figure finding findings goal he hint hints http https i idea important info information
ingredients input issue it item items key language lemma lesson level location mail method methods
module month motivation name next note notes objective open options or output owner page paragraph
part participants phone place point preparation prerequisites present priority problem proof
proposition purpose question questions quote reason reasons recommendation references reminder
remark remarks resolution resolved result results risk risks rule scene season section see serves
she solution source sources stage state status step subject summary table task tasks theorem they
time times tip tips title todo topic topics total translation type unit update url usage use verse
version warning week we website where with year yield debug error fatal trace warn critical notice
achtung adresse aktion antwort aufgabe aufgaben beispiel beschluss bemerkung betreff datum
ergebnis frage hinweis maßnahme name nächste ort quelle thema tipp titel uhrzeit zeit
zusammenfassung acción asunto conclusión decisión ejemplo fecha hora lugar nota pregunta respuesta
tema título adresse décision exemple heure lieu objet question remarque réponse sujet titre feat
fix docs chore refactor test tests style perf build
"""
_LABELS = frozenset(_LABEL_WORDS.split())
_NUMBER = re.compile(r"[\s.#№\d]+\Z")
_FEWEST_TURNS = 4
_CHARS_PER_WORD = 6
_FEWEST_WORDS = 2.0  # average words of a turn; field values are shorter


def plain_name(name: str) -> str:
    """Returns a name without pronouns, enclosing brackets, receivers and direction marks."""
    name = DIRECTION_MARKS.sub("", name)
    match = _RECEIVERS.fullmatch(name)
    name = match[1] if match is not None else name
    name = _PRONOUNS.sub("", " ".join(name.split()))
    return name.lstrip("~ ").strip("[]<> ").removesuffix(" -").strip() or name


def split_turn(line: str) -> tuple[str, str] | None:
    """Returns a possible speaker's name at the beginning of a line, and the text after it."""
    head = line[: LONGEST_NAME + 10]
    # faster than the pattern
    if ":" not in head and "\uff1a" not in head and "[" not in head:
        return None
    match = NAMED.match(line)
    if match is None:
        return None
    name = plain_name(match["name"] or match["bracketed"] or match["rounded"])
    if (
        not any(map(str.isalnum, name))
        or len(words_of_name(name)) > MOST_WORDS
        or is_label(name)
    ):
        return None
    return name, line[match.end() :].strip()


def is_label(name: str) -> bool:
    """Returns True if a word before a colon names a kind of text, such as "Note" or "Step 2"."""
    return _NUMBER.sub("", name).casefold().strip("*_- ") in _LABELS


def speakers_in(
    turns: Collection[tuple[str, str]], num_parts: int, share: float
) -> set[str]:
    """Returns the names of speakers if a text is a transcript; otherwise an empty set.

    Args:
        turns: names and the text after them, as returned by ``split_turn``.
        num_parts: number of lines or cues of the text.
        share: minimum share of lines or cues that begin with a repeated name.
    """
    counts = Counter(name for name, _ in turns)
    repeated = {name for name, count in counts.items() if count > 1}
    utterances = [words for name, words in turns if name in repeated]
    if len(utterances) < max(_FEWEST_TURNS, share * num_parts):
        return set()
    num_words = sum(len(words.split()) for words in utterances)
    num_chars = sum(map(len, utterances))  # for languages without spaces
    if max(num_words, num_chars / _CHARS_PER_WORD) < _FEWEST_WORDS * len(
        utterances
    ):
        return set()
    return repeated | {name for name in counts if looks_like_name(name)}


def looks_like_name(name: str) -> bool:
    """Returns True if a name is short and its words begin with capitals or digits."""
    return len(words_of_name(name)) <= 4 and is_capitalized(name)


def repeated_share(names: Iterable[str]) -> float:
    """Returns the share of names that occur more than once."""
    counts = Counter(names)
    total = sum(counts.values())
    if total:
        return sum(count for count in counts.values() if count > 1) / total
    return 0.0
