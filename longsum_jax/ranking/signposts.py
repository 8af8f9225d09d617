"""Finds sentences that only point elsewhere: signposts, formulas and lists of works."""

import re

import numpy as np

from longsum_jax.ranking.parsing import ParsedDocument, is_stopped

_PART = (
    r"(?:sub-?)?(?:sections?|chapters?|parts?|appendi(?:x|ces)|tables?|figures?|figs?\.|"
    r"paragraphs?|"
    r"supplement\w*|additional files?|supporting information)"
)
_TELLS = (
    r"(?:describes?|presents?|discuss(?:es)?|introduces?|reviews?|outlines?|explains?|"
    r"gives?|shows?|lists?|"
    r"summari[sz]es?|reports?|provides?|contains?|covers?|concludes?|details?|"
    r"illustrates?|depicts?|"
    r"deals? with|turns? to|elaborates?|looks? at|evaluates?|compares?|conducts?|"
    r"analy[sz]es?)"
)
_TOLD = (
    r"(?:described|presented|given|shown|discussed|listed|provided|reported|"
    r"summari[sz]ed|found|"
    r"detailed|explained|outlined|illustrated|depicted|defined|included|available|seen|"
    r"introduced)"
)
_SIGNPOST = re.compile(
    rf"\b(?:in|see|refer to|cf\.) (?:the )?(?:following|next|remaining|this|previous|"
    rf"preceding|last|present|"
    rf"subsequent) {_PART}\b|"
    rf"\b(?:the|this) (?:following |next |remaining |last |rest of (?:the|this) |"
    rf"remainder of (?:the|this) )"
    rf"(?:{_PART}|paper|article|report|document|thesis)\b(?! of\b)|"
    rf"\bthis {_PART} (?:\w+ )?{_TELLS}\b|"
    rf"\b{_PART} [\dA-Z](?:[\d.]*\w)?\)? (?:then |also |briefly |"
    rf"first )?{_TELLS}\b(?! that)|"
    rf"\b(?:is|are|was|were|be|can be) (?:\w+ )?{_TOLD} (?:and \w+ )?(?:in|below|above|"
    rf"by|at)\b"
    rf"[^.]{{0,40}}\b(?:{_PART}|below|above|https?)\b|"
    rf"\b{_TOLD} (?:in detail )?(?:below|above)\.|"
    r"\b(?:paper|article|report|document|thesis|rest|"
    r"remainder) is (?:\w+ )?(?:organi[sz]ed|structured|arranged)\b|"
    rf"\A[\W_]*(?:we |i |let us )?(?:first|then|next|now|finally|also|will|briefly|here|"
    rf"below|before)?,? ?"
    rf"(?:we |i |let us )?{_TELLS}\b[^.]{{0,120}}\b(?:in|of) \[?(?:(?:the )?next |"
    rf"the following )?{_PART}\b|"
    r"\brefers? (?:the reader )?to \W*(?:appendix|section|table|figure|the appendix)|"
    r"\A[\W_]*(?:see|refer to|consult|for (?:more|further) (?:details?|information)|"
    r"for details|for (?:a|an) (?:full|detailed|complete|overview)|"
    r"(?:please )?note that the following)\b|"
    r"\b(?:(?:sub-?)?sections?|tables?|figures?|paragraphs?) below\b|"
    r"\bbefore delving\b|\bas follows\b|\bthe following (?:example|code|snippet|list|"
    r"table|diagram|steps)\b|"
    r"\A[\W_]*(?:an?|the|another|one|for|consider|as an?)[\w ,]{0,30} (?:example|"
    r"illustration)[\w ,]{0,30}:",
    re.IGNORECASE,
)
# One of these words is in every signpost; faster to search.
_SIGNPOST_WORDS = (
    *("section", "chapter", "appendi", "table", "figure", "fig", "paragraph"),
    *("part", "supp", "additional file", "paper", "article", "report", "above"),
    *("document", "thesis", "rest ", "remainder", "below", "follow", "http"),
    *("see ", "refer to", "consult", "detail", "information", "delving"),
    *("example", "illustration", "please"),
)
_FORMULA_WORDS = (
    *("denote", "let ", "where", "suppose", "assume", "given", "define", "="),
    *("\u2211", "\u220f", "\u222b", "\u2208", "\u2200", "\u2203", "\u201e"),
    " (",
)
# "Let T(k) denote", "score: where S is", a comma for a lost formula.
_FORMULA = re.compile(
    r"\A[\W_]*(?:let|where|suppose|assume|denote|given|define)\b[^.]{0,80}\b(?:denotes?|"
    r"be|is|are) (?:the|a|an)\b|"
    r": where\b|(?:^|\s)=(?=\s)[^=]*\s=\s|\s[\u2211\u220f\u222b\u2208\u2200\u2203]\s|"
    r"\bw\u201e|\s\(\s?\d{1,2}\s?\)\s+(?:where|with)\b",
    re.IGNORECASE,
)
_CITATION = re.compile(
    r"\b(?:arxiv(?: preprint|:)|preprint|in proceedings|proceedings of|in proc\.|proc\. of|"
    r"transactions on|journal of [A-Z]|pp\.? ?\d|pages \d|university press|"
    r"et al\.?[:,] (?:19|20)\d\d|"
    r"doi:|doi\.org|isbn)|"
    r"\A[\W\d]*(?:[A-Z][\w'\u2019-]+,? (?:[A-Z]\.[ -]?){1,3}(?:,|;| and|&|\())|"
    r"\A[\W\d]*(?:(?:[A-Z]\.[ -]?){1,3} ?[A-Z][\w'\u2019-]+(?:,| and) )",
    re.IGNORECASE,
)
_NAMED_WORK = re.compile(
    r"\A[\W\d]*(?:[A-Z][\w'\u2019-]+,? (?:[A-Z]\.[ -]?){1,3}(?:,|;| and|&|\()|"
    r"(?:[A-Z]\.[ -]?){1,3} ?[A-Z][\w'\u2019-]+(?:,| and) )"
)
_VENUE = re.compile(
    r"arxiv|proceedings|preprint|doi|pages \d|pp\.? ?\d", re.IGNORECASE
)
_LONGEST_WORK = 300  # characters
_YEAR = re.compile(r"\b(?:1[6-9]|20)\d\d[a-z]?\b")
_NUMBERED_ENTRY = re.compile(r"\s*(?:\[(\d{1,3})\]|(\d{1,3})\.)\s")
_BIBLIOGRAPHY = re.compile(
    r"[#=\s\d.]*(?:references?(?: cited)?|bibliography|works cited|literature(?: cited)?|"
    r"literaturverzeichnis|sources|further reading|bibliographie|bibliograf\u00eda|"
    r"acknowledge?ments?|funding|copyright|conflicts? of interests?|competing interests?|"
    r"authors['\u2019] contributions?)\W*",
    re.IGNORECASE,
)
_FEWEST_ENTRIES = 3
_SHARE_OF_YEARS = 0.6  # of the entries of a numbered list of works
_LONGEST_VERBLESS = 12  # words of a sentence that is searched for its verb
_SPELLED = re.compile(r"\b\w(?:-\w){2,}\b(?!-)")
_LOST_END = re.compile(
    r"(?:\b(?:the|an|and|or|of|as in|such as|e\.g|i\.e|from the|in the|and in|and for|"
    r"and by|and to|and with)\s*[.!?,;:]+\W*\Z)|"
    r"\b(?:in|by|of|with|from|see|section|sections|and|to|table|figure|"
    r"appendix) \?\W*\Z|\A\W*\d{1,2},? and\b",
    re.IGNORECASE,
)
# frequent finite verbs; most others end in "-ed" or are not in short phrases
_VERB_LIST = """
achieve achieves agree agrees allow allows am appear appears applies apply are
be became become becomes been began begin begins being believe bring brings
brought built buy calculate calculates call calls came can cannot carries cause
causes closes come comes consider considers consist consists contain contains
cost costs could create creates cut define defines depend depends describe
describes did die differ differs discuss discusses do does drop employ employs
encode encodes ensure ensures exist exists explain explains fail fails fall
falls fell felt find finds follow follows found gave generate generates get
gets give gives go goes got grew grow grows had hang happen happens has have
held help helps hit hold holds identifies identify implement implements improve
improves include includes increase increases indicate indicates involve
involves is keep keeps kept knew know knows lack lacks lay lead leads leave
leaves led left let lets lie lies like live lives look looks lose loses lost
made make makes may mean means meant meet met might move moves must need needs
offer offers open paid pay pays play plays present presents produce produces
propose proposes provide provides put puts ran reach reaches read reads receive
receives reduce reduces remain remains represent represents require requires
return returns rises rose run runs said sat saw say says see seem seems sees
sell sends sent serve serves set sets shall should show shows shut sit sits
sold speak spend spent spoke stand stands starts stay stays stood stop stops
suffer suffers supports take takes taught tell tells think thinks thought told
took tries try turn turns understand use uses varies vary want wants was went
were will win wins won work works would write writes wrote
"""
_VERBS = frozenset(_VERB_LIST.split())
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)?")
_FIRST_OF_VERBLESS = re.compile(
    r"\W*(?:[a-z]+ing|[a-z]+ed (?:in|by|for|as|on|to)|the|an?|not|another|of|no|all|in|"
    r"with|for|from|without)\b",
    re.IGNORECASE,
)


