import json

import pytest

from longsum_jax.data.govreport import SummarySection, aspect_shares, read_govreport
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow

SECTION = {
    "section_title": "Background",
    "paragraphs": ["First  one.", "Second\none."],
    "subsections": [],
}
REPORT = {
    "section_title": "",
    "paragraphs": [],
    "subsections": [SECTION, SECTION | {"subsections": [SECTION]}],
}
CRS = {"id": "R1", "title": "On ships", "reports": REPORT, "summary": ["A summary.", "More of it."]}
GAO = {
    "id": "GAO-1",
    "report": [SECTION, SECTION],
    "highlight": [SECTION | {"section_title": "What GAO Found"}],
}


@pytest.fixture
def release(tmp_path):
    """The directory gov-report with one report of each office in every split."""

    def make(crs=CRS, gao=GAO):
        for office, row in (("crs", crs), ("gao", gao)):
            for part in (office, "split_ids"):
                (tmp_path / part).mkdir(exist_ok=True)
            for split in ("train", "valid", "test"):
                (tmp_path / "split_ids" / f"{office}_{split}.ids").write_text(f"{split}-1\n")
                (tmp_path / office / f"{split}-1.json").write_text(json.dumps(row))
        return tmp_path

    return make


def test_sections_become_lines_and_summaries_have_no_titles(release):
    crs, gao = read_govreport(release(), "validation")
    once = "Background\nFirst one.\nSecond one."
    assert crs == DataRow("crs/valid-1", "\n".join([once] * 3), "A summary.\nMore of it.", None)
    assert gao == DataRow("gao/valid-1", "\n".join([once] * 2), "First one.\nSecond one.", None)


def test_sections_are_counted_by_office(release):
    """Those of the report itself, not the sections inside them."""
    counts = {}
    assert len(list(read_govreport(release(), "test", sections=counts))) == 2
    assert counts == {"crs": [2], "gao": [2]}
    counts = {}
    list(read_govreport(release(CRS | {"reports": SECTION}), "test", sections=counts))
    assert counts["crs"] == [1]


def test_aspects_of_gao_summaries_are_kept(release):
    inner = {"section_title": "Details", "paragraphs": ["One of these."], "subsections": []}
    highlight = [
        {"section_title": "Why GAO  Did This Study:", "paragraphs": ["Money.", "Time."]},
        {
            "section_title": "What GAO Found",
            "paragraphs": ["Three faults."],
            "subsections": [inner],
        },
        {"section_title": "What GAO Recommends", "paragraphs": [" "]},
        {"section_title": "Fast facts", "paragraphs": ["It is so."]},
        "For more information, call.",
    ]
    aspects = {}
    directory = release(gao=GAO | {"highlight": highlight})
    rows = list(read_govreport(directory, "test", aspects=aspects))
    assert list(aspects) == ["gao/test-1"]
    assert aspects["gao/test-1"] == [
        SummarySection("other", "For more information, call."),
        SummarySection("Why GAO did this study", "Money.\nTime."),
        SummarySection("What GAO found", "Three faults.\nOne of these."),
        SummarySection("other", "It is so."),
    ]
    texts = [section.text for section in aspects["gao/test-1"]]
    assert rows[1].summary == "\n".join(texts)


def test_shares_of_aspects_are_percentages_of_summaries_and_of_sentences():
    why, result, recommends = "Why GAO did this study", "What GAO found", "What GAO recommends"
    summaries = [
        [SummarySection(why, "Money."), SummarySection(result, "One. Two.\nThree.")],
        [SummarySection(result, "One."), SummarySection(result, "Two.")],
        [SummarySection(why, "Time."), SummarySection(result, "One. Two.")],
        [SummarySection(why, "Law.")],
    ]
    assert aspect_shares(summaries) == {why: (75, 30), result: (75, 70), recommends: (0, 0)}
    with_other = aspect_shares([*summaries, [SummarySection("other", "So it is. All of it.")]])
    assert with_other["other"] == pytest.approx((20, 100 * 2 / 12))
    assert aspect_shares([]) == dict.fromkeys((why, result, recommends), (0, 0))


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (
            {"summary": ["a"]},
            'crs/test-1.json: no key "reports"; is this a file of the GovReport release?',
        ),
        ([], 'crs/test-1.json: no key "reports"; is this'),
        (
            CRS | {"summary": [" "]},
            "crs/test-1.json: report or summary has no text; remove its id from split_ids",
        ),
        (
            CRS | {"reports": 3},
            "crs/test-1.json: a section is int, not an object; copy the file again",
        ),
        (
            CRS | {"reports": SECTION | {"subsections": [[]]}},
            "crs/test-1.json: a section is list, not an object",
        ),
        (
            CRS | {"reports": SECTION | {"paragraphs": [1]}},
            'crs/test-1.json: "section_title" and "paragraphs" must be',
        ),
    ],
)
def test_files_of_another_shape(row, problem, release):
    with pytest.raises(InputError) as caught:
        list(read_govreport(release(row), "test"))
    assert problem in str(caught.value)


def test_reports_that_cannot_be_read_may_be_left_out(release):
    unreadable = []
    result = read_govreport(release(CRS | {"summary": [" "]}), "test", unreadable=unreadable)
    assert [row.id for row in result] == ["gao/test-1"]
    assert len(unreadable) == 1
    assert "crs/test-1.json: report or summary has no text" in str(unreadable[0])


def test_the_task_reads_the_release(release, caplog):
    directory = release(CRS | {"summary": [" "]})
    task = get_task("govreport", source=f"govreport:{directory}")
    (report,) = documents(task, "test")
    assert (report.id, report.summary) == ("gao/test-1", "First one.\nSecond one.")
    (record,) = caplog.records
    assert f'govreport:{directory}: split "test" has 1 document; entries left ' in record.message
    assert "crs/test-1.json: report or summary has no text" in record.message
    with pytest.raises(InputError, match=r"no such file; check the path, or name the directory of"):
        list(documents(get_task("govreport", source="govreport:nowhere"), "test"))


def test_files_that_are_missing_or_damaged(release):
    directory = release()
    (directory / "gao" / "test-1.json").write_text("{")
    with pytest.raises(
        InputError, match=r"test-1.json: not valid JSON \(.*\); copy the file again"
    ):
        list(read_govreport(directory, "test"))
    (directory / "gao" / "test-1.json").unlink()
    with pytest.raises(InputError, match=r"gao/test-1\.json: no such file; check the path"):
        list(read_govreport(directory, "test"))
    with pytest.raises(InputError, match=r"split_ids/crs_test\.ids: no such file; check the path"):
        list(read_govreport(directory / "gao", "test"))
