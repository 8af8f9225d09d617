import xml.etree.ElementTree as ET

import numpy as np
import pytest

from longsum_jax.analysis.line_charts import (
    MAX_POINTS,
    Chart,
    Line,
    figure,
    short_number,
    ticks,
)

NAN = float("nan")


def paths(chart):
    root = ET.fromstring(figure(chart))
    return [node.get("d") for node in root.find("svg").findall("path")]


def test_values_that_are_not_finite_interrupt_a_line():
    steps = np.arange(1, 6)
    line = Line("loss", steps, np.array([3.0, 2.0, NAN, 1.0, 0.5]))
    [path] = paths(Chart("Loss", "", [line]))
    assert (path.count("M"), path.count("L")) == (2, 2)


def test_a_chart_is_xml_with_intervals_legend_and_escaped_texts():
    steps = np.array([2, 4])
    score = Line(
        "<model>", steps, np.array([10.0, 20.0]), np.array([8.0, 18.0]), np.array([12.0, 23.0])
    )
    lead = Line("lead", steps, np.array([5.0, 5.0]), style="reference")
    root = ET.fromstring(figure(Chart("a & b", "<i>", [lead, score], now=3)))
    svg = root.find("svg")
    classes = [node.get("class") for node in svg.iter("line")]
    assert classes.count("s0 whisker") == 2
    assert classes.count("guide") == 1
    assert svg.get("aria-label") == "a & b: lead 5 at step 4, <model> 20 at step 4"
    assert "".join(root.find("p").itertext()).split() == ["lead", "<model>"]
    heights = [
        float(node.get("y1")) for node in svg.iter("line") if node.get("class") == "s0 whisker"
    ]
    assert heights[0] > heights[1]  # y points down


def test_every_point_needs_its_interval():
    scores = np.array([1.0, 2.0])
    with pytest.raises(ValueError, match="shorter"):
        figure(Chart("Scores", "", [Line("model", np.array([1, 2]), scores, scores[:1], scores)]))


def test_a_chart_without_a_finite_point_is_left_out():
    assert figure(Chart("Loss", "", [Line("loss", np.array([1]), np.array([NAN]))])) == ""


def test_long_lines_are_averaged():
    steps = np.arange(10_000)
    [path] = paths(Chart("Loss", "", [Line("loss", steps, steps % 2)]))
    assert path.count("L") + 1 == MAX_POINTS


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (3, 3.4, [3, 3.1, 3.2, 3.3, 3.4]),
        (1, 60, [20, 40, 60]),
    ],
)
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


def test_numbers_are_short():
    values = [0, 12_000, 2_500_000, 0.25, 3e-5, 20.0]
    assert [short_number(value) for value in values] == ["0", "12k", "2.5M", "0.25", "3e-5", "20"]
