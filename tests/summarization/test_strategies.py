"""Strategies with a model whose tokens are words and whose summary is what a test says."""

import itertools
import random
from types import SimpleNamespace

import pytest

from longsum_jax.decoding.options import MAX_NEW_TOKENS, GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.summarization.documents import DocumentSummarizer, TokenizedDocument
from longsum_jax.summarization.registry import STRATEGIES
from longsum_jax.summarization.rounds import Plan, run_plans
from longsum_jax.summarization.strategies import Reader, StepInput, StrategyInput, budget_of
from longsum_jax.summarization.strategy_engine import (
    StrategyEngine,
    choose_strategy,
    summarize_steps,
)
from longsum_jax.summarization.summary import Request, Summary
from longsum_jax.summarization.summary_options import SummaryOptions
from longsum_jax.text.joining import join_documents
from longsum_jax.text.lengths import Length, parse_length
from longsum_jax.text.prompts import prefix_prompt
from longsum_jax.text.sentences import split_sentences
from longsum_jax.text.statements import NO_OUTLINE, Outline

LONGEST = 40  # tokens of an input
END = "<end>"
SIZES = (1, 40, 6, 7, 13, 90, 24)  # sentences of documents
# All but the strategy of models that were trained to read segments.
READING = [name for name in STRATEGIES if name != "memory"]


class Words:
    """A tokenizer of words, with one token at the end."""

    def encode(self, text):
        return text.split()

    def encode_batch(self, texts):
        return [self.encode(text) for text in texts]

    def add_special_tokens(self, ids, limit=None):
        return [*ids[: limit and limit - 1], END]


def first_sentence(words):
    """Writes the first sentence after the query."""
    text = " ".join(words)
    return text[: text.index(".") + 1] if "." in text else text


def last_words(words):
    return " ".join(words[-4:])


class Played:
    """A document that a strategy reads, all rounds kept.

    Attributes:
        rounds: the words of every input, and its limit.
        summary: at the end.
    """

    def __init__(
        self,
        name,
        text,
        write=first_sentence,
        query=None,
        borders=(),
        outline=NO_OUTLINE,
        **options,
    ):
        reader = Reader(
            Words(),
            **{"longest_input": LONGEST, "longest_whole": LONGEST, "max_new_tokens": 12} | options,
        )
        request = Request(text, "a.txt", query, outline, borders)
        prompted = reader.prompt.encode(Words(), text, query)
        ids = reader.prompt.source(Words(), prompted)
        self.source = StrategyInput(reader, request, TokenizedDocument(ids, len(ids)))
        self.rounds = []
        steps = summarize_steps(self.source, name)
        pieces = next(steps)
        while True:
            self.rounds.append([piece.document.ids[:-1] for piece in pieces])
            self.limits = [piece.max_new_tokens for piece in pieces]
            for piece in pieces:
                assert piece.document.ids[-1] == END
                assert name == "direct" or len(piece.document.ids) <= reader.longest_input
            result = [summary_of(write(piece.document.ids[:-1])) for piece in pieces]
            try:
                pieces = steps.send(result)
            except StopIteration as end:
                self.summary = end.value
                return


def summary_of(text):
    return Summary(text, 0, 0, 0, len(text.split()) + 1, "eos")


def document(num_sentences, num_words=6):
    """Sentences that each say something else."""
    return " ".join(
        " ".join([f"w{i}", *(f"x{i}y{j}" for j in range(num_words - 2)), f"z{i}."])
        for i in range(num_sentences)
    )


# What each of them reads


@pytest.mark.parametrize("name", READING)
def test_a_document_that_fits_is_read_whole(name):
    text = document(6)
    result = Played(name, text)
    assert result.rounds == [[text.split()]]
    assert result.summary.text == split_sentences(text)[0]
    assert (result.summary.read_tokens, result.summary.document_tokens) == (37, 37)
    assert (result.summary.dropped_tokens, result.summary.strategy) == (0, name)


