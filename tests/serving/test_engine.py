"""The engine: requests share a batch, and neither their results nor their errors depend on it."""

import contextlib
import dataclasses
import threading
import time
from concurrent.futures import CancelledError, Future
from functools import partial

import jax.monitoring
import pytest

from longsum_jax.errors import InputError
from longsum_jax.inference import continuous
from longsum_jax.models.registry import get_family
from longsum_jax.serving.engine import Engine, QueueFullError, TooLongError
from longsum_jax.serving.fair_queue import FairQueue
from longsum_jax.serving.lengths import read_length, read_lengths
from longsum_jax.serving.pieces import BatchKind, Job, JobPiece
from longsum_jax.summarization.documents import TokenizedDocument
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.model import Model
from longsum_jax.summarization.segments import SegmentSummarizer
from longsum_jax.summarization.summary import Request

TEXTS = [" ".join(f"Number {i} of {n} is said." for i in range(n)) for n in (3, 2, 1)]

COMPILATION = "/jax/core/compile/backend_compile_duration"
LONG = {"min_new_tokens": 40, "max_new_tokens": 40}


def submit(engine, text, options):
    [future] = engine.submit([Request(text, "text", None)], options)
    return future


@contextlib.contextmanager
def count_compilations(events):
    def count(event, duration, **_):
        if event == COMPILATION:
            events.append(duration)

    jax.monitoring.register_event_duration_secs_listener(count)
    yield
    jax.monitoring.unregister_event_duration_listener(count)


@pytest.fixture
def engine():
    engine = Engine(max_queue=2)
    yield engine
    engine.close()


@pytest.mark.slow
def test_results_do_not_depend_on_neighbours(small_model):
    model = load(str(small_model))
    expected = [model.summaries([text])[0].text for text in TEXTS]
    engine = Engine(model, batch_size=2)
    futures = [submit(engine, text, {}) for text in TEXTS]
    cancelled = submit(engine, TEXTS[0], {})
    assert cancelled.cancel()
    assert [future.result(600).text for future in futures] == expected
    with pytest.raises(InputError, match="num_beans"):
        submit(engine, TEXTS[0], {"num_beans": 2})
    engine.close()
    assert engine.num_open == 0


def small(name, tokenizer, draw_params):
    """A model with random weights, of one of the registered families."""
    family = get_family(name)
    sizes = {"vocab_size": tokenizer.vocab_size, "tie_word_embeddings": False}
    for field in dataclasses.fields(family.config_class):
        if field.name.startswith("max_") and "position" in field.name:
            sizes[field.name] = 512
    config = dataclasses.replace(family.presets["tiny"], **sizes)
    params = draw_params(family.init_params(config))
    return Model(family, config, params, tokenizer, {"max_new_tokens": 20})


SEGMENTS = {"strategy": "segments", "segment_length": 32}
ROUNDS = {"strategy": "hierarchical", "segment_length": 32}
REFINE = {"strategy": "refine", "segment_length": 32}
SAMPLED = {"do_sample": True, "seed": 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("t5", [{}, SEGMENTS, {"num_beams": 2}, ROUNDS, REFINE]),
        ("led", [{}, SEGMENTS]),
        ("locost", [SAMPLED, SEGMENTS | SAMPLED]),
        *(
            pytest.param(*case, marks=pytest.mark.weekly)
            for case in (
                ("bart", [{}, SEGMENTS, SAMPLED]),  # of which LED is made
                ("longt5", [{}, ROUNDS]),
                ("t5gemma", [{}]),
                ("bigbird_pegasus", [{}, SEGMENTS]),
            )
        ),
    ],
)
def test_ids_alone_are_ids_among_others(name, options, tiny_tokenizer, draw_params):
    """Whole documents and segments, streamed or not, and seeds of sampling."""
    model = small(name, tiny_tokenizer, draw_params)
    engine = Engine(model, batch_size=4)
    requests = [(text, call) for call in options for text in TEXTS]
    alone = [submit(engine, *request).result(600) for request in requests]
    streams = [[] for _ in requests]
    futures = []
    for parts, (text, call) in zip(streams, requests, strict=True):
        request = Request(text, "text", None)
        futures += engine.submit([request], call, parts.append)
        submit(engine, f"Another text. {text}", call | {"seed": 3})
    among = [future.result(600) for future in futures]
    engine.close()
    assert [summary.text for summary in among] == [summary.text for summary in alone]
    for parts, summary, (_, call) in zip(streams, among, requests, strict=True):
        assert "".join(part.text for part in parts) == summary.text
        are_segments = call.get("strategy") == "segments"
        assert all(part.is_segment == are_segments for part in parts)
        is_greedy = not call.keys() & {"strategy", "num_beams"}
        if is_greedy and len(summary.text) > 40:
            assert len(parts) > 1
    assert len({summary.text for summary in alone}) > 1
    expected = model.summaries([TEXTS[0]], **options[0])[0].text
    assert alone[0].text == expected


