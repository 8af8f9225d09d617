"""Line charts as SVG elements for HTML pages, without matplotlib and scripts.

Colors and widths come from the style sheet of the page (``report.css`` of
``evaluation``).
"""

import html
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

WIDTH, HEIGHT = 560, 240
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 10, 34  # margins
MAX_POINTS = 300  # of a line; more are averaged
NUM_TICKS = 5


class Line(NamedTuple):
    """A line of a chart.

    Attributes:
        name: name in the legend.
        x, y: coordinates of the points, [points]; values that are not finite
            interrupt the line.
        low, high: bounds of the points' intervals, [points]; None for none.
        style: classes of the style sheet, such as "s0" for the main line.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    style: str = "s0"


class Chart(NamedTuple):
    """A chart of lines over the steps of a run.

    Attributes:
        title: heading of the chart.
        note: explanation next to the heading, such as the unit.
        lines: lines, of which the last one is drawn on top.
        now: step of a vertical guide; None for none.
    """

    title: str
    note: str
    lines: Sequence[Line]
    now: float | None = None


def figure(chart: Chart) -> str:
    """Returns a chart as an HTML figure; "" if no line has a finite point."""
    lines = [_thinned(line) for line in chart.lines]
    lines = [line for line in lines if np.isfinite(line.y).any()]
    if not lines:
        return ""
    x_range = _range(np.concatenate([line.x for line in lines]))
    y_range = _range(np.concatenate([_heights(line) for line in lines]))
    plane = _Plane(x_range, y_range)
    parts = [*_axes(plane)]
    if chart.now is not None:
        x = plane.x(chart.now)
        parts.append(_rule("guide", x, TOP, x, HEIGHT - BOTTOM))
    for line in lines:
        parts += _draw(plane, line)
    label = html.escape(f"{chart.title}: {_summary(lines)}")
    legend = ""
    if len(lines) > 1:
        items = "".join(_legend_item(line) for line in lines)
        legend = f'<p class="note">{items}</p>'
    return (
        f"<figure><figcaption><strong>{html.escape(chart.title)}</strong>"
        f"<span>{html.escape(chart.note)}</span></figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>{legend}</figure>"
    )


class _Plane(NamedTuple):
    """The mapping from values to the pixels of a chart."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        low, high = self.x_range
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.y_range
        height = HEIGHT - TOP - BOTTOM
        return HEIGHT - BOTTOM - height * (value - low) / (high - low)


def _thinned(line: Line) -> Line:
    """Returns a line of at most ``MAX_POINTS`` points, means of neighbors; intervals are kept."""
    count = len(line.x)
    if count <= MAX_POINTS or line.low is not None:
        return line
    starts = np.linspace(0, count, MAX_POINTS + 1).astype(int)[:-1]
    sizes = np.diff(np.append(starts, count))
    return line._replace(
        x=np.add.reduceat(line.x.astype(np.float64), starts) / sizes,
        y=np.add.reduceat(line.y.astype(np.float64), starts) / sizes,
    )


def _heights(line: Line) -> np.ndarray:
    parts = [line.y, line.low, line.high]
    return np.concatenate([part for part in parts if part is not None])


def _range(values: np.ndarray) -> tuple[float, float]:
    """Returns the least and greatest finite value, apart from each other."""
    finite = values[np.isfinite(values)]
    low, high = float(finite.min()), float(finite.max())
    if low == high:
        margin = abs(low) / 10 or 1.0
        return low - margin, high + margin
    return low, high


def ticks(low: float, high: float, count: int = NUM_TICKS) -> list[float]:
    """Returns round values inside of a range.

    Args:
        low, high: ends of the range, low < high.
        count: maximum number of values, approximately.
    """
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [step * number for number in range(first, last + 1)]


def short_number(value: float) -> str:
    """Returns a number with few characters, such as "12k", "0.25" or "3e-5"."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:g}k"
    if abs(value) < 1e-3:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:.4g}"


def _axes(plane: _Plane) -> Iterable[str]:
    bottom = HEIGHT - BOTTOM
    for value in ticks(*plane.y_range):
        y = plane.y(value)
        yield _rule("axis", LEFT, y, WIDTH - RIGHT, y)
        yield _text(LEFT - 6, y + 4, "end", short_number(value))
    for value in ticks(*plane.x_range):
        yield _text(plane.x(value), bottom + 16, "middle", short_number(value))
    yield _text(WIDTH - RIGHT, HEIGHT - 4, "end", "step")


def _draw(plane: _Plane, line: Line) -> Iterable[str]:
    path, begins = "", True
    for x, y in zip(line.x, line.y, strict=True):
        if not math.isfinite(y):
            begins = True
            continue
        path += f"{'M' if begins else 'L'}{plane.x(x):.1f} {plane.y(y):.1f}"
        begins = False
    yield f'<path class="{line.style} line" d="{path}"/>'
    if line.low is not None and line.high is not None:
        for x, low, high in zip(line.x, line.low, line.high, strict=True):
            if math.isfinite(low) and math.isfinite(high):
                at = plane.x(x)
                yield _rule(
                    f"{line.style} whisker", at, plane.y(low), at, plane.y(high)
                )
    if len(line.x) <= MAX_POINTS // 10 and line.style == "s0":
        for x, y in zip(line.x, line.y, strict=True):
            if math.isfinite(y):
                center = f'cx="{plane.x(x):.1f}" cy="{plane.y(y):.1f}"'
                yield f'<circle class="{line.style} dot" {center} r="2.5"/>'


def _rule(style: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" '
        f'x2="{x2:.1f}" y2="{y2:.1f}"/>'
    )


def _text(x: float, y: float, anchor: str, text: str) -> str:
    corner = f'x="{x:.1f}" y="{y:.1f}"'
    return f'<text {corner} text-anchor="{anchor}">{html.escape(text)}</text>'


def _legend_item(line: Line) -> str:
    sample = f'<path class="{line.style} line" d="M0 6H28"/>'
    return (
        '<svg class="key" viewBox="0 0 28 12" aria-hidden="true">'
        f"{sample}</svg> {html.escape(line.name)} "
    )


def _summary(lines: Sequence[Line]) -> str:
    """Returns the last value of each line, for readers of the page's text."""
    parts = []
    for line in lines:
        values = line.y[np.isfinite(line.y)]
        parts.append(
            f"{line.name} {short_number(float(values[-1]))} at step "
            f"{short_number(float(line.x[np.isfinite(line.y)][-1]))}"
        )
    return ", ".join(parts)
