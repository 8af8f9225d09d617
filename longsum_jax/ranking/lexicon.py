"""English words that features look for, and a light stemmer.

Texts in other languages have none of them: their features of stop words and cues are zero.
"""

from collections.abc import Mapping

from longsum_jax.text.ngrams import unicode_words

# Of words that are stop words; English documents have 0.16 at least, German ones about 0.05.
_STOP_SHARE = 0.12
_FEWEST_WORDS = 100  # shorter texts are not judged
_READ = 50_000  # characters
_SHORTEST_STEM = 3
_PLURALS = (("ies", "y"), ("sses", "ss"), ("s", ""))
_SINGULAR = ("ss", "us", "is")  # endings in which "s" is no plural


def light_stem(word: str) -> str:
    """Cuts common English endings off: of plurals, then -ing, -ed and -ly, then a silent e.

    At least three letters with a vowel among them are left. It is quick and needs no package;
    Porter's stemmer takes longer to import than a book takes to rank.
    """
    if not word.endswith(_SINGULAR):
        for ending, replacement in _PLURALS:
            if word.endswith(ending):
                word = _cut(word, ending, replacement)
                break
    for ending in ("ing", "ed", "ly"):
        if word.endswith(ending):
            word = _cut(word, ending)
            break
    return _cut(word, "e")


def _cut(word: str, ending: str, replacement: str = "") -> str:
    stem = word.removesuffix(ending)
    if stem == word or len(stem) < _SHORTEST_STEM or not any(char in "aeiouy" for char in stem):
        return word
    return stem + replacement


def _stems(words: str) -> frozenset[str]:
    return frozenset(map(light_stem, words.split()))


# Words without content of their own, those of talk included.
STOP_WORDS = _stems(
    "a about above after again against all also am an and any are as at be because been before "
    "being below between both but by can cannot could did do does doing don down during each few "
    "for from further had has have having he her here hers him his how i if in into is it its "
    "itself just ll me more most my no nor not now of off on once only or other our ours out over "
    "own re s same she should so some such t than that the their them then there these they this "
    "those through to too under until up us ve very was we were what when where which while who "
    "whom why will with would you your yours yeah okay ok um uh mm hmm oh like know think well "
    "right mean gonna"
)


def is_english(text: str) -> bool:
    """Tells whether a text has as many stop words as English; a short one counts as English."""
    words = unicode_words(text[:_READ])
    num_stops = sum(light_stem(word) in STOP_WORDS for word in words)
    return len(words) < _FEWEST_WORDS or num_stops >= _STOP_SHARE * len(words)


# Words that tell what a sentence does.
CUES: Mapping[str, frozenset[str]] = {
    "we": _stems("we our us"),
    "i": _stems("i my me"),
    "you": _stems("you your"),
    "this": _stems("this these"),
    "they": _stems("it they he she that those"),
    "work": _stems("paper article study work report document proposal"),
    "propose": _stems("propose present introduce describe provide define specify allow"),
    "result": _stems(
        "result results show find found suggest demonstrate indicate conclusion conclude "
        "significant"
    ),
    "contrast": _stems("however but although despite"),
    "new": _stems("new novel first improve improvement better problem"),
    "must": _stems("must should shall may can"),
    "refer": _stems("figure table section fig cit et al"),
    "filler": _stems("yeah okay ok um uh mm hmm oh"),
}

# Words of headings above the beginning and the end of what a document has to say.
OPENING = _stems("introduction overview abstract summary motivation rationale background preface")
CLOSING = _stems("conclusion conclusions discussion summary concluding future")
