import itertools
import re

import pytest

from longsum_jax.data.tasks import BASE_OBJECTIVES, TASKS, Task, get_task
from longsum_jax.errors import InputError
from longsum_jax.text.gap_sentences import GapSentenceOptions


def test_lengths_of_the_papers():
    lengths = {
        name: (task.max_source_length, task.max_target_length) for name, task in TASKS.items()
    }
    assert lengths["c4"] == (4096, 910)
    assert lengths["govreport"] == lengths["booksum_book"] == (4096, 1024)
    assert lengths["arxiv"] == lengths["pubmed"] == lengths["summscreenfd"] == (4096, 512)


def test_overrides_replace_fields_and_leave_the_registry_alone():
    task = get_task("c4", max_source_length=128, gap_sentences={"ratio": 0.5})
    assert task.gap_sentences == GapSentenceOptions(ratio=0.5)
    assert (task.max_source_length, task.source) == (128, "tfds:c4/en")
    assert TASKS["c4"].max_source_length == 4096


def test_json_source_brings_the_field_names_of_json_lines():
    task = get_task("arxiv", source="json:x/*.jsonl")
    assert (task.document_key, task.summary_key, task.query_key) == ("document", "summary", "query")
    assert get_task("c4", source="json:x").document_key == "text"
    assert get_task("arxiv", source="json:x", document_key="body").document_key == "body"
    assert get_task("mediasum", source="json:x").source_split("validation") == "validation"


def test_the_query_of_scrolls_stands_in_the_document_and_that_of_json_lines_beside_it():
    assert get_task("qmsum_scrolls").leading_query
    assert not get_task("qmsum_scrolls", source="json:x").leading_query
    assert not get_task("qmsum").leading_query


def test_plain_names_are_the_releases_of_the_authors():
    sources = {name: TASKS[name].source for name in ("govreport", "qmsum", "booksum_fullbooks")}
    assert sources == {
        "govreport": "govreport:gov-report",
        "qmsum": "qmsum:QMSum",
        "booksum_fullbooks": "parquet:booksum-fullbooks/data/{split}-*.parquet",
    }
    assert TASKS["govreport_scrolls"].source == "tfds:scrolls/gov_report"
    assert TASKS["qmsum_scrolls"].source == "tfds:scrolls/qmsum"
    lengths = {
        (TASKS[name].max_source_length, TASKS[name].max_target_length)
        for name in ("govreport", "govreport_scrolls", "booksum_fullbooks")
    }
    assert lengths == {(4096, 1024)}


def test_an_empty_override_stands_for_the_own_value():
    blank = dict.fromkeys(
        ("source", "document_key", "summary_key", "query_key", "data_dir", "cache_dir"), ""
    )
    assert get_task("qmsum", **blank) == TASKS["qmsum"]
    json_task = get_task("qmsum", **(blank | {"source": "json:x"}))
    assert (json_task.document_key, json_task.query_key) == ("document", "query")
    assert get_task("qmsum", prefix="").prefix == ""


def test_objectives_of_encoders_read_text_or_documents():
    assert get_task("labels", source="json:x").document_key == "text|document"
    assert get_task("pg19", objective="mlm", source="json:x").document_key == "text|document"
    assert get_task("pg19", objective="mlm").piece_words is None
    assert get_task("labels", source="json:x", label_key="").label_key == "label"


def test_only_single_files_hold_out():
    assert get_task("labels", source="json:x", held_out=0.1).holds_out
    assert not get_task("labels", source="json:{split}", held_out=0.1).holds_out
    assert not get_task("labels", source="json:x").holds_out
    assert not get_task("embedded", held_out=0.1).holds_out


def test_splits_of_the_same_files_are_divided_or_not():
    assert get_task("labels", source="json:x").is_undivided
    assert not get_task("labels", source="json:x", held_out=0.1).is_undivided
    assert not get_task("labels", source="json:{split}").is_undivided
    assert not get_task("embedded").is_undivided


