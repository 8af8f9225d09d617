import threading
from types import SimpleNamespace

import numpy as np
import pytest

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.summarization.documents import DocumentSummarizer
from longsum_jax.summarization.strategies import Reader
from longsum_jax.summarization.strategy_engine import StrategyEngine
from longsum_jax.summarization.summary import Request
from longsum_jax.summarization.summary_options import SummaryOptions


class Letters:
    """A tokenizer of letters that remembers who asked."""

    def __init__(self):
        self.threads = []
        self.seen = {}

    def encode(self, text):
        self.threads.append(threading.current_thread())
        self.seen.setdefault(text[0], threading.Event()).set()
        return list(map(ord, text))

    def add_special_tokens(self, ids, limit=None):
        return [*ids[: limit and limit - 1], 1]

    def decode(self, ids):
        return "".join(map(chr, ids))


@pytest.fixture
def summarizer():
    """Gives the first letter of a document, once the next document has been read."""
    tokenizer = Letters()
    config = SimpleNamespace(pad_token_id=0, encoder_attention="full")

    def generate(ids, mask, generation, seed):
        assert mask.sum(1).max() == ids.shape[1]
        following = chr(ids[0, 0] + 1)
        if following <= "c":
            assert tokenizer.seen.setdefault(following, threading.Event()).wait(20)
        rows = len(ids)
        return SimpleNamespace(sequences=ids[:, [0, 0]], lengths=[1] * rows, ended=[True] * rows)

    made = DocumentSummarizer(config, tokenizer, generate=generate, make_slots=lambda **sizes: None)
    return SimpleNamespace(made=made, tokenizer=tokenizer)


def requests(*texts):
    return [Request(text, f"document {i}", None) for i, text in enumerate(texts, 1)]


def summaries(summarizer, *texts, **options):
    generation = GenerationOptions(max_new_tokens=1, decoder_start_token_id=0)
    call = SummaryOptions(strategy="direct", **options)
    reader = Reader(summarizer.tokenizer, longest_input=64, max_new_tokens=1)
    engine = StrategyEngine(summarizer.made, reader, call, generation, None)
    return engine.summaries(requests(*texts))


def test_documents_are_read_while_others_are_decoded(summarizer):
    """A decoder that waits for the next document would wait for ever without a thread."""
    result = summaries(summarizer, "aaa", "bb", "cccc")
    assert [summary.text for summary in result] == ["a", "b", "c"]
    assert [summary.read_tokens for summary in result] == [4, 3, 5]
    assert threading.main_thread() not in summarizer.tokenizer.threads
    assert len(set(summarizer.tokenizer.threads)) == 1


def test_a_document_that_cannot_be_read_is_named(summarizer):
    with pytest.raises(InputError, match="document 2 has 3 tokens, more than max_source_length=2"):
        summaries(summarizer, "a", "bb", max_source_length=2, on_overflow="error")
    assert not any(thread.is_alive() for thread in summarizer.tokenizer.threads)


def test_the_last_batch_is_filled_up(summarizer, monkeypatch):
    # On a mesh the documents of a batch begin and end together.
    monkeypatch.setattr(
        "jax.sharding.get_abstract_mesh", lambda: SimpleNamespace(size=2, shape={"batch": 2})
    )
    result = summaries(summarizer, "aa", "b", "c", batch_size=2)
    assert [summary.text for summary in result] == ["a", "b", "c"]
    assert np.sum([summary.dropped_tokens for summary in result]) == 0


@pytest.mark.parametrize(("count", "slots"), [(1, []), (2, [2]), (3, [4]), (9, [8])])
def test_there_are_few_slots_without_a_document(count, slots):
    made = []

    def of_row(ids):
        return SimpleNamespace(sequences=ids[:, [0, 0]], lengths=[1], ended=[True])

    def make_slots(batch_size, **options):
        made.append(batch_size)
        decode = SimpleNamespace(
            decode=lambda rows: ((i, of_row(x[0])) for i, x in enumerate(rows))
        )
        return decode

    def generate(ids, mask, generation, seed):
        return of_row(ids)

    config = SimpleNamespace(pad_token_id=0, encoder_attention="full")
    letters = DocumentSummarizer(config, Letters(), generate=generate, make_slots=make_slots)
    texts = [chr(ord("a") + i) for i in range(count)]
    result = summaries(SimpleNamespace(made=letters, tokenizer=Letters()), *texts, batch_size=8)
    assert [summary.text for summary in result] == texts
    assert made == slots
