"""The figure of speed and memory compared with PyTorch.

Times are ratios within one run on one machine (``peers.json``). Memory was
measured on another CPU (``encode.json``).
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from longsum_jax.analysis.figures import COLORS, STYLE
from result_pages.tables import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SIZE = (8.0, 3.3)  # inches
MACHINE = "AMD EPYC, AVX-512, 2 cores"  # the machine with most lengths
# Models of the figure and their labels, with equal colors in all panels.
MODELS = {
    "locost": "LOCOST (baseline: LongT5)",
    "longt5": "LongT5",
    "led": "LED",
    "pegasus_x": "PEGASUS-X",
    "t5": "T5",
    "bart": "BART",
}
ENCODERS = ("encoder", "encoder beside LongT5")
DECODERS = ("tokens/s, four beams",)
MARKERS = "osD^vP"
Points = dict[str, list[tuple[int, float]]]


def speed_ups(rows: list[Row], measurements: tuple[str, ...]) -> Points:
    """Returns speed-ups over PyTorch by model, as (tokens, ratio)."""
    points: Points = {}
    for row in rows:
        is_selected = row["machine"] == MACHINE and row["what"] in measurements
        if is_selected and "ratio" in row:
            point = (row["length"], row["ratio"])
            points.setdefault(row["model"], []).append(point)
    return {model: sorted(values) for model, values in points.items()}


def memory_ratios() -> Points:
    """Returns PyTorch's memory relative to ours, as (tokens, ratio)."""
    text = (RESULTS / "encode.json").read_text(encoding="utf-8")
    rows: list[Row] = json.loads(text)["rows"]
    ours = {
        (row["model"], row["length"]): row["gib"]
        for row in rows
        if row["by"] == "longsum_jax" and "gib" in row
    }
    points: Points = {}
    for row in rows:
        model = row["model"]
        baseline = "longt5" if model == "locost" else model
        if row["by"] == f"PyTorch {baseline}" and "gib" in row:
            ratio = row["gib"] / ours[model, row["length"]]
            points.setdefault(model, []).append((row["length"], ratio))
    return {model: sorted(values) for model, values in points.items()}


def draw(rows: list[Row]) -> "Figure":
    """Draws panels of the encoder's time, of decoding and of memory."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = {
        "Encoding: time": speed_ups(rows, ENCODERS),
        "Decoding, four beams: time": speed_ups(rows, DECODERS),
        "Encoding: memory": memory_ratios(),
    }
    with mpl.rc_context({**STYLE, "font.size": 9}):
        figure = Figure(SIZE, layout="constrained")
        axes = figure.subplots(1, len(panels))
        for ax, (title, points) in zip(axes, panels.items(), strict=True):
            draw_panel(ax, points)
            ax.set_title(title, fontsize=9.5, loc="left")
        axes[0].set_ylabel("PyTorch / longsum_jax (higher is better)")
        handles = {}
        for ax in axes:
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
                handles[label] = handle
        labels = [label for label in MODELS.values() if label in handles]
        figure.legend(
            [handles[label] for label in labels],
            labels,
            loc="outside lower center",
            ncols=len(labels),
            frameon=False,
            columnspacing=1.2,
            handletextpad=0.4,
        )
    return figure


def draw_panel(ax: "Axes", points: Points) -> None:
    """Draws one line per model over the number of tokens."""
    lengths: set[int] = set()
    for number, (model, label) in enumerate(MODELS.items()):
        if model not in points:
            continue
        tokens, ratios = zip(*points[model], strict=True)
        lengths.update(tokens)
        marker = MARKERS[number]
        ax.plot(tokens, ratios, marker=marker, ms=5, lw=1.6, color=COLORS[number], label=label)
    ax.axhline(1, color="0.4", linestyle=":", linewidth=1)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xticks(sorted(lengths), [f"{length:,}" for length in sorted(lengths)])
    ax.set_yticks([0.5, 1, 2, 4, 8], ["0.5x", "1x", "2x", "4x", "8x"])
    ax.set_ylim(0.7, 11)
    ax.minorticks_off()
    ax.margins(x=0.15)
    ax.set_xlabel("input tokens")
    ax.grid(axis="y", alpha=0.3, linewidth=0.5)
