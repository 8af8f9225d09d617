"""Figures of runs, models, data sets, studies and plans; they need matplotlib."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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


class Panel(NamedTuple):
    """The content of one panel of ``points_figure``: texts, (x, y) by name, scale of the x axis."""

    title: str
    x: str
    y: str
    points: Mapping[str, tuple[float, float]]
    scale: str = "linear"


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
    with _style():
        figure, axes = _figure(size, 1, len(panels), sharex=True)
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
    color, style = _color_and_style(number)
    # a single evaluation has no visible line
    marker = "o" if len(curve.steps) < 20 else None
    ax.plot(
        *curve, style, color=color, marker=marker, markersize=3, label=run.name
    )


def _color_and_style(number: int) -> tuple[str, str]:
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
            color = _color_and_style(number)[0]
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
    with _style():
        from matplotlib.colors import LogNorm

        figure, axes = _figure(
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
    with _style():
        figure, [[ax]] = _figure(size, 1, 1)
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
    color, style = _color_and_style(number)
    ax.plot(x, y, style, color=color, marker="o", markersize=3, label=name)


def points_figure(
    panels: Sequence[Panel], size: tuple[float, float]
) -> "Figure":
    """Plots named points in adjacent panels, for example quality over cost.

    Args:
        panels: panels from left to right.
        size: width and height in inches.
    """
    with _style():
        figure, axes = _figure(size, 1, len(panels))
        for ax, panel in zip(axes[0], panels, strict=True):
            for number, (name, (x, y)) in enumerate(panel.points.items()):
                color, _ = _color_and_style(number)
                ax.plot(x, y, "o", color=color, markersize=5, label=name)
            ax.set(
                title=panel.title,
                xlabel=panel.x,
                ylabel=panel.y,
                xscale=panel.scale,
            )
            ax.margins(0.1)
            ax.grid(alpha=0.3, linewidth=0.5)
            ax.legend(
                fontsize=6,
                frameon=False,
                loc="upper center",
                bbox_to_anchor=(0.5, -0.2),
                ncols=2,
            )
    return figure


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
    with _style():
        figure, [[ax]] = _figure(size, 1, 1)
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
    with _style():
        figure, axes = _figure(size, 1, len(STUDY_PANELS), sharey=True)
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


def probes_figure(rows: Sequence[Mapping[str, Any]], width: float) -> "Figure":
    """Plots two panels per task: correct answers by length, and by length and the fact's distance.

         1 |  o--o__        | model | 512: near ... far | 2,048: near ... far |
           |        \\_o     | s4d   |  dark colors are for correct answers   |
         0 +--- length      | full  |                                         |

    Args:
        rows: rows of studies/probes.py, averaged over seeds, with "model",
            "task", "length", "mean", "interval" and "mean_by_distance".
        width: width in inches; the height depends on the numbers of tasks and
            models.
    """
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    lengths = sorted({row["length"] for row in rows})
    numbers = {
        name: i
        for i, name in enumerate(dict.fromkeys(row["model"] for row in rows))
    }
    models = {task: _models_of(rows, task) for task in tasks}
    heights = [max(1.6, 0.9 + 0.2 * len(models[task])) for task in tasks]
    with _style():
        ratios = {"height_ratios": heights, "width_ratios": (2, 3)}
        size = (width, sum(heights))
        figure, axes = _figure(size, len(tasks), 2, gridspec_kw=ratios)
        for (lines, map_axes), task in zip(axes, tasks, strict=True):
            rows_by_name = {
                name: [
                    row
                    for row in rows
                    if (row["task"], row["model"]) == (task, name)
                ]
                for name in models[task]
            }
            _draw_lengths(lines, rows_by_name, numbers)
            lines.set(ylabel=f"{task}: right answers", xticks=lengths)
            lines.set_xticklabels(map(_short, lengths), rotation=90)
            image = _draw_distances(map_axes, rows_by_name, lengths, numbers)
        axes[-1][0].set_xlabel("length (tokens)")
        axes[-1][1].set_xlabel("length, and in it the distance of the fact")
        figure.colorbar(image, ax=axes[:, 1], label="right answers", aspect=40)
    return figure


def _models_of(rows: Sequence[Mapping[str, Any]], task: str) -> list[str]:
    return list(
        dict.fromkeys(row["model"] for row in rows if row["task"] == task)
    )


def _short(length: int) -> str:
    """Returns "512" for 512 and "2K" for 2,048."""
    if length % 1024 == 0:
        return f"{length // 1024}K"
    return str(length)


def _draw_lengths(
    ax: "Axes",
    rows_by_name: Mapping[str, Sequence[Mapping[str, Any]]],
    numbers: Mapping[str, int],
) -> None:
    """Draws one line per model, in the color of its number, with its intervals."""
    for name, rows in rows_by_name.items():
        color, style = _color_and_style(numbers[name])
        x, y, interval = (
            np.array([row[key] for row in rows])
            for key in ("length", "mean", "interval")
        )
        # clipped to 0 and 1
        within = np.minimum(interval, y), np.minimum(interval, 1 - y)
        options: dict[str, Any] = {
            "color": color,
            "linestyle": style,
            "label": name,
        }
        ax.errorbar(
            x, y, within, marker="o", markersize=3, elinewidth=0.4, **options
        )
    ax.set(xscale="log", ylim=(-0.05, 1.05))
    ax.minorticks_off()
    ax.grid(alpha=0.3, linewidth=0.5)


def _draw_distances(
    ax: "Axes",
    rows_by_name: Mapping[str, Sequence[Mapping[str, Any]]],
    lengths: Sequence[int],
    numbers: Mapping[str, int],
) -> Any:
    """Draws one row per model, with a cell per length and distance, gray without a measurement."""
    parts = max(
        len(row["mean_by_distance"])
        for rows in rows_by_name.values()
        for row in rows
    )
    cells = np.full((len(rows_by_name), len(lengths), parts), np.nan)
    for line, rows in zip(cells, rows_by_name.values(), strict=True):
        for row in rows:
            line[lengths.index(row["length"])] = row["mean_by_distance"]
    ax.set_facecolor("0.85")
    image = ax.imshow(
        cells.reshape(len(rows_by_name), -1),
        aspect="auto",
        cmap="Blues",
        vmin=0,
        vmax=1,
    )
    for border in range(1, len(lengths)):
        ax.axvline(parts * border - 0.5, color="0.4", linewidth=0.8)
    ax.set(yticks=range(len(rows_by_name)), yticklabels=list(rows_by_name))
    for name, label in zip(rows_by_name, ax.get_yticklabels(), strict=True):
        label.set_color(_color_and_style(numbers[name])[0])
    middles = parts * (np.arange(len(lengths)) + 0.5) - 0.5
    ax.set_xticks(middles, map(_short, lengths))
    return image


def plan_figure(
    plans: Mapping[str, Mapping[str, Any]], size: tuple[float, float]
) -> "Figure":
    """Plots one panel per plan: memory of its programs on one device, and the device's capacity.

    Args:
        plans: title -> plan from ``records.read_plan``.
        size: width and height in inches.
    """
    with _style():
        figure, axes = _figure(size, len(plans), 1)
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


def _style() -> Any:
    from matplotlib import rc_context

    return rc_context(STYLE)


def _figure(
    size: tuple[float, float], rows: int, columns: int, **options: Any
) -> tuple["Figure", np.ndarray]:
    """Returns a new figure and its axes, without pyplot's global state and windows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)
