import itertools
import random
import re
import time
from pathlib import Path

import pytest

from longsum_jax.text.abbreviations import ABBREVIATIONS, STARTERS, WORDS
from longsum_jax.text.boundaries import split_line
from longsum_jax.text.languages import Style, text_style
from longsum_jax.text.sentences import bounded_sentences, split_sentences

GOLD = Path(__file__).parent.parent / "golden" / "sentences.tsv"
CHARACTERS = (
    "aB1 .!?;:,'\"()[]-\n\t\u2026\u2019\u2018\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d\u3002\uff1f"
    "\uff08\uff09\u00a0\u2009\ud800\u0433\u03b1\u4f60\u0301\u200b\U0001f600\u061f\u0964\x00"
)


def ends_of(sentences):
    """Returns where sentences end, in characters but white space."""
    lengths = [len("".join(sentence.split())) for sentence in sentences]
    return set(itertools.accumulate(lengths))


def gold_cases():
    """Yields language, kind, part and sentences."""
    for line in GOLD.read_text(encoding="utf-8").splitlines():
        language, kind, part, *sentences = line.split("\t")
        yield language, kind, part, sentences


def errors_of(kind, sentences):
    text = ("" if kind == "script" else " ").join(sentences)
    return len(ends_of(split_sentences(text)) ^ ends_of(sentences))


@pytest.mark.parametrize(("part", "most"), [("seen", 0.01), ("held", 0.04)])
def test_few_boundaries_of_the_gold_set_are_wrong(part, most):
    cases = [case for case in gold_cases() if case[2] == part]
    boundaries = sum(len(sentences) - 1 for *_, sentences in cases)
    assert sum(errors_of(kind, sentences) for _, kind, _, sentences in cases) < most * boundaries