@pytest.mark.parametrize("name", READING)
def test_a_query_is_in_every_input(name):
    prompt = prefix_prompt("summarize: ")
    result = Played(name, document(40), last_words, query="Who was it", prompt=prompt)
    for words in itertools.chain(*result.rounds):
        assert words[:4] == ["summarize:", "Who", "was", "it"]
        assert words.count("Who") == 1


def test_segments_are_the_document_and_their_summaries_the_summary():
    text = document(40)
    result = Played("segments", text)
    [pieces] = result.rounds
    assert len(pieces) > 5
    assert [word for piece in pieces for word in piece] == text.split()
    assert all(piece[0].startswith("w") for piece in pieces)  # whole sentences
    assert result.summary.text == " ".join(map(first_sentence, pieces))
    assert (result.summary.read_tokens, result.summary.dropped_tokens) == (241, 0)
    assert result.summary.summary_tokens == len(result.summary.text.split()) + 1
    share = len(result.summary.text) / len(text)
    assert sum(result.summary.coverage) / 10 == pytest.approx(share, abs=0.01)


def test_segments_end_at_headings():
    parts = [document(4), "Costs\n\n" + document(10)]
    text = "\n\n".join(parts)
    place = len(parts[0]) + 2
    outline = Outline([(place, place + len("Costs"))])
    [pieces] = Played("segments", text, outline=outline).rounds
    assert pieces[1][0] == "Costs"
    [pieces] = Played("segments", text).rounds
    assert all(piece[0] != "Costs" for piece in pieces)


def test_segments_without_content_are_silent_and_repetitions_said_once():
    text = document(4) + "\n\n" + "* * * -- * " * 60 + "\n\n" + document(30, 8)

    def write(words):
        return "" if "w7" in words else "Much rain fell. It was cold."

    result = Played("segments", text, write)
    assert all(any(word[0] == "w" for word in words) for words in result.rounds[0])
    assert result.summary.text == "Much rain fell. It was cold."
    assert Played("segments", text, lambda words: "").summary.text == ""
    assert Played("hierarchical", text, lambda words: "").summary.text == ""
    assert Played("refine", text, lambda words: "").summary.text == ""


def test_hierarchical_reads_summaries_of_overlapping_segments_until_they_fit():
    text = document(60)
    result = Played("hierarchical", text, longest_input=80)
    first, *others = result.rounds
    read = [word for piece in first for word in piece]
    assert set(read) == set(text.split())
    for before, after in itertools.pairwise(first):
        assert after[:6] == before[-6:]  # one sentence is a tenth of an input
        assert after[6:12] != before[-6:]
    # The next round is one more call over what the first has written, and so on.
    written = [first_sentence(piece) for piece in first]
    for inputs in others:
        assert [word for piece in inputs for word in piece] == " ".join(written).split()
        written = [first_sentence(piece) for piece in inputs]
    assert len(others) == 1
    assert result.summary.text == written[0]
    assert result.summary.dropped_tokens == 0


def test_hierarchical_ends_where_summaries_grow_no_shorter():
    text = document(20)
    result = Played("hierarchical", text, lambda words: " ".join(words[:-6]))
    assert [len(inputs) for inputs in result.rounds] == sorted(
        {len(inputs) for inputs in result.rounds}, reverse=True
    )
    copied = Played("hierarchical", text, " ".join)
    assert len(copied.rounds) == 1
    # Sentences that two segments share are said once.
    assert copied.summary.text == text


def test_refine_reads_each_segment_with_the_summary_of_those_before():
    text = document(30)

    def write(words):
        return f"Up to {words[-1]}"

    result = Played("refine", text, write)
    assert all(len(inputs) == 1 for inputs in result.rounds)
    inputs = [words for [words] in result.rounds]
    read = inputs[0][:]
    for before, words in itertools.pairwise(inputs):
        running = write(before).split()
        assert words[: len(running)] == running
        read += words[len(running) :]
    assert read == text.split()
    assert result.summary.text == write(inputs[-1])


