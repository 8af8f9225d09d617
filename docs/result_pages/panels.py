"""Figures of named points, and of probes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from longsum_jax.analysis.figures import color_and_style, new_figure, plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Panel(NamedTuple):
    """The content of one panel of ``points_figure``: texts, (x, y) by name, scale of the x axis."""

    title: str
    x: str
    y: str
    points: Mapping[str, tuple[float, float]]
    scale: str = "linear"


def points_figure(panels: Sequence[Panel], size: tuple[float, float]) -> "Figure":
    """Plots named points in adjacent panels, for example quality over cost.

    Args:
        panels: panels from left to right.
        size: width and height in inches.
    """
    with plot_style():
        figure, axes = new_figure(size, 1, len(panels))
        for ax, panel in zip(axes[0], panels, strict=True):
            for number, (name, (x, y)) in enumerate(panel.points.items()):
                color, _ = color_and_style(number)
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
    numbers = {name: i for i, name in enumerate(dict.fromkeys(row["model"] for row in rows))}
    models = {task: _models_of(rows, task) for task in tasks}
    heights = [max(1.6, 0.9 + 0.2 * len(models[task])) for task in tasks]
    with plot_style():
        ratios = {"height_ratios": heights, "width_ratios": (2, 3)}
        size = (width, sum(heights))
        figure, axes = new_figure(size, len(tasks), 2, gridspec_kw=ratios)
        for (lines, map_axes), task in zip(axes, tasks, strict=True):
            rows_by_name = {
                name: [row for row in rows if (row["task"], row["model"]) == (task, name)]
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
    return list(dict.fromkeys(row["model"] for row in rows if row["task"] == task))


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
        color, style = color_and_style(numbers[name])
        x, y, interval = (
            np.array([row[key] for row in rows]) for key in ("length", "mean", "interval")
        )
        # clipped to 0 and 1
        within = np.minimum(interval, y), np.minimum(interval, 1 - y)
        options: dict[str, Any] = {
            "color": color,
            "linestyle": style,
            "label": name,
        }
        ax.errorbar(x, y, within, marker="o", markersize=3, elinewidth=0.4, **options)
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
    parts = max(len(row["mean_by_distance"]) for rows in rows_by_name.values() for row in rows)
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
        label.set_color(color_and_style(numbers[name])[0])
    middles = parts * (np.arange(len(lengths)) + 0.5) - 0.5
    ax.set_xticks(middles, map(_short, lengths))
    return image
