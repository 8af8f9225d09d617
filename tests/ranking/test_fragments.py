import pytest

import longsum_jax
from longsum_jax.ranking.dependence import depend_on_previous
from longsum_jax.ranking.fragments import are_fragments
from longsum_jax.ranking.parsing import parse_document

PROSE = "The old bridge by the mill is in danger."


def kept(text):
    document = parse_document(text)
    result = are_fragments(document)
    return [each for each, gone in zip(document.sentences, result, strict=True) if not gone]


@pytest.mark.parametrize(
    "fragment",
    [
        "Yes.",
        "See below.",
        "p. 4.",
        "https://example.org/a/page/about/the/bridge.html.",
        "3.1 Results and discussion of it.",
        "### The proposal mentions advertising the field in the discovery protocol too.",
        "The steps are:",
        "Here is what the town should do with it:",
        "12.3 4.5 6.7 8.9 10.2.",
        "Stone bridge 12.3 4.5 6.7 8.9%.",
        "System Purity Inverse purity CU 0.72 0.88 IRST 0.75 0.80 PSNUS 0.73 0.82",
        "(2019) \u2212 12 \u00b1 3 | 4,500 | 17.5 \u00b1 2.",
        "Figure 1: The old bridge of stone and oak.",
        "Table 2. Costs of the bridge of stone. All are of this year, as are those of oak.",
        "Fig. 3 The old bridge of stone and oak in the town",
        "The old bridge of stone and oak by the mill in the middle of the town",
        "of the old bridge nothing is left in the town.",
        "(Such as the bridge that fell into the river of the town.",
        "The council has not thought about the bridge and\u2014.",
        ", of the old bridge nothing is left in the town.",
        "- closing the old bridge",
        "![The old bridge of stone and oak.](bridge.png)",
        "[Illustration: The old bridge is in danger.]",
        "And now here's Ann B. Lee.",
        "Here is our chief engineer, Ann Lee.",
        "Thank you, operator, and good morning, everyone.",
        "OPERATOR: Our next question comes from Ann Lee of the mill.",
        "I would now like to turn the call over to Ann Lee.",
        "This eBook is for the use of anyone anywhere at no cost.",
        "Dr. Ann Lee, thank you very much.",
        "This page of the bridge does not constitute financial or legal advice.",
        "Last updated: 8 January of the year of the bridge.",
        "IN WITNESS WHEREOF, the parties have signed the plan of the bridge.",
        "All notable changes to this bridge will be written down.",
        "Did you cross the old bridge? Leave a comment below, and follow us on the river!",
        "Click here to unsubscribe from the letter of the old bridge.",
        "What a wonderful week we had at the old bridge!",
        "Have a great weekend at the bridge by the mill!",
        "We hope you had a good summer at the bridge by the mill.",
        "Please don't hesitate to ask the council about the bridge.",
        "[Transcriber's Note: The spelling of the bridge was kept.]",
        "Copyright 1956 by the town of the old bridge.",
        "Well, I think you know what I mean by that.",
        "// Bridge is the type of all bridges of oak.",
        "```\nThe fenced lines of the bridge are code.\nAll of them are code.\n```",
    ],
)
def test_fragments(fragment):
    assert kept(f"{PROSE}\n\n{fragment}\n\n{PROSE}") == [PROSE, PROSE]


@pytest.mark.parametrize(
    "sentence",
    [
        "Figure 1 shows that the bridge is old.",
        "In 2019, sales rose 12.3% to 4.5 million (2018: 4.0).",
        "The council has decided that the bridge will be closed this winter, for these reasons:",
        "We go there today.",
        "4.5 million people have crossed the bridge.",
        "- Close the old bridge by the mill before the winter of this year",
        "iPhone owners have seen the bridge.",
        "numpy.linalg has routines for the bridge.",
        "Here is the reason for the danger.",
        "The council, thanks to the mill, has built a bridge of stone.",
        "Have a good look at the bridge before you cross it.",
        "What a bridge of stone costs is known.",
        "Thanks to its oak the bridge stood in the river for two hundred years and a few more.",
        "The next question is how long the bridge will last.",
        "The old `bridge` of oak has a type ```Bridge``` and another one.",
        "\u6211\u4eec\u5728\u8fd9\u91cc\u770b\u4e66\u3002",
    ],
)
def test_sentences(sentence):
    assert kept(f"{PROSE}\n\n{sentence}") == [PROSE, sentence]