@pytest.mark.slow
def test_letters_are_answered_before_a_book(small_model):
    """In a row of the batch of the book, and in a batch that takes turns with it."""
    model = load(str(small_model))
    engine = Engine(model, batch_size=2)
    answered = []
    book = " ".join(TEXTS[0] for _ in range(40))
    for name, text, options in (
        ("book", book, SEGMENTS),
        ("letter", TEXTS[1], {}),
        ("another kind", TEXTS[1], {"max_new_tokens": 5}),
    ):
        future = submit(engine, text, options)
        future.add_done_callback(lambda _, name=name: answered.append(name))
    assert future.result(600).text
    engine.close()
    assert answered.index("book") == 2
    [counts] = engine.statistics.values()
    assert 0 < counts.running_row_turns <= counts.row_turns
    assert counts.waits.total > 40


@pytest.mark.slow
def test_a_failing_document_fails_alone(small_model, monkeypatch):
    """One that the device cannot read, such as one that fills its memory."""
    model = load(str(small_model))
    read = model._runner._programs.read.__call__
    bad = len(model.tokenizer.encode(TEXTS[1]))

    def fail(variables, ids, mask, *arguments, **options):
        if mask.sum() == bad + 1:
            raise RuntimeError("out of memory")
        return read(variables, ids, mask, *arguments, **options)

    fail.eval_shape = model._runner._programs.read.eval_shape
    expected = [summary.text for summary in model.summaries(TEXTS)]
    monkeypatch.setattr(model._runner._programs, "read", fail)
    engine = Engine(model, batch_size=4)
    requests = [Request(text, "text", None) for text in [*TEXTS, " "]]
    parts = []
    futures = engine.submit(requests, {}, parts.append)
    assert futures[0].result(600).text == expected[0]
    assert futures[2].result(600).text == expected[2]
    with pytest.raises(RuntimeError, match="out of memory"):
        futures[1].result(600)
    with pytest.raises(InputError, match="empty"):
        futures[3].result(600)
    engine.close()
    assert engine.num_open == 0
    text = "".join(part.text for part in parts if part.document == 0)
    assert text == expected[0]


@pytest.mark.slow
def test_warm_up_compiles_the_lengths_of_rows(small_model):
    model = load(str(small_model))
    engine = Engine(model, batch_size=4, max_tokens=600)
    for future in engine.warm_up(400):
        with contextlib.suppress(CancelledError):  # if it is finished first
            future.result(600)
    compiled = []
    with count_compilations(compiled):
        for text in ("One.", "a word " * 60):
            submit(engine, text, {}).result(600)
    assert not compiled
    with pytest.raises(TooLongError, match="send at most 600 or set max_source_length"):
        submit(engine, "a word " * 900, {}).result(600)
    engine.close()


@pytest.mark.slow
def test_limits_and_lengths_share_a_program(tiny_tokenizer, draw_params):
    """The ids of programs that are compiled for these limits, without their compilation."""
    model = small("t5", tiny_tokenizer, draw_params)
    model.generation_config["forced_eos_token_id"] = 3
    calls = [
        {"max_new_tokens": 5},
        {"min_new_tokens": 12, "max_new_tokens": 17},
        {"max_new_tokens": 1},
        {"length": "30%"},
        {"prompt_lookup_num_tokens": 2, "max_new_tokens": 9},
        {"num_beams": 2, "early_stopping": "never", "max_new_tokens": 9},
        {"max_new_tokens": 25, "min_new_tokens": 25},
    ]
    compiled_first = [{}, {name: value for name, value in calls[4].items() if "max" not in name}]
    compiled_first += [{"num_beams": 2, "early_stopping": "never"}, {"max_new_tokens": 33}]
    engine = Engine(model, batch_size=4)
    for call in compiled_first:
        submit(engine, TEXTS[0], call).result(600)
    compiled = []
    with count_compilations(compiled):
        futures = [submit(engine, TEXTS[0], call) for call in calls]
        summaries = [future.result(600) for future in futures]
    engine.close()
    assert not compiled
    expected = [model.summaries([TEXTS[0]], **call)[0] for call in calls]
    for summary, alone in zip(summaries, expected, strict=True):
        assert (summary.text, summary.summary_tokens) == (alone.text, alone.summary_tokens)
        assert summary.ended == alone.ended