def are_signposts(document: ParsedDocument) -> np.ndarray:
    """Returns bool [n], True for sentences that announce where something is said.

    So are the beginnings of formulas, spelled words ("M-E-L-F."), sentences
    whose end is lost ("as in."), and lists of works with what follows them.
    """
    flags = np.array(
        [_is_signpost(sentence) for sentence in document.sentences], bool
    )
    return flags | _in_lists_of_works(document)


def _is_signpost(sentence: str) -> bool:
    lowered = sentence.lower()
    return (
        (
            any(word in lowered for word in _SIGNPOST_WORDS)
            and _SIGNPOST.search(sentence) is not None
        )
        or (
            any(word in lowered for word in _FORMULA_WORDS)
            and _FORMULA.search(sentence) is not None
        )
        or _LOST_END.search(sentence[-40:]) is not None
        or _SPELLED.search(sentence) is not None
    )


def are_verbless(document: ParsedDocument) -> np.ndarray:
    """Returns bool [n], True for short English phrases with a stop, but without a finite verb."""
    verbless = np.zeros(len(document.sentences), bool)
    if document.language not in ("en", ""):
        return verbless
    for number in np.flatnonzero(document.lengths <= _LONGEST_VERBLESS):
        sentence = document.sentences[number]
        if is_stopped(sentence) and _FIRST_OF_VERBLESS.match(sentence):
            verbless[number] = not any(
                map(_may_be_verb, _WORD.findall(sentence.lower())[1:])
            )
    return verbless


