import pytest

from longsum_jax.text import sentences
from longsum_jax.text.ngrams import num_words
from longsum_jax.text.sentences import (
    LONGEST_PIECE,
    LONGEST_SENTENCE,
    SHORTEST_PIECE,
    bounded_sentences,
    join_wrapped_lines,
    sentence_spans,
    split_sentences,
    splitter_name,
)


def without_space(text):
    return "".join(text.split())


def test_abbreviations_do_not_end_a_sentence():
    text = "Dr. Smith et al. measured 3.5 kg. It was heavy! Was it? See Fig. 3."
    assert split_sentences(text) == [
        "Dr. Smith et al. measured 3.5 kg.",
        "It was heavy!",
        "Was it?",
        "See Fig. 3.",
    ]


def test_abbreviations_and_initials_of_russian():
    sentences = [
        "В 1147 г. город впервые упоминается в летописи.",  # noqa: RUF001
        "А. С. Пушкин родился в Москве 6 июня 1799 г. по новому стилю.",  # noqa: RUF001
    ]
    assert split_sentences(" ".join(sentences)) == sentences
    mixed = "The word город means a town, as Dr. Berg says. It is Russian."
    assert split_sentences(mixed) == [mixed[:46], mixed[47:]]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Der Vertrag gilt seit dem 3. Oktober 1990 und ist nicht befristet.", "Er ruht."],
        ["Das Werk kostet ca. 3 Mio. Euro und ist nicht versichert.", "Dr. Meyer zahlt."],
        ["La Sra. López y el Dr. Pérez viven en la casa de la pág. 3 del libro.", "Se van."],
        ["Il sig. Rossi è con la dott.ssa Bianchi e non parla di niente.", "Che peccato."],
        ["Dhr. Jansen en mevrouw De Vries wonen in het huis op de blz. Drie.", "Het regent."],
        ["O Sr. Silva e a Sra. Costa não moram em uma casa do Porto.", "Que pena."],
    ],
)
def test_abbreviations_and_dates_of_other_languages(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "text",
    [
        "Dr. de la Cruz and Mr. von der Leyen met in Den Haag.",  # too few words of one language
        "It is no. 5, as he was for El Ni\u00f1o de la Palma, or to be?",  # more words of English
    ],
)
def test_names_do_not_make_english_another_language(text):
    assert split_sentences(text) == [text]


@pytest.mark.parametrize("text", ["", " \n\t \r\n", "\u3000"])
def test_blank_text_has_no_sentences(text):
    assert split_sentences(text) == []


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_hard_wrapped_lines_are_joined_and_blank_lines_separate(newline):
    text = newline.join(
        ["A Title", "", "The first sentence goes", "over two lines. The second", "too.", "", "End"]
    )
    assert split_sentences(text) == [
        "A Title",
        "The first sentence goes over two lines.",
        "The second too.",
        "End",
    ]


def test_list_items_are_kept_apart():
    assert split_sentences("We need\n- apples\n- pears, which\n  are ripe\n2. plums") == [
        "We need",
        "- apples",
        "- pears, which are ripe",
        "2. plums",
    ]


def test_lines_of_wide_blocks_are_joined():
    long = (
        "a line that its writer broke because it was full, in a column of a hundred and ten or so"
    )
    wide = f"{long} and some words more than\nthe others have, which ends here."
    wide += f"\n- an item\n  {long}\n  of it"
    result = join_wrapped_lines(f"Title\n\n{wide}\n\n{long}\nnarrow enough")
    assert len(result) == len(f"Title\n\n{wide}\n\n{long}\nnarrow enough")
    assert result.split("\n") == [
        "Title",
        "",
        f"{long} and some words more than the others have, which ends here.",
        "- an item",
        f"  {long}   of it",
        "",
        long,
        "narrow enough",
    ]
    for text in ("", "one", "\n", f"{long * 2}\nmore", f"| {long} | {long[:20]} |\n| more"):
        assert join_wrapped_lines(text) == text


NARROW = [
    "We propose tools for the training of new",
    "models and adapt existing ones, which are",
    "often limited to sequences of a few hundred",
    "tokens. This is a drawback that we mend. An",
    "approach to approximate long sequences is",
    "introduced.",
]


def test_one_long_line_does_not_keep_the_lines_of_a_block_apart():
    long = "see the address " + "x" * 100 + ", where"
    lines = [*NARROW[:-1], long, "it can be found."]
    text = "\n".join(lines)
    expected = [
        f"{' '.join(NARROW[:3])} tokens.",
        "This is a drawback that we mend.",
        f"An {NARROW[4]} {long} it can be found.",
    ]
    assert split_sentences(text) == expected
    assert join_wrapped_lines(text) == text