def model_with_memory(tokenizer, draw_params):
    family = get_family("bart")
    sizes = {name: 16 for name in ("d_model", "encoder_ffn_dim", "decoder_ffn_dim")}
    sizes |= {"encoder_layers": 1, "decoder_layers": 1, "max_position_embeddings": 64}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = family.config(
        sizes | {"vocab_size": tokenizer.vocab_size, "memory": "attentive", "memory_size": 8}
    )
    reading = {"segments": {"segment_length": 48, "min_tokens": 16, "max_tokens": 24}}
    params = draw_params(family.init_params(config))
    return Model(family, config, params, tokenizer, {"max_new_tokens": 12}, reading)


@pytest.mark.slow
def test_a_cancelled_document_is_not_read_further(tiny_tokenizer, draw_params, monkeypatch):
    engine = Engine(model_with_memory(tiny_tokenizer, draw_params), batch_size=2)
    has_begun, segments = threading.Event(), []
    decode = SegmentSummarizer.decode

    def counted(self, *args, **options):
        for summaries in decode(self, *args, **options):
            segments.append(summaries)
            has_begun.set()
            time.sleep(0.01)
            yield summaries

    monkeypatch.setattr(SegmentSummarizer, "decode", counted)
    future = submit(engine, " ".join(TEXTS * 60), {})
    assert has_begun.wait(600)
    assert future.cancel()
    submit(engine, TEXTS[2], {}).result(600)
    engine.close()
    assert len(segments) < 60  # of several hundred


@pytest.mark.slow
def test_limits_share_a_program_with_a_memory(tiny_tokenizer, draw_params):
    model = model_with_memory(tiny_tokenizer, draw_params)
    engine = Engine(model, batch_size=2)
    submit(engine, TEXTS[2], {}).result(600)
    calls = [{"max_new_tokens": 5}, {"min_new_tokens": 7, "max_new_tokens": 9}]
    compiled = []
    with count_compilations(compiled):
        summaries = [submit(engine, TEXTS[2], call).result(600) for call in calls]
    engine.close()
    assert not compiled
    for summary, call in zip(summaries, calls, strict=True):
        [alone] = model.summaries([TEXTS[2]], **call)
        assert (summary.text, summary.summary_tokens) == (alone.text, alone.summary_tokens)


@pytest.mark.slow
def test_requests_enter_and_leave_a_running_batch(small_model, monkeypatch):
    monkeypatch.setattr(continuous, "_STEPS_BETWEEN_ARRIVALS", 2)
    model = load(str(small_model))
    expected = [model.summaries([text], **LONG)[0].text for text in TEXTS]
    engine = Engine(model, batch_size=2)
    steps = []
    advance = model._runner._programs.slots.advance

    def follow(*arguments, **options):
        steps.append(engine.num_open)
        if len(steps) == 3:
            late.append(submit(engine, TEXTS[1], LONG))
        if len(steps) == 6:
            late.append(submit(engine, TEXTS[2], LONG))
        if len(steps) == 10:
            assert late[0].cancel()
        return advance(*arguments, **options)

    late = []
    monkeypatch.setattr(model._runner._programs.slots, "advance", follow)
    first = submit(engine, TEXTS[0], LONG)
    assert first.result(600).text == expected[0]
    assert late[1].result(600).text == expected[2]
    # 20 calls of two steps each: the last request entered the row of the cancelled one.
    assert 20 < len(steps) < 35
    engine.close()


@pytest.mark.slow
def test_rows_are_filled_before_tokens_are_decoded(small_model, monkeypatch):
    monkeypatch.setattr("longsum_jax.serving.batch._TOKENS_PER_TURN", 1)
    engine = Engine(load(str(small_model)), batch_size=2)
    futures = engine.submit([Request(text, "text", None) for text in TEXTS[:2]], LONG)
    assert all(future.result(600).text for future in futures)
    engine.close()
    [counts] = engine.statistics.values()
    # 40 tokens of both in turns of 8, each of which decodes two rows.
    assert (counts.running_row_turns, counts.row_turns) == (10, 10)


