import pytest

from longsum_jax.ranking.wording import (
    capitalized,
    connective_end,
    fluent,
    plain,
    whole_words,
    without_line_hyphens,
)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("[#a-b]_ Use it [#c]_, or not [*]_.", "Use it, or not."),
        ("See :pep:`327` and :py:data:`typing.TypeIs`.", "See PEP 327 and typing.TypeIs."),
        ("Use ``len`` or `Other`_ [1]_.", "Use `len` or Other."),
        ('In [part 4](https://a.b/c#d "Part") we **ask** _twice_.', "In part 4 we ask twice."),
        ("Buffalo <cit> carry it<sup>2</sup> &amp; more.", "Buffalo carry it & more."),
        ("It [fell][4], as told.[14][15]", "It fell, as told.[14][15]"),
        ("In [part 4] (https://a.b/c) we ask.", "In part 4 we ask."),
        ("**Node Network** A space of nodes.", "Node Network: A space of nodes."),
        ("The end is cool!.", "The end is cool!"),
        ("> **Warning** The old bridge is closed.", "The old bridge is closed."),
        ("\u00b6 5 We do not agree.", "We do not agree."),
        ("Spores <cit>, as in <cit>, of Lee et al. <cit>.", "Spores, as in <cit>, of Lee et al."),
        ("*Use* ``[*a, *b]`` and **`*c` too**.", "Use `[*a, *b]` and `*c` too."),
        ("RESULTS The mean rose.", "The mean rose."),
        ("Conclusions: the mean rose.", "the mean rose."),
        ("Introduction Long papers are read.", "Long papers are read."),
        ("4.1 Data Sets The mean rose.", "The mean rose."),
        ("Results show that it rose.", "Results show that it rose."),
        ("Discussion of the plan was long.", "Discussion of the plan was long."),
        ("Summary Judgment was granted.", "Summary Judgment was granted."),
        ("Well , I do n't know .", "Well, I don't know."),
        (
            "Names such as my_long_name and 2 * 3 * 4 stay.",
            "Names such as my_long_name and 2 * 3 * 4 stay.",
        ),
    ],
)
def test_marks_are_not_shown(sentence, expected):
    assert plain(sentence) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("um so yeah, it has to be uh a remote control.", "it has to be a remote control."),
        ("it it only takes a little energy, you know.", "it only takes a little energy."),
        ("I had had that that day.", "I had had that that day."),
        ("my view of you , you know , is high .", "my view of you, you know, is high."),
        ("use it if- if the tendon in- inserts.", "use it if the tendon inserts."),
        ("So no.", "So no."),  # nothing would be left
    ],
)
def test_talk_has_no_hesitations(words, expected):
    assert fluent(words) == expected


def test_words_that_line_ends_cut():
    words = whole_words("Hand, hour; heat, killed, up-beat; note, book, a note-\nbook. Notebook.")
    words |= whole_words("Intro- duction: the cut ends of words are none.")
    for sentence, expected in (
        ("An intro- duction to first- and last.", "An introduction to first- and last."),
        ("The hour- hand of heat- killed cells.", "The hour-hand of heat-killed cells."),
        ("A note- book.", "A notebook."),
        ("An up- beat end.", "An up-beat end."),
    ):
        assert without_line_hyphens(sentence, words) == expected


def test_capitals():
    assert capitalized("the bridge") == "The bridge"
    assert capitalized("iPhone owners") == "iPhone owners"


def test_connectives_before_a_comma():
    assert connective_end("However, the old bridge is in danger.") == len("However, ")
    assert connective_end("However old the bridge is, it stands.") == 0