def test_names_and_fillers_are_not_content_of_talk():
    turns = [
        "Project Manager: The old bridge by the mill is closed in winter.",
        "User Interface: Which one was mine?",
        "User Interface: Mm-hmm, yeah, okay, nice.",
        "Project Manager: No rubber buttons, I think. Or something like that.",
        "User Interface: A scroll wheel costs less than ten buttons of rubber.",
        "Project Manager: Users can see that.",
    ]
    assert kept("\n".join(turns)) == [
        turns[0],
        turns[4],
    ]


def test_greetings_and_advertisements_are_not_content_of_talk():
    turns = [
        "MATT: Hello everyone, and welcome to the episode in which the old bridge falls.",
        "LAURA: We have two fantastic sponsors for tonight, first the makers of bridges of dice.",
        "MATT: Before we cross the bridge, we have some announcements to read, so hang tight.",
        "LAURA: The old bridge by the mill falls into the river.",
        "MATT: The sponsor of the bridge is the town, which paid for all of its stones.",
        "LAURA: The council of the town repairs the bridge in winter.",
    ]
    assert kept("\n".join(turns)) == turns[3:]


def test_text_after_a_fence_without_end_is_not_code():
    assert kept(f"{PROSE}\n\n```\n\n{PROSE}") == [PROSE, PROSE]


def test_texts_without_stops_or_capitals_have_no_unfinished_sentences():
    text = "the old bridge is in danger . it rots in the river . nobody swims in it ."
    assert len(kept(text)) == 3
    assert kept(text.replace(" .", " by now,"))


@pytest.mark.parametrize(("small", "count"), [(2, 5), (1, 4)])
def test_small_letters_are_fragments_if_more_than_six_tenths_begin_with_capitals(small, count):
    lines = [PROSE] * (5 - small) + ["the " + PROSE[4:]] * small
    assert len(kept("\n\n".join(lines))) == count


def test_a_book_is_what_stands_between_its_marks():
    text = "\n\n".join(
        (
            *("The Project Gutenberg eBook of Bridges", "It may be read by anyone at no cost."),
            *("*** START OF THE PROJECT GUTENBERG EBOOK BRIDGES ***", PROSE, PROSE),
            *("*** END OF THE PROJECT GUTENBERG EBOOK BRIDGES ***", "Donations are welcome here."),
        )
    )
    assert kept(text) == [PROSE, PROSE]


@pytest.mark.parametrize(
    ("sentence", "depends"),
    [
        ("It rots in the river.", True),
        ("However, oak rots in the river.", False),  # shown without "However"
        ("This bridge is old.", True),
        ("This report is about the bridge.", False),
        ("It is important that the bridge is closed.", False),
        ("Items of oak rot.", False),
        ("And so we went there.", False),
        ("In this case the bridge is old.", True),
        ("Until that point the bridge is safe.", True),
        ("In these days the bridge is old.", False),
        ("That was the end of the bridge.", True),
        ("That is to say, the bridge is old.", False),
        ("That bridge is old.", False),
        ("By these means the bridge was saved.", True),
        ("To solve this, the city closed the bridge.", True),
        ("Some of them cross the bridge.", True),
        ("When Ann learns of this, she mends the old bridge of oak.", True),
        ("Taken on that level, the old bridge of oak and stone is a good one.", True),
        ("Written for this paper, the plan of the bridge of oak and stone is good.", False),
    ],
)
def test_pronouns_and_connectives_depend_on_the_sentence_before(sentence, depends):
    result = depend_on_previous(parse_document(f"{PROSE} {sentence}\n\n{sentence}"))
    assert result.tolist() == [False, depends, depends]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Die Brücke ist alt und wird nicht mehr benutzt.", "Sie ist von der Stadt gebaut."),
        ("Le pont est vieux et il ne sera pas sûr dans la ville.", "Cependant, on le garde."),
        ("El puente de la ciudad es viejo y no se usa.", "Sin embargo, está en pie."),
    ],
)
def test_dependence_in_other_languages(first, second):
    result = depend_on_previous(parse_document(f"{first} {second} {first}"))
    assert result.tolist() == [False, True, False]


def test_a_text_behind_a_caption_is_none():
    text = "\n\n".join([PROSE] * 3) + f"\n\nFigure 1. The bridge of oak. {(PROSE + ' ') * 30}"
    assert kept(text) == [PROSE] * 33
    long = f"{PROSE}\n\n{PROSE} Table 2: The costs of the bridge. {PROSE}"
    assert kept(long) == [PROSE, PROSE]  # up to the end of the paragraph


def test_fragments_are_no_sentences_of_a_summary():
    text = f"{PROSE}\n\nFigure 1: The old bridge of oak is in danger.\n\nThe steps of it all are:"
    assert longsum_jax.summarize(text, length="100%").text == PROSE


def test_fragments_stand_where_there_is_nothing_else():
    assert longsum_jax.summarize("The steps are:").text == "The steps are:"