def parts(task, split):
    """The source's split and the percentages of it that a split of a task reads."""
    name, share = re.fullmatch(r"(\w+)(?:\[(.*)%?\])?", task.source_split(split)).groups()
    first, _, last = (share or ":").replace("%", "").partition(":")
    return name, range(int(first or 0), int(last or 100))


def share_documents(task, first, second):
    (name, share), (other_name, other_share) = parts(task, first), parts(task, second)
    return name == other_name and bool(set(share) & set(other_share))


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_no_task_ranks_checkpoints_by_documents_that_it_reports_or_trains_on(task):
    pairs = list(itertools.combinations(task.splits, 2))
    assert [pair for pair in pairs if share_documents(task, *pair)] == []
    if "validation" in task.splits:
        assert parts(task, "validation")[0] != "test"


def test_held_out_documents_are_not_the_test_split():
    task = get_task("labels", source="json:rows.jsonl", held_out=0.1)
    assert task.source_split("validation") == "validation"
    problem = (
        'task "labels": json:rows.jsonl has no split "test", because the share held_out=0.1 is the '
        "validation split, which ranks checkpoints; give test documents in another file"
    )
    with pytest.raises(InputError, match=re.escape(problem)):
        task.source_split("test")
    assert get_task("labels", source="json:{split}", held_out=0.1).source_split("test") == "test"


def test_pieces_are_for_gap_sentences():
    assert TASKS["pg19"].piece_words == 3000
    assert TASKS["c4"].piece_words is None
    assert get_task("pg19", source="json:x").piece_words == 3000
    assert get_task("pg19", objective="summarize").piece_words is None
    assert get_task("pg19", piece_words=None).piece_words is None


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("govrep", {}, 'unknown task "govrep"; did you mean "govreport"'),
        (
            "c4",
            {"max_source_lenght": 9},
            'unknown key "max_source_lenght"; did you mean "max_source_length"',
        ),
        ("c4", {"objective": "summarise"}, 'did you mean "summarize"'),
        ("c4", {"source": "csv:a"}, 'source "csv:a" must be one of embedded'),
        ("c4", {"source": "json:"}, 'source "json:" must be one of'),
        ("c4", {"source": "qmsum:"}, 'source "qmsum:" must be one of'),
        ("c4", {"max_target_length": 1}, "max_target_length=1 must be at least 2"),
        ("c4", {"gap_sentences": {"ratio": 2.0}}, "ratio"),
        ("c4", {"piece_words": 19}, 'task "c4": piece_words=19 must be at least 20'),
        ("c4", {"piece_words": "20"}, "piece_words: expected int, got '20'"),
        ("arxiv", {"piece_words": 300}, 'piece_words=300 is only for objective="gap_sentences"'),
        ("c4", {"objective": "summarize", "piece_words": 300}, "piece_words=300 is only for"),
        ("imdb_labels", {"cache_dir": "x"}, "a seqio cache holds no labels; leave out cache_dir=x"),
        ("labels", {"held_out": 1.0}, "held_out=1.0 must be at least 0 and below 1"),
    ],
)
def test_what_does_not_fit(name, overrides, message):
    with pytest.raises(InputError, match=message):
        get_task(name, **overrides)


def test_unknown_split_lists_the_known():
    with pytest.raises(InputError, match='has no split "dev"; known: train, validation'):
        get_task("c4").source_split("dev")
    assert get_task("mediasum").source_split("validation") == "val"


def test_a_task_can_be_written_from_scratch():
    assert Task("mine", "json:mine.jsonl").splits["test"] == "test"


def test_objectives_of_other_packages_have_the_documents_of_their_base(monkeypatch):
    monkeypatch.setitem(BASE_OBJECTIVES, "unlikelihood", "summarize")
    task = get_task("minutes", objective="unlikelihood")
    assert (task.objective, task.base_objective) == ("unlikelihood", "summarize")
    assert task.needs_summary
    assert task.writes_summaries
    assert not task.needs_label
