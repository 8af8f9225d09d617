"""Figures of the pages of results, each drawn from the rows of one or more files."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from longsum_jax.analysis.figures import (
    COLORS,
    STYLE,
    lines_figure,
)
from result_pages.panels import Panel, points_figure, probes_figure
from result_pages.tables import Row, Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Read = Callable[[str], Mapping[str, Any]]
Points = dict[str, list[tuple[int, float]]]

# The machine of the figure of speed: the one with most lengths.
MACHINE = "AMD EPYC, AVX-512, 2 cores"
# Models of the figure of speed and their labels, with equal colors in all panels.
MODELS = {
    "locost": "LOCOST (baseline: LongT5)",
    "longt5": "LongT5",
    "led": "LED",
    "pegasus_x": "PEGASUS-X",
    "t5": "T5",
    "bart": "BART",
}
MARKERS = "osD^vP"
FEW_LENGTHS = 3  # of a probe's training, in addition to the first one


def draw_quality(read: Read) -> "Figure":
    """Draws quality over cost of extractors, strategies and trained attentions."""
    peers = read("extractive_peers")["rows"]
    strategies = [
        row
        for row in read("strategies")["rows"]
        if (row.get("writer"), row.get("data")) == ("ranker", "mean")
    ]
    models = [
        row | {"model": _family(row)}
        for row in read("reading_start_study")["rows"]
        if row.get("stage") == "summaries"
    ]
    panels = [
        Panel(
            "Extractors",
            "CPU seconds per document",
            "mean ROUGE, three data sets",
            _means(peers, "system", "seconds", "mean_rouge"),
            "log",
        ),
        Panel(
            "Strategies, with the ranker",
            "share of the document read",
            "mean ROUGE, five data sets",
            _means(strategies, "strategy", "read", "rouge"),
        ),
        Panel(
            "Small models, 1,024 tokens",
            "MiB per training step",
            "mean ROUGE, biomedical papers",
            _means(models, "model", "step_mib", "mean_rouge"),
        ),
    ]
    return points_figure(panels, (9.0, 3.6))


def _means(rows: Rows, name: str, x: str, y: str) -> dict[str, tuple[float, float]]:
    """Returns the means of ``x`` and ``y`` over the rows of every name."""
    means = {}
    for key in dict.fromkeys(row[name] for row in rows):
        group = [row for row in rows if row[name] == key]
        means[key] = (
            float(sum(row[x] for row in group)) / len(group),
            float(sum(row[y] for row in group)) / len(group),
        )
    return means


def _family(row: Row) -> str:
    """Returns the family of a trained model and its differences from the family."""
    parts = [row["family"]]
    parts += [row["encoder"]] if row["encoder"] in ("lsg", "window+global") else []
    parts += ["x Hepos"] if row["cross"] == "hepos" else []
    return " ".join(parts)


def draw_memory(name: str, read: Read) -> "Figure":
    """Draws GiB by length on one H200, a line for every model."""
    rows = [row for row in read(name)["rows"] if row.get("device") == "h200"]
    return lines_figure(rows, x="length", y="gib", by="model", scale="log", size=(5.0, 3.2))


def draw_studies(read: Read) -> "Figure":
    """Draws the answers of every model to every probe, by length and distance, of most seeds."""
    rows = [row | {"model": _probed(row)} for row in read("probes")["rows"] if "seeds" in row]
    most: dict[tuple[str, str], int] = {}
    for row in rows:
        key = row["task"], row["model"]
        most[key] = max(most.get(key, 0), row["seeds"])
    return probes_figure(
        [row for row in rows if row["seeds"] == most[row["task"], row["model"]]], 7.0
    )


def _probed(row: Row) -> str:
    """Returns the parts of a probed model, and the exceptional parts of its training."""
    parts = [row["encoder"]]
    parts += [f"x {row['cross']}"] if row["cross"] != "full" else []
    parts += [f"+ {row['memory']}"] if row["memory"] != "none" else []
    parts += [f"({row['tasks']})"] if row["tasks"] != row["task"] else []
    parts += ["in turn"] if "+" in row["plan"] else []
    steps = [int(part.split(":")[1]) for part in row["plan"].split(",")]
    parts += [f"in {sum(steps):,} steps"] if len(steps) > FEW_LENGTHS + 1 else []
    return " ".join(parts)


def draw_speed(read: Read) -> "Figure":
    """Draws PyTorch's time and memory relative to ours: encoding, decoding and memory.

    Times are ratios within one run on one machine (``peers.json``). Memory was measured on
    another CPU (``encode.json``).
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    peers = read("peers")["rows"]
    panels = {
        "Encoding: time": _speed_ups(peers, ("encoder", "encoder vs. LongT5")),
        "Decoding, four beams: time": _speed_ups(peers, ("tokens/s, four beams",)),
        "Encoding: memory": _memory_ratios(read("encode")["rows"]),
    }
    with mpl.rc_context({**STYLE, "font.size": 9}):
        figure = Figure((8.0, 3.3), layout="constrained")
        axes = figure.subplots(1, len(panels))
        for ax, (title, points) in zip(axes, panels.items(), strict=True):
            _draw_panel(ax, points)
            ax.set_title(title, fontsize=9.5, loc="left")
        axes[0].set_ylabel("PyTorch / longsum_jax (higher is better)")
        handles = {
            label: handle
            for ax in axes
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
        }
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