@pytest.mark.parametrize(
    "lines",
    [
        [f"{line.capitalize()}," for line in NARROW],
        [f"if {name}: return {'very' * i}_long" for i, name in enumerate("abcdefgh")],
        [f"{name * 9}   {i}.50   the {name}" for i, name in enumerate("abcdefgh", 10)],
        ["Ann: so it is", "Bob: yes", "Ann: that is all of it then", "Bob: and more", "Ann: no"],
        [f"- {line}" for line in NARROW],
        ["def are_both(value: Both):", "# run --warn-about-it:", "if is_one(value, One):", "pass"],
    ],
)
def test_a_long_line_among_verses_rows_turns_items_or_code(lines):
    lines = [*lines, "x" * 120]
    assert split_sentences("\n".join(lines)) == [
        sentence for line in lines for sentence in split_sentences(line)
    ]


def test_lines_of_a_transcript_stand_alone():
    turn = f"Ann: this line is {'much ' * 20}too long to have been wrapped by hand"
    assert split_sentences(f"{turn}\nBob: yes\nAnn: right. Go on") == [
        turn,
        "Bob: yes",
        "Ann: right.",
        "Go on",
    ]


def test_text_without_punctuation_is_one_sentence():
    text = "word " * 5000
    assert split_sentences(text) == [text.strip()]


def lines_of(count, words, end="\n"):
    """Returns a talk written down without stops, in lines."""
    return end.join(" ".join(f"word{i}x{j}" for j in range(words)) for i in range(count))


@pytest.mark.parametrize("text", [lines_of(900, 7), lines_of(1, 6000), "我们在这里看书" * 500])
def test_text_without_punctuation_has_bounded_sentences(text):
    result = bounded_sentences(text)
    lengths = [num_words(piece) for piece in result]
    assert SHORTEST_PIECE <= min(lengths) <= max(lengths) <= LONGEST_PIECE
    assert without_space("".join(result)) == without_space(text)
    for start, end, piece in zip(*sentence_spans(text, result), result, strict=True):
        assert text[start:end].split() == piece.split()
        assert "\n" not in piece


def test_pieces_end_at_lines_or_better_at_clauses():
    assert {len(piece.split()) % 7 for piece in bounded_sentences(lines_of(50, 7))} == {0}
    clauses = lines_of(20, 27, end=", ")
    assert {piece[-1] for piece in bounded_sentences(clauses)[:-1]} == {","}
    mixed = clauses.replace("word1x9 ", "word1x9; ")
    assert bounded_sentences(mixed)[0].endswith("word1x9;")


def test_pieces_of_text_without_word_spaces_end_at_its_spaces():
    clauses = ["โรงเรียนจะปิดเรียนในเดือนเมษายน", "อาคารเรียนใหม่จะเปิดใช้ในเดือนพฤษภาคม"] * 4
    pieces = bounded_sentences(" ".join(clauses))
    assert len(pieces) > 1
    assert [clause for piece in pieces for clause in piece.split()] == clauses


def test_pieces_of_talk_begin_with_conjunctions():
    talk = " ".join(["the old bridge is in danger and it rots"] * 20)
    assert {piece.split()[0] for piece in bounded_sentences(talk)[1:]} == {"and"}


def test_long_sentences_with_a_stop_stay_whole():
    whole = lines_of(1, LONGEST_SENTENCE) + "."
    short = lines_of(1, LONGEST_PIECE)
    text = f"{whole}\n\n{short}\n\nOne more."
    assert bounded_sentences(text) == split_sentences(text) == [whole, short, "One more."]
    assert len(bounded_sentences(f"more {whole}")) > 1
    assert len(bounded_sentences(f"more {short}")) == 2


@pytest.mark.parametrize("marks", ['""', "\u201c\u201d", "()", "''"])
def test_long_quotations_are_split_into_their_sentences(marks):
    inner = [f'Sentence {i} is of Mr. Smith\'s "old" house.' for i in range(30)]
    text = f"He said {marks[0]}{' '.join(inner)}{marks[1]} She left."
    result = bounded_sentences(text)
    assert result[1:29] == inner[1:29]
    opened = bounded_sentences(text.replace(" Sentence 9", " \u201cSentence 9"))
    assert opened[9].startswith("\u201cSentence 9")
    assert len(split_sentences(text)) < 5


def test_nothing_but_white_space_is_lost(topics):
    for text in topics[:30]:
        sentences = split_sentences(text)
        assert without_space("".join(bounded_sentences(text))) == without_space(text)
        assert all(sentence == sentence.strip() != "" for sentence in sentences)
        assert without_space("".join(sentences)) == without_space(text)


