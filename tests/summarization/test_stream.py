"""Batches of documents that come one by one: which go together, in what order, read how far."""

import threading
import time

import pytest

from longsum_jax.errors import InputError
from longsum_jax.summarization.stream import StreamFunctions, ahead, coarse_length, summarize_stream
from longsum_jax.summarization.summary import Request, Summary


def summary_of(text):
    return Summary(text, len(text), len(text), 0, 1, "eos")


def work(batches, *, reads_on_device=False, threads=None):
    """A model whose tokens are characters and whose summaries are the texts in capitals."""

    def read(request):
        if threads is not None:
            threads.add(threading.current_thread())
        if not request.text:
            raise InputError(f"{request.name} is empty")
        return request.text

    def summarize(documents, batch_size):
        rows = len(documents) if batch_size == "auto" else batch_size
        for start in range(0, len(documents), rows):
            batch = documents[start : start + rows]
            batches.append(batch)
            yield [(start + row, summary_of(text.upper())) for row, text in enumerate(batch)]

    return StreamFunctions(read, len, summarize, reads_on_device)


def requests(*lengths):
    return [Request("x" * length, f"document {i}", None) for i, length in enumerate(lengths)]


@pytest.mark.parametrize("batch_size", [1, 2, 3, "auto"])
@pytest.mark.parametrize("reads_on_device", [False, True])
def test_every_document_comes_back_once(batch_size, reads_on_device):
    lengths = [5, 0, 300, 7, 7, 64, 1, 0, 900]
    batches = []
    stream = summarize_stream(
        work(batches, reads_on_device=reads_on_device), requests(*lengths), batch_size
    )
    results = dict(result for batch in stream for result in batch)
    assert sorted(results) == list(range(len(lengths)))
    for index, length in enumerate(lengths):
        if length:
            assert results[index].text == "X" * length
        else:
            assert str(results[index]) == f"document {index} is empty"
    assert sum(map(len, batches)) == 7


@pytest.mark.parametrize("documents", ["a text", ["a text"], [("a text", "a", None)]])
@pytest.mark.parametrize("reads_on_device", [False, True])
def test_texts_in_place_of_requests(documents, reads_on_device):
    stream = summarize_stream(work([], reads_on_device=reads_on_device), documents, 1)
    with pytest.raises(InputError, match=r"requests holds a (str|tuple); give each document as "):
        list(stream)


def test_one_by_one_keeps_the_order():
    stream = summarize_stream(work([]), requests(3, 1, 2), 1)
    assert [index for batch in stream for index, _ in batch] == [0, 1, 2]


def test_like_lengths_go_together_in_a_window():
    batches = []
    lengths = [10 + 37 * i % 500 for i in range(200)]
    list(summarize_stream(work(batches), requests(*lengths), "auto"))
    assert [len(batch) for batch in batches] == [64, 64, 64, 8]
    for batch in batches:
        assert [*map(len, batch)] == sorted(map(len, batch), reverse=True)


def test_coarse_lengths():
    for length in range(1, 3000):
        coarse = coarse_length(length)
        assert length <= coarse <= max(2, 1.5 * length)
    assert len({coarse_length(length) for length in range(1, 4097)}) <= 24


def test_documents_are_read_in_a_thread_and_no_further_than_the_window():
    threads, taken = set(), []

    def following():
        for request in requests(*[5] * 100):
            taken.append(request)
            yield request

    stream = summarize_stream(work([], threads=threads), following(), 1)
    next(stream)
    time.sleep(0.05)
    assert len(taken) < 6
    assert threading.current_thread() not in threads
    stream.close()
    time.sleep(0.3)
    assert not any(thread.is_alive() for thread in threads)


def test_errors_of_the_thread_are_raised():
    def broken():
        yield 1
        raise KeyboardInterrupt

    with ahead(broken(), 2) as values:
        assert next(values) == 1
        with pytest.raises(KeyboardInterrupt):
            next(values)