def test_refine_shortens_what_it_remembers_where_it_does_not_fit():
    text = document(30)

    def write(words):  # more than it was asked for
        return " ".join(f"Fact {i} of{len(words)} many." for i in range(8))

    result = Played("refine", text, write)
    second = " ".join(result.rounds[1][0])
    assert "Fact 0" in second
    assert "Fact 7" not in second
    assert " ".join(word for [words] in result.rounds for word in words if word[0] in "wxz") == text


def test_extract_reads_the_best_sentences_in_the_order_of_the_document():
    text = document(40)
    result = Played("extract", text, query="w31 z17")
    [[words]] = result.rounds
    read = " ".join(words[2:])
    sentences = split_sentences(text)
    selected = split_sentences(read)
    assert [sentence for sentence in sentences if sentence in selected] == selected
    assert {sentences[31], sentences[17]} <= set(selected)
    assert len(words) > LONGEST - 10  # there is no room for one more
    assert result.summary.read_tokens == len(words) + 1
    assert result.summary.dropped_tokens == result.summary.document_tokens - len(words) - 1


def test_extract_of_one_endless_sentence_reads_pieces_of_it():
    result = Played("extract", " ".join(f"word{i}" for i in range(300)))
    [[words]] = result.rounds
    numbers = [int(word.removeprefix("word")) for word in words]
    assert numbers == sorted(set(numbers)) != []
    assert result.summary.dropped_tokens == 300 - len(words)


# Several documents as one


@pytest.mark.parametrize("name", ["segments", "hierarchical", "refine"])
def test_no_segment_goes_from_one_document_to_the_next(name):
    texts = [document(9).replace("w", letter) for letter in "abc"]
    text, borders = join_documents(texts)
    result = Played(name, text, lambda words: "Said so.", borders=borders)
    for words in itertools.chain(*result.rounds):
        assert len({word[0] for word in words} & set("abc")) <= 1


def test_several_documents_that_fit_are_segments_by_themselves():
    text, borders = join_documents(["One here.", "Two here.", "Three here."])
    result = Played("segments", text, borders=borders)
    assert result.summary.text == "One here. Two here. Three here."
    assert len(result.rounds[0]) == 3
    assert Played("direct", text, borders=borders).rounds == [[text.split()]]


def test_extract_keeps_documents_apart():
    others = document(9).replace("x", "q")
    text, borders = join_documents([document(9), others], " <doc-sep> ")
    options = {"borders": borders, "separator": " <doc-sep> ", "query": "x3y1 q2y2"}
    result = Played("extract", text, **options)
    first, second = " ".join(result.rounds[0][0][2:]).split(" <doc-sep> ")
    assert set(split_sentences(first)) <= set(split_sentences(document(9)))
    assert set(split_sentences(second)) <= set(split_sentences(others))


# Choosing


@pytest.mark.parametrize(
    ("num_words", "chosen"),
    [(LONGEST - 2, "direct"), (LONGEST - 1, "direct"), (LONGEST, "hierarchical")],
)
def test_auto_reads_whole_what_fits(num_words, chosen):
    text = " ".join(["word"] * num_words)
    assert choose_strategy(Played("segments", text).source) == chosen
    assert choose_strategy(Played("segments", text, longest_whole=None).source) == "direct"


# Lengths