def test_lengths_that_are_read():
    presets = [get_family(name).presets["tiny"] for name in ("t5", "locost")]
    result = [
        [read_length(config, length) for length in (9, 300, 1025, 1281, 1900, 4096)]
        for config in presets
    ]
    assert result[0] == [256, 512, 1280, 1536, 2048, 4096]
    # The kernels of state-space layers are stored for every length.
    assert result[1] == [256, 512, 2048, 2048, 2048, 4096]
    assert read_lengths(presets[0], 1700) == [1792, 1536, 1280, 1024, 512, 256]
    assert read_lengths(presets[1], 1700) == [2048, 1024, 512, 256]


def test_ranker_and_queue(engine, monkeypatch):
    assert submit(engine, TEXTS[1], {"length": "1 sentences"}).result(10).unit == "words"
    with pytest.raises(InputError, match="num_beams is for a model"):
        submit(engine, TEXTS[1], {"num_beams": 2})
    blocked, entered = threading.Event(), threading.Event()

    def wait(*_):
        entered.set()
        blocked.wait(10)
        raise InputError("text is odd")

    with monkeypatch.context() as patch:
        patch.setattr("longsum_jax.serving.engine._extract", wait)
        failing = submit(engine, TEXTS[0], {})
        entered.wait(10)
    waiting = submit(engine, TEXTS[1], {})
    with pytest.raises(QueueFullError):
        submit(engine, TEXTS[1], {})
    assert waiting.cancel()
    waiting = submit(engine, TEXTS[1], {})  # the cancelled request has left its place
    blocked.set()
    with pytest.raises(InputError, match="odd"):
        failing.result(10)
    assert waiting.result(10).text
    with pytest.raises(InputError, match="3 documents in a request; send at most 2 at a time"):
        engine.submit([Request("A text.", "text", None)] * 3, {})


def waiting_piece(number=0, *, row_length=64, num_tokens=8, queued=None, job=None):
    job = job or Job(Future(), None, None, None, None)
    kind = BatchKind(None, None, row_length)
    queued = time.monotonic() if queued is None else queued
    document = TokenizedDocument([5] * num_tokens, num_tokens)
    return JobPiece(job, number, document, None, kind, False, queued)


def take_all(queue, kind):
    pieces = iter(lambda: queue.take(kind, lambda _: True, lambda work: work.kind != kind), None)
    return list(pieces)


@pytest.mark.parametrize(("age", "count"), [(0, 3), (60, 1)])
def test_requests_pass_others_only_for_a_while(age, count):
    queue = FairQueue()
    book = waiting_piece(row_length=512, queued=time.monotonic() - age)
    short = [waiting_piece() for _ in range(3)]
    queue.put([short[0], book, *short[1:]])
    kind = short[0].kind
    first = queue.take_first(lambda work: work.kind == kind, lambda _: False, waits=False)
    assert first is short[0]
    assert take_all(queue, kind) == short[1:count]
    assert len(queue) == 4 - count
    assert queue.take_first(lambda _: True, lambda _: True, waits=False) is book


@pytest.mark.parametrize("age", [0, 60])
def test_work_that_needs_the_device_alone_is_passed_only_for_a_while(age):
    queue = FairQueue()
    alone = waiting_piece(queued=time.monotonic() - age).single()
    later = waiting_piece()
    queue.put([alone, later])
    is_open = lambda work: work.kind.single is None  # noqa: E731
    taken = queue.take_first(is_open, lambda _: True, waits=False)
    assert taken is (None if age else later)
    assert queue.take_first(lambda _: True, lambda _: True, waits=False) is alone


def test_a_letter_does_not_wait_behind_the_pieces_of_a_book():
    queue = FairQueue()
    job = Job(Future(), None, None, None, None)
    book = [waiting_piece(number, job=job) for number in range(6)]
    queue.put(book)
    kind = book[0].kind
    take = partial(queue.take, kind, lambda _: True, lambda _: False)
    assert [take(), take()] == book[:2]
    letter, cancelled = waiting_piece(), waiting_piece()
    queue.put([letter, cancelled])
    cancelled.future.cancel()
    assert [take(), take(), *take_all(queue, kind)] == [book[2], letter, *book[3:]]
    assert len(queue) == 0


def test_a_long_document_waits_for_no_more_tokens_than_it_has():
    queue = FairQueue()
    long = waiting_piece(num_tokens=20)
    short = [waiting_piece(num_tokens=8) for _ in range(5)]
    order = []
    queue.put([long])
    for piece in short:  # a client that sends the next one as soon as one is taken
        queue.put([piece])
        order.append(queue.take(long.kind, lambda _: True, lambda _: False))
    assert [*order, *take_all(queue, long.kind)] == [*short[:2], long, *short[2:]]
