import dataclasses
import json
from collections import Counter
from fractions import Fraction

import pytest

from longsum_jax.data import mixture, stores
from longsum_jax.data.batches import Batches
from longsum_jax.data.mixture import counts_before, mix, mixing_order, parse_mixture, whole_weights
from longsum_jax.data.sources import documents
from longsum_jax.data.stores import ExampleStream
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow
from longsum_jax.typing import RowShards

SIZES = (5, 12)
RATES = (Fraction(2), Fraction(1))


def readers():
    return [
        lambda start, name=name, size=size: iter(
            [DataRow(f"{name}{n}", "text", None, None) for n in range(start, size)]
        )
        for name, size in zip("ab", SIZES, strict=True)
    ]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A mixture of two files, with splits, and the plain sources."""
    directory = tmp_path_factory.mktemp("mixture")
    for name, size in zip("ab", SIZES, strict=True):
        for split in ("train", "validation"):
            rows = [
                {"id": f"{name}{n}", "document": f"{name} {n} {'x' * n}. End.", "summary": "s"}
                for n in range(size)
            ]
            path = directory / f"{name}-{split}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    plain = [f"json:{directory}/{name}-{{split}}.jsonl" for name in "ab"]
    return [f"mix:2*{plain[0]}+1*{plain[1]}", *plain]


@pytest.mark.parametrize("repeats", [True, False])
def test_any_position_continues(repeats):
    whole = [document.id for document in mix(readers(), RATES, repeats=repeats)]
    for start in range(len(whole) + 3):
        rest = mix(readers(), RATES, start=start, repeats=repeats)
        assert [document.id for document in rest] == whole[start:]


def test_training_reads_each_part_at_least_once_at_its_rate():
    ids = [document.id for document in mix(readers(), RATES, repeats=True)]
    assert ids[:3] == ["1/a0", "2/b0", "1/a1"]
    assert ids[8] == "1.2/a0"
    assert ids[-1] == "2/b11"
    counts = Counter(name[0] for name in ids)
    assert counts["2"] == 12
    assert 22 <= counts["1"] <= 24


def test_evaluation_reads_each_document_once():
    ids = [document.id for document in mix(readers(), RATES, repeats=False)]
    assert len(ids) == len(set(ids)) == sum(SIZES)
    assert ids[:3] == ["1/a0", "2/b0", "1/a1"]


def test_a_part_without_documents():
    empty = [*readers(), lambda start: iter(())]
    with pytest.raises(InputError, match="part 3 of the mixture has no documents"):
        list(mix(empty, (*RATES, Fraction(1)), repeats=True))


def test_weights_and_counts(monkeypatch):
    assert whole_weights([Fraction("0.7"), Fraction("0.3")]) == (7, 3)
    assert whole_weights([Fraction(203037), Fraction(119924)]) == (203037, 119924)
    assert whole_weights([Fraction(1), Fraction(10**9)]) == (1, 10**6)
    order = mixing_order((5, 3, 1))
    result = [next(order) for _ in range(30)]
    for position in range(30):
        before = [result[:position].count(part) for part in range(3)]
        assert counts_before(position, (5, 3, 1)) == before


def test_parts():
    parts = parse_mixture("mix:0.7*json:a+b*.jsonl+3*hf:x/y@main+.5*arxiv")
    assert [source for _, source in parts] == ["json:a+b*.jsonl", "hf:x/y@main", "arxiv"]
    assert [rate for rate, _ in parts] == [Fraction("0.7"), 3, Fraction(1, 2)]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("mix:json:a+json:b", '"json:a" has no rate; give RATE'),
        ("mix:0.5*json:a+json:b", '"json:b" has no rate; give RATE'),
        ("mix:0*json:a", r'the rate of "0\*json:a" is 0'),
        ("mix:1*mix:1*json:a", "a mixture in a mixture"),
        ("mix:1*no_such_task", 'source "no_such_task" must be one of .* or the name of a task'),
    ],
)
def test_a_wrong_mixture(source, message):
    with pytest.raises(InputError, match=message):
        get_task("summaries", source=source)


def test_parts_keep_their_documents_and_named_tasks_their_fields(sources):
    task = get_task("summaries", source=sources[0])
    result = {document.id.partition("/")[2] for document in documents(task, "train")}
    plain = [get_task("summaries", source=source) for source in sources[1:]]
    assert result == {row.id for one in plain for row in documents(one, "train")}
    mixed = get_task("summaries", source=f"mix:1*minutes+1*{sources[1]}")
    first, second = (next(documents(mixed, "train", start)) for start in (0, 1))
    assert first.id.startswith("1/")
    assert second.id == "2/a0"


def test_a_stream_of_a_mixture_resumes_at_once_on_other_hosts(sources, tokenizer, monkeypatch):
    task = dataclasses.replace(
        get_task("summaries", source=sources[0]), max_source_length=64, max_target_length=8
    )
    options = {"source_lengths": (16, 64), "target_length": 8, "shuffle": 4, "batch_size": 2}

    def batches(**host):
        return Batches(ExampleStream(task, tokenizer, "train", 4), **options, **host)

    whole = batches()
    for _ in range(13):
        next(whole)
    state = json.loads(json.dumps(whole.state()))
    starts = []
    read = stores.documents
    monkeypatch.setattr(stores, "documents", lambda *a: [starts.append(a[2]), read(*a)][1])
    hosts = [batches(host_rows=RowShards((index,), 2)) for index in range(2)]
    starts.clear()
    for host in hosts:
        host.restore(state)
    for _ in range(20):
        expected = next(whole)["input_ids"].tolist()
        assert [next(host)["input_ids"].tolist()[0] for host in hosts] == expected
    assert min(starts[:2]) >= 16  # 26 examples were read


def test_the_period_is_bounded():
    assert sum(whole_weights([Fraction(1, 3), Fraction("0.123456789")])) <= mixture._LONGEST_PERIOD
