"""The page report.html of a training run: curves, scores with intervals, summaries over time.

The page is a single file without scripts. It is replaced atomically after every
evaluation.
"""

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longsum_jax import atomic
from longsum_jax.analysis.line_charts import Chart, Line, figure
from longsum_jax.analysis.records import Curve, Run
from longsum_jax.errors import counted, without_controls
from longsum_jax.evaluation.pages import fill, read_part

PAGE = "report.html"  # file in a workdir
# Maximum number of versions of a summary: the first, the last, and some
# between.
MAX_VERSIONS = 6
MAX_CHARACTERS = 2000  # maximum shown of a summary or reference
SCHEDULE_POINTS = 200
# Baseline of the scores -> style of its line.
BASELINES = {"lead": "reference", "random": "reference s2"}
# Key of metrics.jsonl -> heading and unit of its chart.
_CURVES = {
    "loss": ("Loss", "mean per unit of weight, such as target tokens"),
    "grad_norm": ("Gradient norm", "before clipping"),
    "clipped": ("Clipped steps", "share since the last line"),
    "tokens_per_second": ("Speed", "tokens per second"),
    "mfu": ("Utilization", "share of the devices' peak rate"),
    "peak_gib": ("Peak memory", "GiB of any device since the process began"),
}


class RunSummary(NamedTuple):
    """The content of the page, in addition to the metrics.

    Attributes:
        title: heading of the page.
        steps: number of steps of the whole run.
        examples: number of training examples; None for a stream.
        schedule: function from steps [points] to learning rates [points].
        main_score: name of the score that ranks checkpoints.
        facts: further names and values, such as model, data and devices.
    """

    title: str
    steps: int
    examples: int | None
    schedule: Callable[[np.ndarray], np.ndarray]
    main_score: str
    facts: Mapping[str, str]


def write_page(
    path: Path,
    summary: RunSummary,
    run: Run,
    records: Sequence[Mapping[str, Any]],
    *,
    updated: str,
) -> None:
    """Writes the page of a run.

    Args:
        path: path of the page, which is replaced.
        summary: content in addition to metrics.
        run: metrics of the run, from ``records.read_run``.
        records: evaluations, from ``experiment.evaluation_log.read_records``.
        updated: time of the update, as text.

    Raises:
        OSError: the file cannot be written.
    """
    step = int(run.training["loss"].steps[-1]) if "loss" in run.training else 0
    if records:
        step = max(step, records[-1]["step"])
    status = f"Step {step:,} of {summary.steps:,}"
    facts = _position(summary, records) | _last_values(run)
    facts |= summary.facts
    page = fill(
        read_part("run_page.html", "longsum_jax.analysis"),
        title=_escape(summary.title),
        style=read_part("report.css"),
        updated=_escape(updated),
        status=_escape(status),
        steps=str(summary.steps),
        step=str(step),
        facts="".join(
            f"<dt>{_escape(name)}</dt><dd>{_escape(value)}</dd>"
            for name, value in facts.items()
        ),
        scores=_scores_table(records),
        figures="".join(
            figure(chart) for chart in _charts(summary, run, records, step)
        ),
        samples=_samples(records),
    )
    # Lone surrogates of texts cannot be encoded.
    atomic.write_text(path, page.encode(errors="replace").decode())


def _escape(text: str) -> str:
    return html.escape(without_controls(text))