@pytest.mark.parametrize("name", READING)
@pytest.mark.parametrize("length", [6, 13, 60, "short", "2 sentences", "10%"])
def test_the_length_is_held(name, length):
    def write(words):
        return " ".join(words[: len(words) // 2])

    text = document(50)
    result = Played(name, text, write, length=parse_length(length))
    assert result.source.budget.holds(result.summary.text)
    assert result.summary.text
    assert result.summary.summary_tokens == len(result.summary.text.split()) + 1
    whole = Played(name, text, write, length=Length(100, "percent"))
    assert len(whole.summary.text) >= len(result.summary.text)


@pytest.mark.parametrize("length", [None, Length(20)])
def test_an_empty_summary_has_the_tokens_that_were_written(length):
    result = Played("segments", document(20), lambda words: "", length=length)
    assert result.summary.text == ""
    if length:
        assert result.summary.summary_tokens == len(result.rounds[0])


def test_what_a_length_comes_to():
    text = "One two three. Four five six seven."
    assert budget_of(Length(3), text, 14)[::2] == (3, 6)
    assert budget_of(Length(50, "percent"), text, 14)[::2] == (3.5, 7)
    assert budget_of(Length(1, "percent"), text, 14).limit == 1
    sentences = budget_of(Length(1, "sentences"), text, 14)
    assert sentences[::2] == (1, 7)
    assert sentences.holds("A very long one, which goes on and on.")
    assert not sentences.holds("Two. Short.")


def test_lengths_become_limits_of_tokens():
    text = document(50)
    assert Played("direct", text).limits == [None]
    assert Played("direct", text, length=Length(20)).limits == [24]  # 2^k or 3 * 2^k
    assert Played("direct", text, length=Length(20), longest_summary=22).limits == [22]
    result = Played("segments", text, length=Length(400))
    assert set(result.limits) == {48}
    assert set(Played("segments", text, length=Length(20)).limits) == {32}
    # A summary that is read again is half an input at most.
    result = Played("hierarchical", text, length=Length(5), max_new_tokens=30)
    assert result.limits == [6]
    assert Played("refine", text, max_new_tokens=30).limits == [19]


def test_no_length_is_beyond_what_a_search_may_write():
    result = Played("direct", document(50), length=Length(100_000))
    assert result.source.budget.tokens > MAX_NEW_TOKENS
    assert result.limits == [MAX_NEW_TOKENS]


def test_a_length_does_not_depend_on_how_much_is_read():
    text = document(50)
    reader = Reader(Words(), longest_input=LONGEST, max_new_tokens=12, length=Length(20))
    request = Request(text, "a.txt", None)
    beginning = TokenizedDocument(text.split()[:LONGEST], 300)
    assert StrategyInput(reader, request, beginning).budget.tokens == 20
    read = request._replace(text=document(6))
    assert StrategyInput(reader, request, beginning, read).budget.tokens == 20


def test_hierarchical_ends_as_soon_as_summaries_are_short_enough():
    text = document(60)
    result = Played("hierarchical", text, length=Length(500))
    assert len(result.rounds) == 1
    said = dict.fromkeys(first_sentence(words) for words in result.rounds[0])
    assert result.summary.text == " ".join(said)


# Showing segments


def test_segments_are_asked_for_one_by_one_where_they_are_shown():
    said = []
    text = document(40)
    result = Played("segments", text, on_segment=said.append)
    assert all(len(inputs) == 1 for inputs in result.rounds)
    assert " ".join(said) == result.summary.text == Played("segments", text).summary.text


# Bad input


@pytest.mark.parametrize("name", ["segments", "hierarchical", "refine", "extract"])
def test_a_query_that_leaves_no_room(name):
    with pytest.raises(InputError, match=r'a.txt: the query "why why .* leaves 9 of the 40 tokens'):
        Played(name, document(40), query="why " * 30)
    with pytest.raises(InputError, match="leaves 15 of the 40 tokens of an input, fewer than 16"):
        Played(name, document(40), query="why " * 24)
    assert Played(name, document(40), query="why " * 23).summary.text


# Rounds of many documents


def test_documents_share_rounds():
    """Each round of three documents is one call, for each limit."""
    texts = [document(3), document(40), document(90)]
    calls = []

    def decode(documents, limit):
        taken = list(documents)
        calls.append((limit, len(taken)))
        for place in reversed(range(len(taken))):  # in any order
            yield place, summary_of(first_sentence(taken[place].ids[:-1]))

    def plan(text):
        reader = Reader(Words(), longest_input=LONGEST, longest_whole=LONGEST, max_new_tokens=5)
        ids = [*text.split(), END]
        request = Request(text, "a.txt", None)
        source = StrategyInput(reader, request, TokenizedDocument(ids, len(ids)))
        return Plan(summarize_steps(source, choose_strategy(source)))

    result = dict(run_plans(map(plan, texts), decode))
    alone = [Played("hierarchical", text, max_new_tokens=5) for text in texts]
    num_inputs = [len(played.rounds[0]) for played in alone]
    assert calls[0] == (None, sum(num_inputs))
    assert len(calls) == max(len(played.rounds) for played in alone)
    for place, played in enumerate(alone):
        assert result[place].text == played.summary.text
    assert [result[place].strategy for place in range(3)] == ["direct", *["hierarchical"] * 2]


class Beginnings(Words):
    """A tokenizer of words, of which one without a space before it has two tokens."""

    def encode(self, text):
        words = text.split()
        return words if text[:1].isspace() or not words else ["<new>", *words]


@pytest.mark.parametrize("overlaps", [False, True])
def test_segments_are_measured_as_they_are_read(overlaps):
    """One that begins with a space, as sentences do, loses it, and may have a token more."""
    tokenizer = Beginnings()
    reader = Reader(tokenizer, longest_input=LONGEST, longest_whole=LONGEST, max_new_tokens=5)
    for num_words in (3, 7, LONGEST - 2, LONGEST - 1, LONGEST):
        text = document(200 // num_words, num_words)
        ids = tokenizer.add_special_tokens(tokenizer.encode(text))
        source = StrategyInput(
            reader, Request(text, "a.txt", None), TokenizedDocument(ids, len(ids))
        )
        for segment in source._cut(text, 0, overlaps):
            read = tokenizer.add_special_tokens(tokenizer.encode(segment))
            assert len(read) <= LONGEST, num_words


def test_inputs_of_one_limit_go_together():
    def piece(limit):
        return StepInput(TokenizedDocument([str(limit), END], 2), limit)

    def two_rounds():
        yield [piece(None)]
        result = yield [piece(limit) for limit in (8, 4, 8, 4)]
        return summary_of(" ".join(summary.text for summary in result))

    calls = []

    def decode(documents, limit):
        for place, each in enumerate(documents):
            calls.append(limit)
            yield place, summary_of(each.ids[0])

    [(place, summary)] = run_plans([Plan(two_rounds())], decode)
    assert calls == [None, 4, 4, 8, 8]
    assert (place, summary.text) == (0, "8 4 8 4")


class Writer(DocumentSummarizer):
    """Writes the first sentence of every input; those of a batch are done in any order."""

    def __init__(self, seed):
        config = SimpleNamespace(encoder_attention="full")
        super().__init__(config, Words(), generate=None, make_slots=None)
        self._random = random.Random(seed)

    def decode(self, documents, *, batch_size, options, seed):
        documents = iter(documents)
        start = 0
        while batch := list(itertools.islice(documents, batch_size)):
            places = list(range(len(batch)))
            self._random.shuffle(places)
            for place in places:
                words = batch[place].ids[:-1]
                yield start + place, summary_of(first_sentence(words))
            start += len(batch)


@pytest.mark.parametrize("length", [None, 20])
@pytest.mark.parametrize("name", READING)
def test_batches_and_the_order_of_documents_change_no_summary(name, length):
    texts = [document(count).replace("w", f"of{i}w") for i, count in enumerate(SIZES)]
    generation = GenerationOptions(max_new_tokens=12, decoder_start_token_id=0)

    def summaries(order, batch_size, seed):
        options = SummaryOptions(strategy=name, length=length, batch_size=batch_size)
        reader = Reader(Words(), longest_input=LONGEST, longest_whole=LONGEST, max_new_tokens=12)
        engine = StrategyEngine(Writer(seed), reader, options, generation, None)
        result = engine.summaries([Request(texts[i], f"document {i}", None) for i in order])
        return dict(zip(order, result, strict=True))

    places = range(len(texts))
    alone = {i: summaries([i], 1, 0)[i] for i in places}
    assert len({summary.text for summary in alone.values()}) == len(texts)
    for seed in range(6):
        rng = random.Random(seed)
        order = rng.sample(places, len(texts))
        assert summaries(order, rng.randint(1, 9), seed) == alone
