"""Figures of runs, models, data sets, studies and plans; they need matplotlib."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from longsum_jax.analysis.kernels import Kernels, memory_histogram
from longsum_jax.analysis.records import Run, plan_bars
from longsum_jax.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008): eight colors that can be distinguished with all kinds of
# color vision; line styles distinguish further runs.
COLORS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#F0E442",
)
LINE_STYLES = ("-", "--", ":", "-.")
Numbers = Sequence[float] | np.ndarray
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
}
# smallest |kernel| in the color scale, relative to the largest
COLOR_RANGE = 1e-4
# Key of a study's rows -> label of its panel.
STUDY_PANELS = {
    "bits": "bits per token",
    "mean_rouge": "mean ROUGE (0 to 100)",
    "tokens_per_second": "tokens/s",
}


def curves_figure(runs: Sequence[Run], size: tuple[float, float]) -> "Figure":
    """Plots loss, learning rate and, if there are evaluations, ROUGE over the training steps.

    Args:
        runs: runs from ``records.read_run``.
        size: width and height in inches.
    """
    panels = [
        ("loss", "loss (nats per token)"),
        ("learning_rate", "learning rate"),
    ]
    if any("mean_rouge" in run.evaluation for run in runs):
        panels.append(("mean_rouge", "mean ROUGE (0 to 100)"))
    with plot_style():
        figure, axes = new_figure(size, 1, len(panels), sharex=True)
        for ax, (name, label) in zip(axes[0], panels, strict=True):
            for number, run in enumerate(runs):
                _draw_curve(ax, run, name, number)
            ax.set(xlabel="training step", ylabel=label)
            ax.grid(alpha=0.3, linewidth=0.5)
            ax.ticklabel_format(axis="y", scilimits=(-2, 4))
        if len(panels) == 3:
            _draw_baselines(axes[0][2], runs)
        if len(runs) > 1:
            handles = axes[0][0].get_legend_handles_labels()
            figure.legend(
                *handles,
                loc="outside upper center",
                ncols=min(4, len(runs)),
                frameon=False,
            )
    return figure


def _draw_curve(ax: "Axes", run: Run, name: str, number: int) -> None:
    curve = {**run.training, **run.evaluation}.get(name)
    if curve is None:
        return
    color, style = color_and_style(number)
    # a single evaluation has no visible line
    marker = "o" if len(curve.steps) < 20 else None
    ax.plot(
        *curve, style, color=color, marker=marker, markersize=3, label=run.name
    )


def color_and_style(number: int) -> tuple[str, str]:
    """Returns color and line style of a curve by its number, from 0."""
    style = number // len(COLORS) % len(LINE_STYLES)
    return COLORS[number % len(COLORS)], LINE_STYLES[style]


def _draw_baselines(ax: "Axes", runs: Sequence[Run]) -> None:
    """Draws the scores of the documents' first sentences, which do not depend on the step.

    Runs that evaluate the same documents share one line; otherwise each has a
    line in its color.
    """
    ax.set_ylim(bottom=0)
    scores: dict[float, int] = {}  # score -> the first run with it
    for number, run in enumerate(runs):
        lead = run.evaluation.get("lead_mean_rouge")
        if lead is not None:
            scores.setdefault(lead.values[-1], number)
    is_shared = len(scores) == 1
    for score, number in scores.items():
        if is_shared:
            label = "lead baseline"
            color = "0.4"
        else:
            label = f"lead baseline of {runs[number].name}"
            color = color_and_style(number)[0]
        ax.axhline(score, color=color, linestyle=":")
        ax.set_ylim(top=max(ax.get_ylim()[1], 1.15 * score))
        ax.annotate(
            label,
            (0.02, score),
            (0, 3),
            ("axes fraction", "data"),
            "offset points",
        )


def kernels_figure(kernels: Kernels, size: tuple[float, float]) -> "Figure":
    """Plots one row per layer: a histogram of the modes' memory, then |kernel| of each direction.

    Args:
        kernels: kernels from ``kernels.kernels``.
        size: width and height in inches.
    """
    edges, shares = memory_histogram(kernels.memory)
    top = kernels.magnitude.max()
    num_layers, num_directions = kernels.magnitude.shape[:2]
    with plot_style():
        from matplotlib.colors import LogNorm

        figure, axes = new_figure(
            size, num_layers, 1 + num_directions, sharex="col", sharey="col"
        )
        norm = LogNorm(top * COLOR_RANGE, top, clip=True)
        layers = zip(
            axes, kernels.layers, shares, kernels.magnitude, strict=True
        )
        for row, number, share, magnitudes in layers:
            row[0].stairs(share, edges, fill=True, color=COLORS[0])
            row[0].set(xscale="log", ylabel=f"layer {number}\nmodes (%)")
            row[1].set_ylabel("channel")
            for ax, magnitude in zip(row[1:], magnitudes, strict=True):
                ax.tick_params(labelleft=ax is row[1])
                image = _draw_kernel(ax, magnitude, norm)
        axes[-1][0].set_xlabel("memory (tokens)")
        for ax, title in zip(
            axes[0][1:], ("forward", "backward"), strict=False
        ):
            ax.set_title(title, fontsize="medium")
        for ax in axes[-1][1:]:
            ax.set_xlabel("lag (tokens)")
        options = {
            "location": "bottom",
            "extend": "min",
            "aspect": 30,
            "pad": 0.1 / num_layers,
        }
        figure.colorbar(image, ax=axes[:, 1:], label="|kernel|", **options)
    return figure


def _draw_kernel(ax: "Axes", magnitude: np.ndarray, norm: Any) -> Any:
    """Draws an image of [channels, lags]; channels in the same row of pixels are averaged."""
    return ax.imshow(
        magnitude,
        aspect="auto",
        cmap="viridis",
        norm=norm,
        origin="lower",
        interpolation="antialiased",
    )


def lines_figure(
    rows: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    by: str,
    *,
    size: tuple[float, float],
    scale: str = "log",
) -> "Figure":
    """Plots one line per model, attention or data set.

    Args:
        rows: rows of a benchmark; the rows of a line are sorted by ``x``.
        x, y: keys of the numbers, which must be positive on logarithmic axes.
        by: key of the name of a row's line.
        size: width and height in inches.
        scale: scale of both axes, as named by matplotlib.
    """
    with plot_style():
        figure, [[ax]] = new_figure(size, 1, 1)
        for number, name in enumerate(dict.fromkeys(row[by] for row in rows)):
            line = [row for row in rows if row[by] == name]
            _draw_line(
                ax,
                [row[x] for row in line],
                [row[y] for row in line],
                name,
                number,
            )
        ax.set(xlabel=x, ylabel=y.replace("_", " "), xscale=scale, yscale=scale)
        ax.grid(alpha=0.3, linewidth=0.5)
        ax.legend(frameon=False)
    return figure


def _draw_line(
    ax: "Axes", x: Numbers, y: Numbers, name: str, number: int
) -> None:
    """Draws line ``number``, from 0, with a marker on each point."""
    color, style = color_and_style(number)
    ax.plot(x, y, style, color=color, marker="o", markersize=3, label=name)


def ngrams_figure(
    curves: Mapping[str, np.ndarray], ngram: int, size: tuple[float, float]
) -> "Figure":
    """Plots one line per data set: the share of summary n-grams over the share of the document.

    Args:
        curves: name -> curve from ``text.extractive.mean_salient_ngrams``.
        ngram: n-gram length in words.
        size: width and height in inches.
    """
    what = {1: "unigrams", 2: "bigrams", 3: "trigrams"}.get(
        ngram, f"{ngram}-grams"
    )
    with plot_style():
        figure, [[ax]] = new_figure(size, 1, 1)
        for number, (name, curve) in enumerate(curves.items()):
            read = np.linspace(0, 100, len(curve) + 1)
            _draw_line(ax, read, 100 * np.r_[0, curve], name, number)
        ax.set(
            xlabel="read of the document (%)",
            ylabel=f"{what} of the summary seen (%)",
            ylim=(0, 102),
        )
        ax.grid(alpha=0.3, linewidth=0.5)
        ax.legend(frameon=False)
    return figure


def study_figure(
    rows: Sequence[Mapping[str, Any]], size: tuple[float, float]
) -> "Figure":
    """Plots one line per encoder attention, with a color per cross-attention and a dot per run.

    There is one panel for each of ``STUDY_PANELS``.

    Args:
        rows: rows with "encoder", "cross" and the keys of ``STUDY_PANELS``
            (studies/study.py).
        size: width and height in inches.
    """
    encoders = list(dict.fromkeys(row["encoder"] for row in rows))
    crosses = list(dict.fromkeys(row["cross"] for row in rows))
    with plot_style():
        figure, axes = new_figure(size, 1, len(STUDY_PANELS), sharey=True)
        for ax, (name, label) in zip(
            axes[0], STUDY_PANELS.items(), strict=True
        ):
            for number, cross in enumerate(crosses):
                selected = [row for row in rows if row["cross"] == cross]
                offset = 0.2 * (number - (len(crosses) - 1) / 2)
                x = [row[name] for row in selected]
                y = [
                    encoders.index(row["encoder"]) + offset for row in selected
                ]
                color = COLORS[number % len(COLORS)]
                ax.plot(x, y, "o", color=color, markersize=3.5, label=cross)
            ax.set(
                xlabel=label, yticks=range(len(encoders)), yticklabels=encoders
            )
            ax.grid(alpha=0.3, linewidth=0.5)
        axes[0][0].invert_yaxis()
        handles = axes[0][0].get_legend_handles_labels()
        figure.legend(
            *handles, loc="outside upper center", ncols=4, frameon=False
        )
    return figure


def plan_figure(
    plans: Mapping[str, Mapping[str, Any]], size: tuple[float, float]
) -> "Figure":
    """Plots one panel per plan: memory of its programs on one device, and the device's capacity.

    Args:
        plans: title -> plan from ``records.read_plan``.
        size: width and height in inches.
    """
    with plot_style():
        figure, axes = new_figure(size, len(plans), 1)
        for ax, (title, plan) in zip(axes[:, 0], plans.items(), strict=True):
            names, parts = plan_bars(plan)
            left = np.zeros(len(names))
            for color, (part, widths) in zip(
                COLORS, parts.items(), strict=False
            ):
                ax.barh(
                    range(len(names)),
                    widths,
                    left=left,
                    color=color,
                    label=part,
                )
                left += widths
            if plan["device_memory_bytes"]:
                ax.axvline(
                    plan["device_memory_bytes"] / 1e9,
                    color="0.4",
                    linestyle=":",
                )
            device = f"{plan['num_devices']} x {plan['title']}"
            ax.set(
                yticks=range(len(names)),
                yticklabels=names,
                xlabel="GB per device",
            )
            ax.set_title(f"{title}: {device}", fontsize="medium")
            ax.invert_yaxis()
        handles = axes[0][0].get_legend_handles_labels()
        figure.legend(
            *handles, loc="outside lower center", ncols=6, frameon=False
        )
    return figure


def save(figure: "Figure", path: str | Path, dpi: int) -> None:
    """Writes a figure in the format of the path's suffix, with ``dpi`` dots per inch."""
    content = io.BytesIO()
    figure.savefig(content, format=Path(path).suffix[1:].lower(), dpi=dpi)
    try:
        Path(path).write_bytes(content.getvalue())
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); give another --out"
        ) from error


def require_matplotlib() -> None:
    """Raises InputError if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InputError(
            'plots need matplotlib: pip install "longsum_jax[plots]"'
        ) from error


def plot_style() -> Any:
    """Returns a context in which figures have the style of the package."""
    from matplotlib import rc_context

    return rc_context(STYLE)


def new_figure(
    size: tuple[float, float], rows: int, columns: int, **options: Any
) -> tuple["Figure", np.ndarray]:
    """Returns a new figure and its axes, without pyplot's global state and windows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)