def _may_be_verb(word: str) -> bool:
    return word in _VERBS or word.endswith(
        ("ed", "n't", "'s", "\u2019s", "'re", "'m", "'ll", "'ve", "\u2019t")
    )


def _in_lists_of_works(document: ParsedDocument) -> np.ndarray:
    """Returns True for sentences under a heading of references, and for numbered works."""
    sentences = document.sentences
    works = np.array([_is_work(sentence) for sentence in sentences], bool)
    inside = np.zeros(len(sentences), bool)
    headings = np.flatnonzero(document.headings).tolist()
    for index, number in enumerate(headings):
        if _BIBLIOGRAPHY.fullmatch(sentences[number]):
            end = headings[index + 1] if index + 1 < len(headings) else None
            inside[number:end] = True
    # Headings are often detected inside of a list of works, or not at all.
    dated = np.array(
        [_YEAR.search(sentence) is not None for sentence in sentences]
    )
    return inside | works | _in_numbered_lists(document, dated)


def _is_work(sentence: str) -> bool:
    """Returns True if a sentence is an entry of a list of works, by its year and place."""
    if len(sentence) >= _LONGEST_WORK or _YEAR.search(sentence) is None:
        return False
    return _CITATION.search(sentence) is not None and (
        _NAMED_WORK.match(sentence) is not None
        or _VENUE.search(sentence) is not None
    )


def _in_numbered_lists(
    document: ParsedDocument, dated: np.ndarray
) -> np.ndarray:
    """Returns True for lines [1], [2], ... or 1., 2., ... of which most have a year."""
    inside = np.zeros(len(dated), bool)
    lines = np.flatnonzero(document.breaks > 0).tolist()
    entries: list[tuple[int, int, int]] = []  # first, end, number

    def close() -> None:
        with_year = sum(dated[first:end].any() for first, end, _ in entries)
        if len(
            entries
        ) >= _FEWEST_ENTRIES and with_year >= _SHARE_OF_YEARS * len(entries):
            inside[entries[0][0] : entries[-1][1]] = True
        entries.clear()

    for first, end in zip(lines, [*lines[1:], len(dated)], strict=True):
        mark = _NUMBERED_ENTRY.match(document.sentences[first])
        if mark is None:
            if entries and document.breaks[first] == 1:
                entries[-1] = (entries[-1][0], end, entries[-1][2])
            else:
                close()
            continue
        number = int(mark[1] or mark[2])
        if entries and number != entries[-1][2] + 1:
            close()
        entries.append((first, end, number))
    close()
    return inside
