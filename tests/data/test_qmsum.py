import json

import pytest

from longsum_jax.data.qmsum import read_qmsum
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow

MEETING = {
    "topic_list": [{"topic": "Budget", "relevant_text_span": [["0", "1"]]}],
    "general_query_list": [{"query": "What was said?", "answer": "Little  was said."}],
    "specific_query_list": [
        {"query": "Who came?", "answer": "Ann.", "relevant_text_span": [["0", "0"]]},
        {"query": "Who left?", "answer": "Bob.", "relevant_text_span": []},
    ],
    "meeting_transcripts": [
        {"speaker": "Ann", "content": "Hello {vocalsound} all .\nNé ."},
        {"speaker": "Bob", "content": " "},
        {"speaker": "", "content": "Bye ."},
    ],
}
TRANSCRIPT = "Ann: Hello {vocalsound} all . Né .\nBye ."


@pytest.fixture
def release(tmp_path):
    """A clone of the repository with the meetings of one split."""

    def make(split="test", **meetings):
        folder = tmp_path / "QMSum" / "data" / "ALL" / split
        folder.mkdir(parents=True, exist_ok=True)
        for name, meeting in meetings.items():
            text = meeting if isinstance(meeting, str) else json.dumps(meeting)
            (folder / f"{name}.json").write_text(text, encoding="utf-8")
        return tmp_path / "QMSum"

    return make


def test_every_query_is_a_document(release):
    directory = release("val", b=MEETING, a=MEETING | {"specific_query_list": []})
    assert list(read_qmsum(directory, "validation")) == [
        DataRow("a/general/0", TRANSCRIPT, "Little was said.", "What was said?"),
        DataRow("b/general/0", TRANSCRIPT, "Little was said.", "What was said?"),
        DataRow("b/specific/0", TRANSCRIPT, "Ann.", "Who came?"),
        DataRow("b/specific/1", TRANSCRIPT, "Bob.", "Who left?"),
    ]


def test_the_task_reads_the_release(release):
    directory = release(a=MEETING)
    task = get_task("qmsum", source=f"qmsum:{directory}")
    assert list(documents(task, "test")) == list(read_qmsum(directory, "test"))
    unlabelled = get_task("qmsum", source=f"qmsum:{directory}", objective="gap_sentences")
    assert [row.summary for row in documents(unlabelled, "test")] == [None] * 3
    labelled = get_task("qmsum", source=f"qmsum:{directory}", objective="classify")
    with pytest.raises(InputError, match='but no labels, which objective="classify" needs; give'):
        list(documents(labelled, "test"))


TURNS = MEETING["meeting_transcripts"]


@pytest.mark.parametrize(
    ("meeting", "problem"),
    [
        ("{", r"a\.json: not valid JSON \(.*\); copy the file again"),
        ("[]", r"a\.json: expected a JSON object, got list"),
        (
            {key: MEETING[key] for key in ("general_query_list", "specific_query_list")},
            r'a\.json: no list "meeting_transcripts"; is this a file of the QMSum release\?',
        ),
        (MEETING | {"specific_query_list": {}}, r'a\.json: no list "specific_query_list"; is'),
        (MEETING | {"meeting_transcripts": TURNS[1:2]}, r"a\.json: the meeting has no text; rem"),
        (
            MEETING | {"meeting_transcripts": [*TURNS, {"speaker": "Ann"}]},
            r'a\.json: meeting_transcripts/3: no text under "content"; copy the file again',
        ),
        (
            MEETING | {"meeting_transcripts": [{"speaker": "A", "content": "\ud800"}]},
            r'meeting_transcripts/0: "content" contains a lone surrogate \(\\ud800\); copy the',
        ),
    ],
)
def test_malformed_meetings_are_an_error_or_left_out(release, meeting, problem):
    directory = release(a=meeting, b=MEETING)
    with pytest.raises(InputError, match=problem):
        list(read_qmsum(directory, "test"))
    unreadable = []
    rows = list(read_qmsum(directory, "test", unreadable=unreadable))
    assert [row.id for row in rows] == ["b/general/0", "b/specific/0", "b/specific/1"]
    assert len(unreadable) == 1


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"query": "Who?"}, r'a\.json: specific/0: no text under "answer"; copy the file again'),
        ("Who?", r'a\.json: specific/0: no text under "query"; copy'),
        ({"query": " ", "answer": "A"}, r'specific/0: "query" is empty; remove the query'),
        ({"query": "Who?", "answer": 3}, r'specific/0: no text under "answer"; copy'),
    ],
)
def test_malformed_queries_leave_the_others_of_their_meeting(release, caplog, query, problem):
    good = MEETING["specific_query_list"][1]
    directory = release(a=MEETING | {"specific_query_list": [query, good]})
    with pytest.raises(InputError, match=problem):
        list(read_qmsum(directory, "test"))
    rows = list(documents(get_task("qmsum", source=f"qmsum:{directory}"), "test"))
    assert [row.id for row in rows] == ["a/general/0", "a/specific/1"]
    (record,) = caplog.records
    assert (
        f'qmsum:{directory}: split "test" has 2 documents; entries left out as ' in record.message
    )
    assert "unreadable: 1; the first: " in record.message


def test_a_release_that_is_missing_or_unreadable(release, monkeypatch):
    directory = release(a="{")
    monkeypatch.chdir(directory)
    problem = (
        r"QMSum/data/ALL/train: no meetings \(\*\.json\) there; check the path, or name the "
        r'directory of the release: task\.source="qmsum:DIR" \(commands: --source=qmsum:DIR\)'
    )
    with pytest.raises(InputError, match=problem):
        list(documents(get_task("qmsum"), "train"))
    with pytest.raises(InputError, match=r"a\.json: not valid JSON"):
        list(documents(get_task("qmsum", source="qmsum:."), "test"))
