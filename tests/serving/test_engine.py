"""The engine: requests share a batch, and neither their results nor their errors depend on it."""

import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from longsum_jax.errors import InputError
from longsum_jax.inference import continuous
from longsum_jax.inference.loading import load
from longsum_jax.inference.summary import Request
from longsum_jax.serving.engine import Engine, QueueFullError, _Piece

TEXTS = [" ".join(f"Number {i} of {n} is said." for i in range(n)) for n in (3, 2, 1)]

LONG = {"min_new_tokens": 40, "max_new_tokens": 40}


def submit(engine, text, options):
    [future] = engine.submit([Request(text, "text", None)], options)
    return future


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
    assert [future.result(60).text for future in futures] == expected
    with pytest.raises(InputError, match="num_beans"):
        submit(engine, TEXTS[0], {"num_beans": 2})
    engine.close()
    assert engine.num_open == 0


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
    assert first.result(60).text == expected[0]
    assert late[1].result(60).text == expected[2]
    # 20 calls of two steps each: the last request entered the row of the cancelled one.
    assert 20 < len(steps) < 35
    engine.close()


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


def test_requests_pass_others_only_for_a_while(engine):
    def piece(slot_length, queued):
        engine_of_piece = SimpleNamespace(seed=0)
        return _Piece(Future(), None, engine_of_piece, None, 0, None, None, slot_length, queued)

    now = time.monotonic()
    short = [piece(64, now) for _ in range(3)]
    for queued, expected in ((now, short), (now - 60, short[:1])):
        book = piece(512, queued)
        engine._waiting.extend([short[0], book, *short[1:]])
        assert engine._take_sharing(short[0], 8) == expected
        assert engine._waiting[0] is book
        engine._waiting.clear()