def _position(
    summary: RunSummary, records: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Returns the position of the last evaluation in the training data."""
    if not records or "position" not in records[-1]:
        return {}
    record = records[-1]
    total = "" if summary.examples is None else f" of {summary.examples:,}"
    epoch = record.get("epoch", 0) + 1
    return {
        "position in the data": f"epoch {epoch:,}, example {record['position']:,}{total}"
    }


def _last_values(run: Run) -> dict[str, str]:
    """Returns speed, time left and memory of the last line of metrics."""
    values = {
        name: float(curve.values[-1]) for name, curve in run.training.items()
    }
    facts = {}
    if "tokens_per_second" in values:
        facts["speed"] = f"{values['tokens_per_second']:,.0f} tokens/s"
    if "mfu" in values:
        facts["utilization"] = f"{100 * values['mfu']:.1f}% of the peak rate"
    if "seconds_left" in values:
        facts["time left"] = _duration(values["seconds_left"])
    facts["peak memory"] = "not reported by these devices"
    if "peak_gib" in values:
        facts["peak memory"] = f"{values['peak_gib']:.1f} GiB per device"
    return facts


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min, without evaluations"
    return f"{minutes} min {seconds} s, without evaluations"


def _charts(
    summary: RunSummary,
    run: Run,
    records: Sequence[Mapping[str, Any]],
    step: int,
) -> Iterable[Chart]:
    heading, note = _CURVES["loss"]
    if "loss" in run.training:
        yield Chart(heading, note, [_line("loss", run.training["loss"])])
    yield _schedule_chart(summary, run, step)
    if records:
        yield _score_chart(summary.main_score, records)
        rouge = [
            name
            for name in records[-1]["scores"]
            if name.startswith("rouge") and name != summary.main_score
        ]
        for name in rouge:
            yield _score_chart(name, records)
    for name, (heading, note) in _CURVES.items():
        if name != "loss" and name in run.training:
            yield Chart(heading, note, [_line(name, run.training[name])])


def _line(name: str, curve: Curve) -> Line:
    return Line(name, curve.steps, curve.values)


def _schedule_chart(summary: RunSummary, run: Run, step: int) -> Chart:
    """Returns the schedule of the whole run, with the logged learning rates."""
    count = min(SCHEDULE_POINTS, summary.steps)
    steps = np.unique(np.linspace(1, summary.steps, count).round())
    # The update of step s has s - 1 updates before it.
    planned = summary.schedule(steps - 1)
    lines = [Line("planned", steps, planned, style="reference")]
    if "learning_rate" in run.training:
        lines.append(_line("so far", run.training["learning_rate"]))
    return Chart("Learning rate", "schedule of the run", lines, now=step)


def _score_chart(name: str, records: Sequence[Mapping[str, Any]]) -> Chart:
    """Returns a score over the steps with its intervals, and the baselines."""
    steps = np.array([record["step"] for record in records])

    def values(key: str) -> np.ndarray:
        return np.array(
            [_number(record["scores"].get(key)) for record in records]
        )

    bounds = [
        [_number(end) for end in record["intervals"].get(name, (None, None))]
        for record in records
    ]
    low, high = np.array(bounds).T
    has_intervals = np.isfinite(low).any()
    lines = [
        Line(baseline, steps, values(f"{baseline}_{name}"), style=style)
        for baseline, style in BASELINES.items()
    ]
    model = Line("model", steps, values(name))
    if has_intervals:
        model = model._replace(low=low, high=high)
    note = "95% intervals, bootstrap over documents" if has_intervals else ""
    return Chart(name, note, [*lines, model])


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _scores_table(records: Sequence[Mapping[str, Any]]) -> str:
    """Returns a table of the last evaluations, with intervals."""
    if not records:
        return "<p class='note'>No evaluation so far.</p>"
    names = [
        name
        for name in records[-1]["scores"]
        if not name.startswith(tuple(f"{name}_" for name in BASELINES))
    ]
    head = "".join(f"<th scope='col'>{_escape(name)}</th>" for name in names)
    rows = []
    for record in reversed(records[-MAX_VERSIONS:]):
        cells = "".join(_score_cell(record, name) for name in names)
        rows.append(f"<tr><th scope='row'>{record['step']:,}</th>{cells}</tr>")
    documents = counted(records[-1]["documents"], "document")
    return (
        f"<div class='wide' id='scores'><table><caption class='note'>{documents}; 95% "
        "intervals in brackets</caption>"
        f"<thead><tr><th scope='col'>step</th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _score_cell(record: Mapping[str, Any], name: str) -> str:
    value = record["scores"].get(name)
    if value is None:
        return "<td></td>"
    ends = record["intervals"].get(name)
    interval = ""
    if ends:
        bounds = " – ".join(f"{end:.4g}" for end in ends)  # noqa: RUF001
        interval = f"<span class='interval'>({bounds})</span>"
    return f"<td>{value:.4g}{interval}</td>"


def _samples(records: Sequence[Mapping[str, Any]]) -> str:
    """Returns the summaries of some documents at several steps, the last one first."""
    if not records or not records[-1]["samples"]:
        return "<p class='note'>No summaries so far.</p>"
    shown = [records[index] for index in _spread(len(records))]
    parts = []
    for sample in records[-1]["samples"]:
        versions = [
            (record["step"], other["summary"])
            for record in shown
            for other in record["samples"]
            if other["id"] == sample["id"]
        ]
        parts.append(_sample(sample, versions))
    return "".join(parts)


def _spread(count: int) -> list[int]:
    """Returns at most ``MAX_VERSIONS`` indices: the last, the first, and some between."""
    indices = np.linspace(0, count - 1, min(count, MAX_VERSIONS)).round()
    return [int(index) for index in indices[::-1]]


def _sample(
    sample: Mapping[str, str], versions: Sequence[tuple[int, str]]
) -> str:
    (step, summary), *earlier = versions
    parts = [
        f"<h3>{_escape(sample['id'])}</h3>",
        f"<details><summary>Reference</summary>{_quote(sample['reference'])}</details>",
        f"<p class='note'>Step {step:,}</p>{_quote(summary, 'latest')}",
    ]
    if earlier:
        quotes = "".join(
            f"<p class='note'>Step {step:,}</p>{_quote(summary)}"
            for step, summary in earlier
        )
        parts.append(
            f"<details open><summary>Earlier</summary>{quotes}</details>"
        )
    return "".join(parts)


def _quote(text: str, style: str = "") -> str:
    if len(text) > MAX_CHARACTERS:
        text = f"{text[:MAX_CHARACTERS]} ..."
    return (
        f"<blockquote class='{style}' dir='auto'>"
        f"{_escape(text) or '(empty)'}</blockquote>"
    )