def _speed_ups(rows: Rows, measurements: tuple[str, ...]) -> Points:
    """Returns speed-ups over PyTorch by model, as (tokens, ratio)."""
    return _sorted(
        (row["model"], row["length"], row["ratio"])
        for row in rows
        if row["machine"] == MACHINE and row["what"] in measurements and "ratio" in row
    )


def _memory_ratios(rows: Rows) -> Points:
    """Returns PyTorch's memory relative to ours, as (tokens, ratio)."""
    ours = {
        (row["model"], row["length"]): row["gib"]
        for row in rows
        if row["by"] == "longsum_jax" and "gib" in row
    }
    baselines = {model: f"PyTorch {model}" for model in MODELS} | {"locost": "PyTorch longt5"}
    return _sorted(
        (row["model"], row["length"], row["gib"] / ours[row["model"], row["length"]])
        for row in rows
        if row["by"] == baselines.get(row["model"]) and "gib" in row
    )


def _sorted(values: Iterable[tuple[str, int, float]]) -> Points:
    points: Points = {}
    for model, length, ratio in values:
        points.setdefault(model, []).append((length, ratio))
    return {model: sorted(line) for model, line in points.items()}


def _draw_panel(ax: "Axes", points: Points) -> None:
    """Draws one line per model over the number of tokens."""
    lengths = sorted({tokens for line in points.values() for tokens, _ in line})
    for (model, label), marker, color in zip(MODELS.items(), MARKERS, COLORS, strict=False):
        if model in points:
            tokens, ratios = zip(*points[model], strict=True)
            ax.plot(tokens, ratios, marker=marker, ms=5, lw=1.6, color=color, label=label)
    ax.axhline(1, color="0.4", linestyle=":", linewidth=1)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xticks(lengths, [f"{length:,}" for length in lengths])
    ax.set_yticks([0.5, 1, 2, 4, 8], ["0.5x", "1x", "2x", "4x", "8x"])
    ax.set_ylim(0.7, 11)
    ax.minorticks_off()
    ax.margins(x=0.15)
    ax.set_xlabel("input tokens")
    ax.grid(axis="y", alpha=0.3, linewidth=0.5)


FIGURES: Mapping[str, Callable[[Read], "Figure"]] = {
    "quality": draw_quality,
    "studies": draw_studies,
    "speed": draw_speed,
    "encode_memory": partial(draw_memory, "encode_memory"),
    "train_step_memory": partial(draw_memory, "train_step_memory"),
}
