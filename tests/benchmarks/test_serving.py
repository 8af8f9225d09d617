"""Servers side by side: both write the same, and what is measured already is not measured again."""

import argparse
import threading

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def serving(scripts):
    return scripts("serving")


@pytest.mark.slow
def test_servers_write_the_same(report):
    flags = ["--size=tiny", "--model=bart", "--documents=4", "--clients=2", "--rounds=1"]
    flags += ["--shortest=20", "--longest=60", "--max_source_length=128", "--peer_batch_sizes=2"]
    flags += ["--min_new_tokens=4", "--max_new_tokens=8", "--typical_new_tokens=6"]
    result = report("serving", *flags)
    ours, peer, at_once, in_process = result["rows"]
    assert [row["by"] for row in result["rows"]] == [
        "longsum serve",
        "transformers, batches of 2",
        "longsum serve, one request",
        "Model.summaries",
    ]
    assert ours["equal"] == peer["equal"] == at_once["equal"] == in_process["equal"] == 1
    assert 4 <= in_process["summary_tokens_p50"] <= 7  # half of them end at 6
    assert ours["documents"] == 4
    assert ours["short_p95"] >= ours["short_p50"] > 0
    assert peer["ratio"] > 0
    assert at_once["overhead"] > -1
    assert report("serving", *flags)["entries"] == result["entries"]


def entry(by, seconds, number=0, **values):
    return {"by": by, "round": number, "seconds": seconds, "checksums": [1, 2], **values}


def test_rows(serving):
    entries = [
        entry(serving.OURS, 12.0, compile_seconds=10.0, latencies=[1.0, 9.0], cpu_seconds=2.0),
        entry(serving.PEER.format(4), 8.0, latencies=[4.0, 8.0], cpu_seconds=6.0),
        entry(serving.ONE_REQUEST, 4.2),
        entry(serving.IN_PROCESS, 4.0),
    ]
    entries[1]["checksums"] = [1, 3]
    ours, peer, at_once, _ = serving.totals(entries, [300, 5000], 16)
    assert ours["documents_per_second"] == 1  # without compilation
    assert (ours["short_p95"], peer["short_p95_ratio"]) == (1.0, 4.0)
    assert (peer["ratio"], peer["cpu_ratio"], peer["equal"]) == (4.0, 3.0, 0.5)
    assert at_once["overhead"] == pytest.approx(0.05)


def test_the_best_batches_of_the_first_round_have_further_turns(serving):
    args = argparse.Namespace(peer_batch_sizes="1,4", rounds=2)
    entries, order = [], []
    for number, by in serving.turns(args, entries):
        entries.append(entry(by, 5.0 if by.endswith(" 4") else 6.0, number))
        order.append((number, by))
    one, four = map(serving.PEER.format, (1, 4))
    ends = [serving.ONE_REQUEST, serving.IN_PROCESS]
    assert [by for number, by in order if number == 0] == [serving.OURS, one, four, *ends]
    assert [by for number, by in order if number == 1] == [serving.OURS, four, *ends]
    entries.pop()
    assert list(serving.turns(args, entries)) == [(1, serving.IN_PROCESS)]


def test_clients_ask_at_once_and_each_document_once(serving):
    asked, together = [], threading.Barrier(3, timeout=30)

    def answer(text):
        asked.append(text)
        together.wait()
        return text.upper()

    texts = list("abcdef")
    result = serving.ask(texts, 3, answer)
    assert sorted(asked) == texts
    assert result["checksums"] == serving.checksums("ABCDEF")
    assert len(result["latencies"]) == 6

    def fail(text):
        raise OSError("refused")

    with pytest.raises(SystemExit, match="no summary: refused"):
        serving.ask(texts, 3, fail)


def test_documents_have_all_lengths(serving):
    args = argparse.Namespace(documents=5, shortest=10, longest=160)
    texts = serving.documents_of(["word " * 50, "other " * 500], args)
    assert sorted(len(text.split()) for text in texts) == [10, 20, 40, 80, 160]
    assert serving.documents_of(["word " * 50, "other " * 500], args) == texts
