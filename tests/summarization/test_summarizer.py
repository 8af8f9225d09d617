"""Strategies with a model of 60 positions, against loops over its summaries of slices."""

import itertools
import time
from pathlib import Path

import numpy as np
import pytest

from longsum_jax.data.examples.summarization import make_example
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.inference.padding import input_length
from longsum_jax.models.registry import model_config, preset
from longsum_jax.readers import Document
from longsum_jax.summarization.model import Model
from longsum_jax.summarization.strategy_engine import StrategyEngine
from longsum_jax.summarization.stream import coarse_length
from longsum_jax.summarization.summary import Request
from longsum_jax.summarization.summary_options import SummaryOptions
from longsum_jax.text.documents import DataRow, split_row
from longsum_jax.text.joining import DOCUMENT_TOKEN
from longsum_jax.text.segmentation import SegmentOptions, segment_document
from longsum_jax.text.sentences import sentence_ends, split_sentences
from longsum_jax.tokenizers.loading import ByteTokenizer

POSITIONS = 60


class WithDocumentToken:
    """A tokenizer that knows PRIMERA's token; it has the id of <extra_id_0>."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    def encode(self, text):
        return self._tokenizer.encode(text.replace(DOCUMENT_TOKEN, "<extra_id_0>"))

    @property
    def plain(self):
        return self  # the documents contain no special tokens but this one

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)


@pytest.fixture(scope="module")
def make_model(tiny_tokenizer, draw_params):
    def make(name, tokenizer=tiny_tokenizer, **values):
        rows = {"vocab_size": tiny_tokenizer.vocab_size}
        family, config = model_config(preset(name, "tiny", **rows, **values))
        params = draw_params(family.init_params(config))
        # Random weights say the same of everything, unless what they say is drawn.
        generation = {"max_new_tokens": 8, "do_sample": True}
        return Model(family, config, params, tokenizer, generation)

    return make


@pytest.fixture(scope="module")
def model(make_model):
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    return make_model("bart", max_position_embeddings=POSITIONS, **layers)


@pytest.fixture(scope="module")
def texts(topics):
    """Documents of about 60, 400 and 200 tokens."""
    return [" ".join(topics[i].split()[:count]) for i, count in ((2, 12), (3, 130), (0, 70))]


def slices(model, text, query=None, *, overlaps):
    """Cuts a text for one input each, as ``strategies`` says."""
    tokenizer = model.tokenizer
    lead = f"{query}\n" if query else ""
    room = POSITIONS - len(tokenizer.add_special_tokens(tokenizer.encode(lead)))
    overlap = room // 10 if overlaps else 0
    inside = room - overlap
    options = SegmentOptions(inside // 2, inside * 3 // 4, inside)
    result = segment_document(text, tokenizer, options)
    parts = [result.segment_text(i) for i in range(len(result.segments))]
    assert all(len(tokenizer.encode(part)) <= inside for part in parts)
    before = [""]
    for part in parts[:-1]:
        ends = sentence_ends(part, split_sentences(part))
        starts = [
            int(start) for start in ends[:-1] if len(tokenizer.encode(part[start:])) <= overlap
        ]
        before.append(part[min(starts, default=len(part)) :])
    return [(tail + part).strip() for tail, part in zip(before, parts, strict=True)]


def fits(model, text, query=None):
    lead = f"{query}\n" if query else ""
    return len(model.tokenizer.add_special_tokens(model.tokenizer.encode(lead + text))) <= POSITIONS


def of_slices(model, parts, query):
    queries = [query] * len(parts)
    result = model.summaries(parts, strategy="direct", queries=queries, on_overflow="error")
    return [summary.text for summary in result]


def merged(texts):
    """Joins texts with words, without the sentences that were said before."""
    said, retained = set(), []
    for text in filter(words_of, texts):
        sentences = split_sentences(text.strip())
        new = []
        for sentence in sentences:
            words = words_of(sentence)
            if not words or words not in said:  # marks alone are always new
                new.append(sentence)
            said.add(words)
        retained.append(text.strip() if new == sentences else " ".join(new))
    return " ".join(filter(None, retained))


def words_of(text):
    return tuple("".join(c if c.isalnum() else " " for c in text.lower()).split())


@pytest.mark.slow
@pytest.mark.parametrize("query", [None, "what of it?"])
def test_hierarchical_is_a_loop_over_summaries(model, texts, query):
    [result] = model.summaries(texts[1], queries=[query], batch_size="auto")
    parts = slices(model, texts[1], query, overlaps=True)
    num_rounds = 0
    while len(parts) > 1:
        written = merged(of_slices(model, parts, query))
        whole = fits(model, written, query)
        parts = [written] if whole else slices(model, written, query, overlaps=False)
        num_rounds += 1
    assert result.text == of_slices(model, parts, query)[0]
    assert num_rounds >= 1
    assert result.strategy == "hierarchical"
    assert result.dropped_tokens == 0


@pytest.mark.slow
def test_segments_are_summaries_of_slices(model, texts):
    parts = slices(model, texts[1], overlaps=False)
    assert len(parts) > 4
    result = model.summaries(texts[1], strategy="segments")[0]
    assert result.text.split() == merged(of_slices(model, parts, None)).split()
    said = []
    stream = model.stream(
        [Request(texts[1], "a", None)], strategy="segments", on_segment=said.append
    )
    [[(place, streamed)]] = list(stream)
    assert (place, streamed) == (0, result)
    assert " ".join(filter(None, said)) == result.text


@pytest.mark.slow
def test_batches_and_streams_change_nothing(model, texts):
    expected = [model.summaries(text)[0] for text in texts]
    assert [summary.strategy for summary in expected] == ["direct", *["hierarchical"] * 2]
    assert model.summaries(texts[0], strategy="direct") == expected[:1]
    assert model.summaries(texts, batch_size="auto") == expected
    requests = [Request(text, "a document", None) for text in texts]
    for batch_size in (1, 2):
        stream = model.stream(requests, batch_size=batch_size)
        assert dict(itertools.chain.from_iterable(stream)) == dict(enumerate(expected))
    [[(_, beyond)]] = model.stream(requests[2:], max_source_length=10 * POSITIONS)
    assert beyond == expected[2]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["auto", "extract", "refine"])
def test_what_is_read_of_the_beginning(model, texts, strategy):
    total = len(model.tokenizer.encode(texts[1])) + 1
    [result] = model.summaries(texts[1], strategy=strategy, max_source_length=100)
    assert result.document_tokens == total
    assert result.read_tokens + result.dropped_tokens == total
    assert 30 < result.read_tokens <= (POSITIONS if strategy == "extract" else 100)
    stop = model.tokenizer.spans(texts[1])[98][1]  # and one token at the end
    [exact] = model.summaries(texts[1][:stop], strategy=strategy)
    assert result.text == exact.text
    with pytest.raises(InputError, match="more than max_source_length=100"):
        model.summaries(texts[1], max_source_length=100, on_overflow="error")


@pytest.mark.slow
def test_shorter_inputs_by_wish(make_model, texts):
    model = make_model("t5", num_layers=1, num_decoder_layers=1)
    [whole] = model.summaries(texts[1])
    assert whole.strategy == "direct"
    options = SummaryOptions(strategy="direct", segment_length=None)
    shorter = {"strategy": "auto", "segment_length": POSITIONS}
    [cut] = model.summaries(texts[1], options, **shorter)
    assert cut.strategy == "hierarchical"
    assert model.summarize(texts[1], segment_length=POSITIONS) == [cut.text]
    assert model.read_lengths(texts[1]) == [whole.read_tokens]
    assert model.read_lengths(texts[1], segment_length=POSITIONS) == [POSITIONS]


@pytest.mark.slow
def test_documents_of_a_model_that_knows_their_token(make_model, tiny_tokenizer):
    """They are read as PRIMERA was trained: its token after each, with global attention."""
    sizes = {"attention_window": [8], "max_encoder_position_embeddings": POSITIONS}
    sizes |= {"encoder_layers": 1, "decoder_layers": 1}
    model = make_model("led", WithDocumentToken(tiny_tokenizer), **sizes)
    parts = ["A first document.", "And another one.", "The end."]
    assert model.separator == DOCUMENT_TOKEN
    text = "A first document.<extra_id_0>And another one.<extra_id_0>The end.<extra_id_0>"
    ids = np.array([tiny_tokenizer.add_special_tokens(tiny_tokenizer.encode(text))])
    is_global = np.isin(ids, tiny_tokenizer.encode("<extra_id_0>")).astype(int)
    assert is_global.sum() == 3
    is_global[:, 0] = 1
    mask = np.ones_like(ids)
    out = model.generate(ids, mask, global_attention_mask=is_global)[0]
    expected = tiny_tokenizer.decode(out[1:].tolist())
    for batch_size in (1, "auto"):
        [result] = model.summaries(parts, join=True, batch_size=batch_size)
        assert result.text == expected
        assert result.read_tokens == ids.size
    assert expected != tiny_tokenizer.decode(model.generate(ids, mask)[0, 1:].tolist())

    # Training reads the same, and of longer documents an equal share of each.
    row = split_row(DataRow("a", "|".join(parts), "A summary.", None), "|")
    for length in (POSITIONS, 17):
        task = get_task("summaries", max_source_length=length)
        read = make_example(task, model.tokenizer, row)["input_ids"][None]
        if length == POSITIONS:
            np.testing.assert_array_equal(read, ids)
        is_global = np.isin(read, tiny_tokenizer.encode("<extra_id_0>")).astype(int)
        assert is_global.sum() == 3
        is_global[:, 0] = 1
        out = model.generate(read, np.ones_like(read), global_attention_mask=is_global)[0]
        [result] = model.summaries([parts], max_source_length=length, strategy="direct")
        assert result.text == tiny_tokenizer.decode(out[1:].tolist())
        assert result.read_tokens == read.size <= length


def test_documents_of_other_models_have_an_empty_line_between_them(model):
    assert model.separator == "\n\n"
    parts = ["A first document.", "And another one."]
    joined = model.summaries(parts, join=True)
    assert joined == model.summaries("\n\n".join(parts))
    assert model.summaries(parts[:1], join=True) == model.summaries(parts[0])
    assert model.summaries([], join=True) == []
    assert model.summaries([parts, "A third one."])[0] == joined[0]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"strategy": "hierarchic"},
            'strategy="hierarchic" is not known; did you mean "hierarchical"',
        ),
        ({"strategy": "memory"}, 'strategy="memory" needs a model with settings'),
        ({"length": "tall"}, 'length="tall"; write short, medium, long'),
        ({"length": 0}, "a length of 0 words; give a whole number of words or sentences, at least"),
        ({"length": "1.5 words"}, "a length of 1.5 words; give a whole number"),
        ({"length": "0%"}, "a length of 0 percent; .* more than 0 and at most 100 percent"),
        (
            {"texts": "One. " * 40, "strategy": "direct", "on_overflow": "error"},
            r"document 1 has \d+ tokens, this model reads at most 60 at once; choose strategy",
        ),
        (
            {"queries": ["why " * 80], "strategy": "segments"},
            'the query "why .* leaves 0 of the 60 tokens of an input, fewer than 16; shorten it$',
        ),
        (
            {"queries": ["why " * 80], "strategy": "segments", "segment_length": 32},
            "leaves 0 of the 32 tokens .*; shorten it or raise segment_length$",
        ),
        ({"min_new_tokens": POSITIONS + 1}, "min_new_tokens: 61 tokens, .* give at most 60"),
        ({"segment_length": 8}, "segment_length=8 must be at least 16"),
        ({"segment_length": 61}, "segment_length: 61 tokens, but this model has positions for 60"),
        (
            {"segment_length": 32, "strategy": "direct"},
            'segment_length=32 is for strategies that cut documents, not for "direct"',
        ),
        ({"queries": ["why?", "how?"]}, "queries has 2 items for 1 document; give one for each"),
        ({"texts": ["One.", "Two."], "names": ["a"]}, "names has 1 item for 2 documents"),
        ({"join": True, "texts": ["One.", " "]}, "document 2 is empty; give it some text"),
        ({"texts": None}, "texts is of type NoneType; give a string, or a list of strings"),
        ({"texts": b"One."}, "texts is of type bytes; give a string"),
        ({"texts": Path("a.txt")}, "texts is of type PosixPath; give a string"),
        ({"texts": {"a": "One."}}, "texts is of type dict; give a string"),
        ({"texts": {"One.", "Two."}}, "texts is of type set; give a string"),
        ({"texts": Document("One.", "a.txt", "a.txt")}, "texts is of type Document; give a str"),
        ({"texts": ["One.", None]}, "document 2 is of type NoneType; give its text, a string"),
        ({"texts": [[]]}, "document 1 is of type list; give its text, a string"),
        ({"queries": [3]}, "the query of document 1 is of type int; give a string or None"),
        (
            {"texts": ["One.", "Half \ud83d a character."]},
            r"document 2 contains a lone surrogate \(\\ud83d\); decode its source again",
        ),
        ({"queries": ["\udc00?"]}, r"document 1 contains a lone surrogate \(\\udc00\)"),
        (
            {"strategy": "segments", "queries": ["why " * 40], "texts": "One. " * 99},
            'document 1: the query "why why .* leaves 0 of the 60 tokens of an input',
        ),
    ],
)
def test_bad_input(model, options, problem):
    with pytest.raises(InputError, match=problem):
        model.summaries(**{"texts": "One sentence."} | options)


@pytest.mark.parametrize(
    "texts", [("One sentence.",), iter(["One sentence."]), np.array(["One sentence."])]
)
def test_documents_of_any_sequence(model, texts):
    assert model.summarize(texts) == model.summarize(["One sentence."])


def test_the_name_of_a_file_is_not_its_text(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert model.summarize("notes.txt") == model.summarize(["notes.txt"])  # no such file
    (tmp_path / "notes.txt").write_text("One sentence.")
    for texts in ("notes.txt", ["One sentence.", "notes.txt"]):
        with pytest.raises(InputError, match=r"is notes.txt, the name of a file; give its text"):
            model.summarize(texts)


def test_documents_are_not_read_after_an_error(model, monkeypatch):
    read = []

    def slow(engine, request, plan=StrategyEngine.plan):
        read.append(request)
        time.sleep(0.01)
        return plan(engine, request)

    def fail(engine, documents, limit, **sizes):
        next(iter(documents))
        raise KeyboardInterrupt

    monkeypatch.setattr(StrategyEngine, "plan", slow)
    monkeypatch.setattr(StrategyEngine, "_decode", fail)
    with pytest.raises(KeyboardInterrupt):
        model.summaries(["A document."] * 500)
    assert 0 < len(read) < 400


def test_a_beginning_without_a_word(make_model):
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    model = make_model("bart", ByteTokenizer(), max_position_embeddings=POSITIONS, **layers)
    problem = "b.txt has no word within max_source_length=20; raise it"
    with pytest.raises(InputError, match=problem):
        model.summaries(
            "\n" * 30 + "One. " * 20, names=["b.txt"], strategy="segments", max_source_length=20
        )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, 'is for strategy="segments" or "memory", not for "auto"'),
        ({"strategy": "segments", "batch_size": 2}, "batch_size=2, but segments are shown"),
    ],
)
def test_segments_that_cannot_be_shown(model, options, problem):
    with pytest.raises(InputError, match=problem):
        model.stream([], on_segment=print, **options)


@pytest.mark.slow
def test_streams_of_bigbird_have_no_more_padding(make_model, tiny_tokenizer):
    """Its last block is global, and the padded length selects full or sparse attention."""
    model = make_model("bigbird_pegasus", max_position_embeddings=512)
    config = model.config
    texts = [" ".join(f"{i} of {n}." for i in range(n)) for n in (20, 28, 34)]
    lengths = [len(tiny_tokenizer.encode(text)) for text in texts]
    assert any(input_length(config, n) != input_length(config, coarse_length(n)) for n in lengths)
    expected = [summary.text for summary in model.summaries(texts)]
    stream = model.stream([Request(text, "text", None) for text in texts])
    result = dict(pair for batch in stream for pair in batch)
    assert [result[index].text for index in range(3)] == expected


def test_one_text_for_a_document_of_several(model):
    text = "One thing is said. Then another."
    [expected] = model.summaries([text], max_new_tokens=4)
    [result] = model.summaries([[text]], max_new_tokens=4)
    assert result == expected


def test_names_and_queries_of_any_type(model):
    texts = ["One thing is said.", "A dog came in."]
    expected = model.summaries(texts, queries=["what?", None], max_new_tokens=4)
    names = np.array(["a", "b"])
    queries = (query for query in ("what?", None))
    result = model.summaries(texts, names=names, queries=queries, max_new_tokens=4)
    assert result == expected
    assert model.summaries(texts, names=[], queries=None, max_new_tokens=4)
    with pytest.raises(InputError, match="names is a text; give a list of one for each"):
        model.summaries(texts, names="ab")
    with pytest.raises(InputError, match="queries has 1 item for 2 documents; give one for each"):
        model.summaries(texts, queries=("what?",))