def test_a_long_line_splits_like_its_pieces():
    sentences = [f"Sentence number {i} has Mr. Smith in it." for i in range(2000)]
    assert split_sentences(" ".join(sentences)) == sentences


def test_an_unbalanced_quotation_mark_hides_few_boundaries():
    text = 'He said "yes. ' + "This is a sentence. " * 20_000 + 'And "no.'
    assert len(split_sentences(text)) > 15_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["Yes it is. " * 182_000, "a" * 2_000_000, '"Yes. ' * 333_333],
    ids=["sentences", "one word", "quotation marks"],
)
def test_two_megabytes_on_one_line_split(text):
    assert without_space("".join(split_sentences(text))) == without_space(text)


@pytest.mark.parametrize("newline", ["\n", "\r\n", " \n\t\u3000"])
def test_spans_hold_the_sentences(newline):
    text = newline.join(["", "First one. And a", "second!", "", "- An item", ""])
    sentences = split_sentences(text)
    starts, ends = sentence_spans(text, sentences)
    for start, end, sentence in zip(starts, ends, sentences, strict=True):
        assert text[start:end].split() == sentence.split()
        assert text[start:end].strip() == text[start:end]


def test_white_space_of_several_bytes_and_lone_surrogates():
    assert split_sentences("A.\u3000J.\u3000Smith came. He\u2009left.\ud800 End") == [
        "A.\u3000J.\u3000Smith came.",
        "He\u2009left.\ud800 End",
    ]


def test_splitter_name_has_a_version():
    name, version = splitter_name().split()
    assert name == "longsum"
    assert version.isdigit()


@pytest.mark.parametrize(
    ("between", "strength"),
    [
        ("; b", 4),
        ("\u2014 b", 4),
        (", b", 3),
        ("\u060c b", 3),
        ("\nb", 2),
        ("\u2028b", 2),
        (" and", 1),
        (" BECAUSE", 1),
        (" android", 0),
        (" b", 0),
    ],
)
def test_strengths_of_boundaries(between, strength):
    text = f"a{between}"
    spans = sentences.word_spans(text)
    assert sentences._strength(text, spans[0], spans[-1]) == strength


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of 3 to 10 words, 6 on average."""
    monkeypatch.setattr(sentences, "SHORTEST_PIECE", 3)
    monkeypatch.setattr(sentences, "MEAN_PIECE", 6)
    monkeypatch.setattr(sentences, "LONGEST_PIECE", 10)


@pytest.mark.parametrize(
    ("num_words", "commas", "lengths"),
    [
        (10, [], [10]),
        (11, [], [6, 5]),
        (25, [], [6, 6, 6, 7]),
        # A boundary counts from the shortest to the longest piece.
        (25, [2], [6, 6, 6, 7]),
        (25, [3], [3, 6, 6, 10]),
        (25, [10], [10, 6, 9]),
        (25, [11], [6, 5, 6, 8]),
        # The rest is not shorter than the shortest piece.
        (12, [9], [9, 3]),
        (12, [10], [6, 6]),
        # Of equal boundaries, the nearest to the mean.
        (12, [4, 7], [7, 5]),
        (12, [5, 9], [5, 7]),
    ],
)
def test_pieces_end_at_the_strongest_boundary(small_pieces, num_words, commas, lengths):
    words = [f"w{i}," if i in commas else f"w{i}" for i in range(1, num_words + 1)]
    text = " ".join(words)
    pieces = list(sentences._pieces(text))
    assert " ".join(pieces) == text
    assert [len(piece.split()) for piece in pieces] == lengths


def test_a_long_line_ends_a_sentence_at_its_stop():
    line = "The first line of a block is longer than sixty characters here"
    assert sentences.breaks_sentence(line, "and goes on.")
    assert sentences.breaks_sentence(f"{line} ", "and goes on.")
    assert not sentences.breaks_sentence(f"{line}. ", "and goes on.")
    assert not sentences.breaks_sentence(line[:50], "and goes on.")


def test_a_block_of_one_width_has_few_small_letters():
    """One in three pairs of lines, and more of them would be asked for by counting lines."""
    lines = [
        "Every line here has forty letters, so it",
        "is full. The next ones begin with large.",
        "Letters, as in a text of names or verbs.",
        "Names are Anna, Berta, Carla, Dora, Emma",
    ]
    assert {len(line) for line in lines} == {40}
    assert sentences._has_one_width(lines)
    assert not sentences._has_one_width([line.capitalize() for line in lines])
