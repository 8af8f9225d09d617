import re
from html.parser import HTMLParser

import numpy as np

from longsum_jax.analysis.records import read_run
from longsum_jax.analysis.run_page import MAX_CHARACTERS, RunSummary, write_page

HOSTILE = "<script>alert(1)</script> & \x1b[2J \u202e"
SUMMARY = RunSummary(
    title=HOSTILE,
    steps=100,
    examples=50,
    schedule=lambda steps: steps / 100,
    main_score="mean_rouge",
    facts={"data": HOSTILE},
)


class Tags(HTMLParser):
    """Collects start tags, attributes, and text; checks that elements are closed in order."""

    VOID = ("meta", "path", "line", "circle")

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self._open = [], "", []
        self.feed(page)
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert tag in self.VOID or self._open.pop() == tag

    def handle_data(self, data):
        self.text += data


def record(step, **scores):
    return {
        "step": step,
        "epoch": 0,
        "position": step // 2,
        "documents": 8,
        "scores": {"mean_rouge": 20.0 + step, "lead_mean_rouge": 15.0, **scores},
        "intervals": {"mean_rouge": [18.0 + step, 22.0 + step]},
        "samples": [{"id": "d1", "reference": HOSTILE, "summary": f"{HOSTILE} of step {step}"}],
    }


def written(tmp_path, records):
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 10, "loss": 3.0, "learning_rate": 0.1, "tokens_per_second": 900.0, '
        '"seconds_left": 4000.2}\n{"step": 20, "loss": null, "learning_rate": 0.2, '
        '"tokens_per_second": 1000.0, "seconds_left": 3700.2}\n',
        encoding="utf-8",
    )
    path = tmp_path / "report.html"
    write_page(path, SUMMARY, read_run(tmp_path), records, updated="now")
    return Tags(path.read_text(encoding="utf-8"))


def test_the_page_has_everything_and_escapes_all_texts(tmp_path):
    page = written(tmp_path, [record(step) for step in range(2, 42, 2)])
    names = [name for name, _ in page.tags]
    assert "script" not in names
    assert not [
        value
        for _, attributes in page.tags
        for value in attributes.values()
        if "http:" in (value or "")
    ]
    assert names.count("figure") == 4  # loss, learning rate, the score, speed
    assert "\x1b" not in page.text
    for text in (
        "Step 40 of 100",
        "epoch 1, example 20 of 50",
        "1 h 1 min, without evaluations",
        "not reported by these devices",
        "60(58 – 62)",  # noqa: RUF001
        "8 documents",
    ):
        assert text in page.text, text
    shown = re.findall(r"of step (\d+)", page.text)
    assert (shown[0], shown[-1]) == ("40", "2")


def test_long_texts_are_cut_on_the_page(tmp_path):
    sample = {"id": "d1", "reference": "short", "summary": "a" * (MAX_CHARACTERS + 1)}
    page = written(tmp_path, [record(2) | {"samples": [sample]}])
    assert "short ..." not in page.text
    assert f"{'a' * MAX_CHARACTERS} ..." in page.text
    assert "a" * (MAX_CHARACTERS + 1) not in page.text


def test_a_run_without_evaluations_has_a_page(tmp_path):
    page = written(tmp_path, [])
    assert "Step 20 of 100" in page.text
    assert "No evaluation so far." in page.text
    assert [name for name, _ in page.tags].count("figure") == 3


def test_the_schedule_is_drawn_for_the_whole_run(tmp_path):
    seen = []

    def schedule(steps):
        seen.append(steps)
        return steps

    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 3.0}\n', encoding="utf-8")
    summary = SUMMARY._replace(schedule=schedule, steps=5)
    write_page(tmp_path / "page.html", summary, read_run(tmp_path), [], updated="now")
    np.testing.assert_array_equal(seen[0], np.arange(5))  # updates before each step
