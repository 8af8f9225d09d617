"""Word lists for features, and a light stemmer.

Stop words are in English, German, French and Spanish, cue words in English. In
texts in other languages these features are zero.
"""

import re
from collections.abc import Mapping

from longsum_jax.text.ngrams import unicode_words

# Minimum share of stop words; English documents have at least 0.16, German ones
# about 0.05.
_STOP_SHARE = 0.12
_FEWEST_WORDS = 100  # shorter texts are assumed to be English
_READ = 50_000  # characters
_SHORTEST_STEM = 3
_PLURALS = (("ies", "y"), ("sses", "ss"), ("s", ""))
_SINGULAR = ("ss", "us", "is")  # endings in which "s" is not a plural


def light_stem(word: str) -> str:
    """Removes common English endings: of plurals, then -ing, -ed and -ly, then a silent e.

    At least three letters with a vowel remain. The function is fast and needs
    no package; importing Porter's stemmer takes longer than ranking a book.
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
    if (
        stem == word
        or len(stem) < _SHORTEST_STEM
        or not any(char in "aeiouy" for char in stem)
    ):
        return word
    return stem + replacement


def _stems(words: str) -> frozenset[str]:
    return frozenset(map(light_stem, words.split()))


# Words without content, including words of talk.
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
# Words of talk that say little, in addition to the stop words.
FILLERS = _stems(
    "ah alright cool eh er hey hm huh kay mhm nah nice nope really sort sure thank thing uhm wow "
    "yep yes"
)

# Function words of other languages by ISO 639-1 code; English ones count in
# every text.
OTHER_STOP_WORDS: Mapping[str, frozenset[str]] = {
    "de": _stems(
        "aber alle allem allen aller alles als also am an ander andere anderen anderer anderes "
        "auch auf aus bei beim bereits bin bis bist da dabei dadurch dafür dagegen daher damit "
        "danach dann daran darauf daraus darin darüber das dass dazu dein deine dem den denn der "
        "deren des deshalb dessen dich die dies diese diesem diesen dieser dieses dir doch dort "
        "du durch eben ein eine einem einen einer eines einige einigen er es etwa etwas euch euer "
        "für gegen gewesen hab habe haben hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr "
        "ihre ihrem ihren ihrer ihres im in ins ist ja jede jedem jeden jeder jedes jedoch jene "
        "jetzt kann kein keine keinem keinen keiner können könnte konnte machen man manche mehr "
        "mein meine mich mir mit muss musste müssen nach neben nicht nichts noch nun nur ob oder "
        "ohne schon sehr sein seine seinem seinen seiner seines seit selbst sich sie sind so "
        "sogar solche soll sollte sollten sondern sonst sowie über um und uns unser unsere unter "
        "viel viele vom von vor während war waren was weil weiter welche welcher wenn wer werde "
        "werden wie wieder will wir wird wo worden wurde wurden würde würden zu zum zur zwar "
        "zwischen"
    ),
    "fr": _stems(
        "à ai ainsi alors après as au aucun aucune aussi autre autres aux avait avant avec avez "
        "avoir avons ayant beaucoup bien ça car ce ceci cela celle celles celui cependant ces cet "
        "cette ceux chaque chez comme comment contre dans de déjà depuis des donc dont du elle "
        "elles en encore entre es est et étaient était été êtes être eu eux fait faire fois font "
        "furent fut hors ici il ils je jusque la là le lequel les leur leurs lors lorsque lui ma "
        "mais me même mêmes mes moi moins mon ne ni non nos notre nous on ont or ou où par parce "
        "pas pendant peu peut peuvent plus plusieurs pour pourquoi près puis quand que quel "
        "quelle quelles quelque quelques quels qui quoi sa sans se selon sera seront ses si son "
        "sont sous souvent sur ta tandis te tel telle tes toi ton toujours tous tout toute toutes "
        "très trop tu un une vers voici vos votre vous y c d j l m n qu s t"
    ),
    "es": _stems(
        "a además al algo algunas algunos ahora ante antes aquel aquella así aun aún aunque bajo "
        "bien cada casi como con contra cual cuales cuando cuanto de del desde después donde dos "
        "durante e el él ella ellas ello ellos en entonces entre era eran es esa esas ese eso "
        "esos esta está estaba están estar estas este esto estos fue fueron ha habían había haber "
        "hace hacia han hasta hay incluso la las le les lo los luego más me menos mi mientras mis "
        "mismo misma mucho muchos muy nada ni no nos nosotros nuestra nuestro o os otra otras "
        "otro otros para pero poco por porque pues que qué quien quienes se sea según ser será si "
        "sí sido siempre sin sino sobre son su sus también tan tanto te tenía tiene tienen todo "
        "toda todas todos tras tu un una unas uno unos usted y ya yo"
    ),
}


def _beginning(words: str, other: str = r"(?!)") -> re.Pattern[str]:
    """Returns a pattern of sentences that begin with one of some words or phrases.

    Args:
        words: words and phrases, separated by commas.
        other: pattern of beginnings that are excluded.
    """
    return re.compile(
        rf"(?!{other})(?:{'|'.join(words.split(', '))})\b", re.IGNORECASE
    )


# Beginnings of sentences that depend on the previous sentence: pronouns and
# connectives, except connectives that are frequent in talk ("And", "So").
DEPENDENT: Mapping[str, re.Pattern[str]] = {
    "en": _beginning(
        "he, she, it, they, this, these, those, his, her, their, its, but, however, therefore, "
        "thus, hence, moreover, furthermore, otherwise, instead, nevertheless, nonetheless, "
        "consequently, similarly, likewise, accordingly, conversely, meanwhile, for example, for "
        "instance, in contrast, by contrast, as a result, on the other hand, in turn, in effect, "
        "in (?:this|that|these|those|such|both|either|each) (?:case|example|situation|scenario)s?, "
        "(?:at|until|from) (?:this|that|which) (?:point|time), "
        "(?:for|because of) (?:this|that|these|those) reasons?, "
        "(?:by|with) (?:this|that|these|those) (?:means|method|measure)s?, "
        "to (?:address|answer|avoid|overcome|solve) (?:this|that|these|those), "
        "that (?:is|was|would|will|does|did)(?! to say), (?:though|although) such, "
        "both (?:these|those), (?:both|some|many|most|all|none) of (?:these|those|them)",
        # "This paper presents", "It is known that"
        r"th(?:is|ese) (?:paper|article|study|thesis|report|document|work|proposal|specification|"
        r"section|chapter|book|guide|page|project|survey|review|year)\b|"
        r"it (?:is|was) [\w-]+(?: [\w-]+)? (?:that|to)\b",
    ),
    "de": _beginning(
        "er, sie, es, dies, diese, dieser, dieses, diesem, diesen, jedoch, aber, daher, deshalb, "
        "deswegen, darum, dadurch, dabei, dafür, dagegen, danach, daraufhin, darüber hinaus, "
        "außerdem, zudem, ferner, doch, dennoch, trotzdem, somit, folglich, zum beispiel, "
        "stattdessen, ebenso, seine, ihre, deren, dessen",
        r"es (?:gibt|gab)\b|diese[rsmn]? (?:arbeit|bericht|artikel|studie|dokument|jahr)",
    ),
    "fr": _beginning(
        "il, elle, ils, elles, ce, cela, ceci, cette, cet, ces, mais, donc, cependant, toutefois, "
        "pourtant, ainsi, de plus, en outre, néanmoins, par conséquent, par exemple, en effet, "
        "son, sa, ses, leur, leurs",
        r"il (?:y a|est|faut)\b|ce(?:t|tte)? (?:article|rapport|étude|document|travail|année)\b",
    ),
    "es": _beginning(
        "él, ella, ellos, ellas, esto, este, esta, estos, estas, eso, ese, esa, pero, sin embargo, "
        "no obstante, además, así, por lo tanto, por tanto, por eso, por ejemplo, en cambio, su, "
        "sus",
        r"est[ea] (?:artículo|informe|estudio|documento|trabajo|año)\b",
    ),
}


def is_english(text: str) -> bool:
    """Returns True if a text has as many stop words as English; short texts count as English."""
    words = unicode_words(text[:_READ])
    num_stops = sum(light_stem(word) in STOP_WORDS for word in words)
    return len(words) < _FEWEST_WORDS or num_stops >= _STOP_SHARE * len(words)


def shares_words(query: str, text: str) -> bool:
    """Returns True if a text has a word of a query, or if the query has only stop words."""
    other_words = frozenset().union(*OTHER_STOP_WORDS.values())
    stems = {light_stem(word) for word in unicode_words(query)}
    stems -= STOP_WORDS | other_words
    return not stems or not stems.isdisjoint(
        map(light_stem, unicode_words(text))
    )


# Words that indicate the function of a sentence.
CUES: Mapping[str, frozenset[str]] = {
    "we": _stems("we our us"),
    "i": _stems("i my me"),
    "you": _stems("you your"),
    "this": _stems("this these"),
    "they": _stems("it they he she that those"),
    "work": _stems("paper article study work report document proposal"),
    "propose": _stems(
        "propose present introduce describe provide define specify allow"
    ),
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

# Words in headings of the beginning and the end of a document's main part.
OPENING = _stems(
    "introduction overview abstract summary motivation rationale background preface"
)
CLOSING = _stems("conclusion conclusions discussion summary concluding future")