@pytest.mark.parametrize(
    "sentences",
    [
        ["The firm hired Ms. Moran for that."],
        ["The firm hired Ann (now Ms.) Moran for that."],
        ["See Figs. 4 and 5 for this.", "They differ."],
        ["It is approx. 30 ft. wide and 9 in. deep.", "Nobody swims there."],
        ["A. M. O'Leary and A.M. O'Leary agree."],
        ["Das war im 19. Jahrhundert am 4. Juni so.", "Danach war es still."],
        ["L'art. 9 et l'art. 10 s'appliquent."],
        ["She waited... and then left.", "It was late...", "Nobody came."],
        [
            "It rained.\u200f",
            "\u202bThe dam broke.\u202c",
            "All left.\u200b",
            "He stayed.\ufeff",
            "So did I.",
        ],
        ["**It rained.**", "*The dam broke.*", "_All left._", "***He stayed.***", "So did I."],
        [
            "It rained.\u00b9",
            "The dam broke.\u00b2\u00b3",
            "All left.\u2020",
            "He stayed.*",
            "So did I.",
        ],
        ["It rained.[^1]", "The dam broke.[^a-note]", "So did I."],
        ["Roe *v.* Wade and Doe *et al.* agree with **Dr.** Moran.", "They won."],
        ["Delete report.* and backup.* at www.\u200bexample.\u200bcom.", "They are old."],
        ["And lo! there it was.", "What? did he go?", "Yes."],
        ["They cite Fed. R. Civ. P. 9(b) and 15 U.S.C. § 78j.", "The claim fails."],
        ["He read Moran et al. (2019), pp. 12-14, i.e. the whole.", "It took an hour."],
        ["The act was signed by Ann F. Moran Jr. and others.", "He then left."],
        ["It opens at 9 a.m. on Mondays.", "It closes at 5 p.m.", "The bus waits."],
        ["It fell to 1.9 ms.", "Writes took 3 kB at 50 Hz.", "Nobody noticed."],
        ["I read the e-mail.", "gRPC is off.", "iPhone users saw it.", "So it goes."],
        ["They came from the U.S. in May.", "Some went back to the U.S.", "The rest stayed."],
        ["It was built in spring.3", "Nobody knows why."],
        [
            "It is old.[12]",
            "It is wide.[a][nb 2]",
            "It fell.[5]: 14",
            "So it goes.[citation needed]",
        ],
        ["\u201cIt is late. We should go,\u201d she said.", "They left."],
        ['"Is it late?" Moran asked.', '"It is."', "They left."],
        ["1. The first rule is short.", "The second is not."],
        ["He grew vitamin C.", "The rest was plan B.", "They sold it."],
        ["It uses CCA.", "The result was OK.", "A head is an NP.", "We say so."],
        ["SEE FIG. 2 OF IT.", "THE REST IS IN SEC. 3 OF IT."],
        ["Der Weg ist lang, VGL. S. 4 von 9.", "Er ist alt und schmal."],
        ["El Sr. Ruiz vive en EE. UU. desde mayo.", "Nadie lo sabe."],
        ["Η πόλη είναι παλιά, βλ. σ. 4.", "Πού είναι η πύλη;", "Δεν ξέρω."],
    ],
)
def test_stops_are_decided_by_what_is_around_them(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


def test_lowered_texts_have_boundaries_before_small_letters():
    sentences = [
        "we grew e. coli and p. vivax for this study.",
        "the cells were counted after a week.",
        "was there growth?",
        "in most cases there was.",
        "they were then frozen.",
    ]
    assert split_sentences(" ".join(sentences)) == sentences
    assert text_style(" ".join(sentences)).is_lowered
    assert not text_style("They saw it. " + " ".join(sentences[:2])).is_lowered


def test_chinese_quotations_hold_what_is_said_of_them():
    sentences = [
        "\u201c船走了。\u201d他说。",
        "\u201c真的？\u201d她问道。",
        "她答道：\u201c是的。\u201d",
        "天黑了。",
    ]
    assert split_sentences("".join(sentences)) == sentences


def test_slices_of_a_line_are_the_line():
    rng = random.Random(0)
    for length in (1, 2, 3, 8, 30, 200):
        for _ in range(150):
            line = "".join(rng.choices(CHARACTERS, k=length))
            for inside_marks in (False, True):
                for style in (Style(), Style("de"), Style("el"), Style("en", is_lowered=True)):
                    slices = split_line(line, style, inside_marks=inside_marks)
                    assert "".join(slices) == line
            without_space = "".join(line.split())
            assert "".join("".join(split_sentences(line)).split()) == without_space
            assert "".join("".join(bounded_sentences(line)).split()) == without_space


def test_a_long_text_splits_like_its_paragraphs():
    cases = [sentences for language, *_, sentences in gold_cases() if language == "en"]
    paragraphs = [" ".join(sentences) for sentences in cases]
    text = "\n\n".join(paragraphs)
    style = text_style(text)
    expected = [part.strip() for paragraph in paragraphs for part in split_line(paragraph, style)]
    assert split_sentences(text) == expected


@pytest.mark.parametrize(
    "unit",
    [
        ".",
        ". ",
        '"',
        '"Yes. ',
        '"a "b" ',
        "(",
        "(a) (",
        "\u201ca. ",
        "\u2018a\u2019b ",
        "'A b'c ",
        "\u00bba ",
        "\u300c\u3002",
        "A. ",
        "1. ",
        "a.\u00a0",
        "a.[1]",
        "- ",
        "a.b",
        "?! ",
        "\u2026 ",
        "***",
        "\u200b",
    ],
)
def test_time_is_linear(unit):
    def seconds(count):
        start = time.process_time()
        split_sentences("a. " + unit * count)
        split_sentences("a." + unit * count + " A")
        return time.process_time() - start

    seconds(100)
    count = 4000
    assert seconds(8 * count) < 24 * seconds(count) + 0.5


def test_classes_of_abbreviations_are_disjoint():
    for language, table in ABBREVIATIONS.items():
        words = [word for kind, words in table.items() if kind != "unit" for word in words.split()]
        assert len(words) == len(set(words)), language
        assert not [word for word in words if word.endswith(".")]
    assert STARTERS.keys() == ABBREVIATIONS.keys() == WORDS.keys()
    assert all(word == word.lower() for words in STARTERS.values() for word in words.split())
    assert not re.search(r"\d", "".join(STARTERS.values()))


def test_sounds_without_vowels_are_words():
    spoken = ["Hmm.", "I see.", "Well, mm.", "Yes, mhm.", "Shh.", "He left."]
    assert split_sentences(" ".join(spoken)) == spoken
    assert split_sentences("It has xxx. Part two has xxxx. End.") == [
        "It has xxx.",
        "Part two has xxxx.",
        "End.",
    ]
