import json

import pytest

from longsum_jax.commands import corpus
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError

ROWS = [
    {"id": "a", "report": "The cat sat on the mat.", "abstract": "The cat slept."},
    {"id": "b", "report": "A dog barked.", "abstract": "A dog barked."},
]
KEYS = ("--document_key=report", "--summary_key=abstract")


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


def test_statistics_of_files_as_a_table_and_as_json(data, tmp_path, capsys):
    out = tmp_path / "statistics.json"
    corpus.main(["statistics", data, data, *KEYS, f"--out={out}"])
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[-4:] == ["words", "compression", "coverage", "density"]
    assert [line.split() for line in lines] == [
        [data, "2", "4.5", "3.0", "1.50", "0.833", "2.17"]
    ] * 2
    first, _ = json.loads(out.read_text())
    assert first["documents"] == 2
    assert first["density"] == pytest.approx((4 / 3 + 3) / 2)


def test_statistics_of_the_first_documents(data, capsys):
    corpus.main(["statistics", data, *KEYS, "--examples=1"])
    assert capsys.readouterr().out.splitlines()[1].split()[1:4] == ["1", "6.0", "3.0"]


def test_govreport_becomes_a_data_set_of_its_own(tmp_path, capsys):
    release, target = tmp_path / "gov-report", tmp_path / "reports"
    section = {"section_title": "Title", "paragraphs": ["Text é."], "subsections": []}
    for office, row in (
        ("crs", {"reports": section, "summary": ["S."]}),
        ("gao", {"report": [], "highlight": []}),
    ):
        (release / office).mkdir(parents=True)
        (release / "split_ids").mkdir(exist_ok=True)
        for split in ("train", "valid", "test"):
            (release / office / "1.json").write_text(json.dumps(row))
            (release / "split_ids" / f"{office}_{split}.ids").write_text(
                "1\n1\n" if office == "crs" else ""
            )
    with pytest.raises(InputError, match=r"gao_train\.ids: the file is empty"):
        corpus.main(["govreport", str(release), str(target)])
    assert not target.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["gov-report"]
    for split in ("train", "valid", "test"):
        (release / "split_ids" / f"gao_{split}.ids").write_text("1\n")
    (release / "gao" / "1.json").write_text(
        json.dumps({"report": [section], "highlight": [section]})
    )
    corpus.main(["govreport", str(release), str(target)])
    assert f"{target}/validation.jsonl: 3 reports" in capsys.readouterr().out
    # One of the ids names no file: it is told, and counted.
    (release / "split_ids" / "gao_train.ids").write_text("1\n2\n")
    corpus.main(["govreport", str(release), str(target)])
    out, err = capsys.readouterr()
    assert f"{target}/train.jsonl: 3 reports, 1 left out\n" in out
    assert f"{target}/test.jsonl: 3 reports\n" in out
    assert f"left out: {release}/gao/2.json: no such file; check the path" in err
    # Where nothing can be read, nothing is written.
    for office in ("crs", "gao"):
        (release / "split_ids" / f"{office}_test.ids").write_text("3\n")
    with pytest.raises(InputError, match=r"crs/3\.json: no such file"):
        corpus.main(["govreport", str(release), str(target)])
    task = get_task("govreport", source=f"json:{target}/{{split}}.jsonl")
    found = [(row.id, row.document, row.summary) for row in documents(task, "test")]
    assert found == [("crs/1", "Title\nText é.", "S.")] * 2 + [
        ("gao/1", "Title\nText é.", "Text é.")
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["statistics", "nowhere.jsonl"], "nowhere.jsonl: no such file; check the path"),
        (["statistics", "DATA"], 'rows.jsonl:1: no key "document"; '),
        (["statistics", "DATA", "--examples=0"], "--examples=0 must be at least 1"),
        (
            ["statistics", "DATA", *KEYS, "--out=DATA/x"],
            "cannot be written (Not a directory); give another place",
        ),
        (
            ["govreport", "nowhere", "DATA/x"],
            "cannot be written (Not a directory); give another DST",
        ),
    ],
)
def test_bad_input(arguments, problem, data, capsys):
    with pytest.raises(InputError) as caught:
        corpus.main([argument.replace("DATA", data) for argument in arguments])
    assert problem in str(caught.value)
