"""Pictures of runs and models: the numbers as arrays first, then the drawing, which alone needs
matplotlib."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.ops.ssm.kernel import DiagonalSSM, Discretization, ssm_kernel
from longsum_jax.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008): eight colours that all kinds of colour vision tell apart; line styles tell
# further runs apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
LINE_STYLES = ("-", "--", ":", "-.")
STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
}
SHOWN_RANGE = 1e-4  # smallest |kernel| with a colour of its own, as part of the largest


class Curve(NamedTuple):
    """One quantity over the steps of a run."""

    steps: np.ndarray  # int64 [N]
    values: np.ndarray  # float64 [N], NaN where the value was not finite


class Run(NamedTuple):
    """The curves of one run by their names in metrics.jsonl; those of evaluations apart."""

    name: str
    training: Mapping[str, Curve]
    evaluation: Mapping[str, Curve]


class Kernels(NamedTuple):
    """What the kernels of a model's N state-space layers look like; channels run from short to long
    memory.

    Attributes:
        layers: N numbers of the layers, from 1.
        memory: [N, R, D, M] tokens after which a mode has decayed to 1/e.
        magnitude: [N, directions, D, L] absolute value of the kernel at every lag.
    """

    layers: tuple[int, ...]
    memory: np.ndarray
    magnitude: np.ndarray


def read_run(workdir: str | Path) -> Run:
    """Reads metrics.jsonl of a training workdir; a last line that is still being written is left
    out.

    Raises:
        InputError: no such file, a line that is no metrics line (names file and line), or no step
            at all.
    """
    path = Path(workdir) / "metrics.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); give the --workdir of a training run"
        ) from error
    rows = [
        _row(line, f"{path}:{number}")
        for number, line in enumerate(lines, 1)
        if line.endswith("\n")
    ]
    if not rows:
        raise InputError(f"{path}: holds no step yet; wait for the run to write its first line")
    evaluations = [
        {"step": row["step"], **row["eval"]} for row in rows if isinstance(row.get("eval"), dict)
    ]
    return Run(str(workdir), _curves(rows), _curves(evaluations))


def _row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where}: not valid JSON ({error}); delete the line") from None
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise InputError(f'{where}: not a line of metrics, which have a "step"; delete the line')
    return row


def _curves(rows: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    names = {
        name for row in rows for name, value in row.items() if isinstance(value, int | float)
    } - {"step"}
    return {name: _curve([row for row in rows if name in row], name) for name in sorted(names)}


def _curve(rows: Sequence[Mapping[str, Any]], name: str) -> Curve:
    values = [
        np.nan if row[name] is None else row[name] for row in rows
    ]  # null stands for what was not finite
    return Curve(np.array([row["step"] for row in rows], np.int64), np.array(values, np.float64))


def kernels(
    layers: Mapping[int, Mapping[str, Any]],
    length: int,
    *,
    discretization: Discretization = "zoh",
) -> Kernels:
    """Computes memory and kernels of state-space layers.

    Args:
        layers: index of a layer in its stack to the parameters of its ``layers.s4d.S4D``.
        length: lags L of the kernels.
        discretization: see ``ops.ssm.kernel.discretize``.

    Raises:
        InputError: kernels that are not finite, or zero everywhere.
    """
    kernel = jax.jit(partial(ssm_kernel, length=length, discretization=discretization))
    found = [_layer_kernels(_layer_ssm(params), kernel) for params in layers.values()]
    numbers = tuple(layer + 1 for layer in layers)
    memory, magnitude = (np.stack(part) for part in zip(*found, strict=True))
    if not (np.isfinite(memory).all() and np.isfinite(magnitude).all() and magnitude.any()):
        raise InputError(
            "the kernels are zero or not finite, so there is nothing to draw; take another checkpoint"
        )
    return Kernels(numbers, memory, magnitude)


def _layer_ssm(params: Mapping[str, Any]) -> DiagonalSSM:
    names = ("log_dt", "inv_A_real", "A_imag", "B", "C")
    log_dt, inv_A_real, A_imag, B, C = (np.asarray(params[name]) for name in names)
    shared = (log_dt, -np.exp(inv_A_real), A_imag, B)
    if log_dt.ndim == 1:  # the directions share their dynamics
        shared = tuple(x[None] for x in shared)
    return DiagonalSSM(*shared, C)


def _layer_kernels(
    ssm: DiagonalSSM, kernel: Callable[[DiagonalSSM], Array]
) -> tuple[np.ndarray, np.ndarray]:
    decay = -np.exp(ssm.log_dt)[..., None] * ssm.A_real  # [R, D, M], per token
    order = np.argsort(-decay.mean(-1), axis=-1)  # [R, D], fastest decay first
    magnitude = np.abs(np.asarray(kernel(ssm)))
    by_direction = np.broadcast_to(order, (len(magnitude), order.shape[1]))
    return (
        1 / np.take_along_axis(decay, order[..., None], axis=1),
        np.take_along_axis(magnitude, by_direction[..., None], axis=1),
    )


def memory_histogram(memory: np.ndarray, bins: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Share of a layer's modes by memory length.

    Args:
        memory: [N, ...] memory of the modes of N layers, in tokens.
        bins: number of bins, equally wide in the logarithm, the same for all layers.

    Returns:
        (edges [bins + 1] in tokens, share [N, bins] in percent, each row summing to 100).
    """
    low, high = memory.min(), memory.max()
    margin = 1.05 if low == high else 1.0
    edges = np.geomspace(low / margin, high * margin, bins + 1)
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)  # geomspace may round inwards
    counts = np.stack([np.histogram(layer.ravel(), edges)[0] for layer in memory])
    return edges, 100 * counts / counts.sum(1, keepdims=True)


def curves_figure(runs: Sequence[Run], size: tuple[float, float]) -> "Figure":
    """Loss, learning rate and, where there was an evaluation, ROUGE over the steps; ``size`` in
    inches."""
    panels = [("loss", "loss (nats per token)"), ("learning_rate", "learning rate")]
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
            _draw_baseline(axes[0][2], runs[0])
        if len(runs) > 1:
            handles = axes[0][0].get_legend_handles_labels()
            figure.legend(
                *handles, loc="outside upper center", ncols=min(4, len(runs)), frameon=False
            )
    return figure


def _draw_curve(ax: "Axes", run: Run, name: str, number: int) -> None:
    curve = (run.training | run.evaluation).get(name)
    if curve is None:
        return
    colour, style = (
        COLOURS[number % len(COLOURS)],
        LINE_STYLES[number // len(COLOURS) % len(LINE_STYLES)],
    )
    marker = "o" if len(curve.steps) < 20 else None  # a single evaluation makes no line
    ax.plot(*curve, style, color=colour, marker=marker, markersize=3, label=run.name)


def _draw_baseline(ax: "Axes", run: Run) -> None:
    """The score of the document's first sentences, which does not change with the steps."""
    ax.set_ylim(bottom=0)
    if (lead := run.evaluation.get("lead_mean_rouge")) is not None:
        ax.axhline(lead.values[-1], color="0.4", linestyle=":")
        ax.set_ylim(top=1.15 * max(ax.get_ylim()[1], lead.values[-1]))
        ax.annotate(
            "lead baseline",
            (0.02, lead.values[-1]),
            (0, 3),
            ("axes fraction", "data"),
            "offset points",
        )


def kernels_figure(found: Kernels, size: tuple[float, float]) -> "Figure":
    """A row per layer: histogram of the modes' memory, then |kernel| of each direction; ``size`` in
    inches."""
    edges, share = memory_histogram(found.memory)
    top = found.magnitude.max()
    with _style():
        from matplotlib.colors import LogNorm

        figure, axes = _figure(
            size, len(share), 1 + found.magnitude.shape[1], sharex="col", sharey="col"
        )
        norm = LogNorm(top * SHOWN_RANGE, top, clip=True)
        for row, number, part, magnitudes in zip(
            axes, found.layers, share, found.magnitude, strict=True
        ):
            row[0].stairs(part, edges, fill=True, color=COLOURS[0])
            row[0].set(xscale="log", ylabel=f"layer {number}\nmodes (%)")
            row[1].set_ylabel("channel")
            for ax, magnitude in zip(row[1:], magnitudes, strict=True):
                ax.tick_params(labelleft=ax is row[1])
                image = _draw_kernel(ax, magnitude, norm)
        axes[-1][0].set_xlabel("memory (tokens)")
        for ax, title in zip(axes[0][1:], ("forward", "backward"), strict=False):
            ax.set_title(title, fontsize="medium")
        for ax in axes[-1][1:]:
            ax.set_xlabel("lag (tokens)")
        options = {"location": "bottom", "extend": "min", "aspect": 30, "pad": 0.1 / len(share)}
        figure.colorbar(image, ax=axes[:, 1:], label="|kernel|", **options)
    return figure


def _draw_kernel(ax: "Axes", magnitude: np.ndarray, norm: Any) -> Any:
    """An image of [D, L]; channels that share a row of pixels are averaged."""
    return ax.imshow(
        magnitude,
        aspect="auto",
        cmap="viridis",
        norm=norm,
        origin="lower",
        interpolation="antialiased",
    )


def bigrams_figure(curves: Mapping[str, np.ndarray], size: tuple[float, float]) -> "Figure":
    """A line per data set: how much of the summaries' bigrams has been read, over how much of the
    documents.

    Args:
        curves: name to ``analysis.extractive.mean_salient_bigrams``.
        size: inches.
    """
    with _style():
        figure, axes = _figure(size, 1, 1)
        for number, (name, curve) in enumerate(curves.items()):
            colour, style = (
                COLOURS[number % len(COLOURS)],
                LINE_STYLES[number // len(COLOURS) % len(LINE_STYLES)],
            )
            read = np.linspace(0, 100, len(curve) + 1)
            axes[0][0].plot(
                read,
                100 * np.r_[0, curve],
                style,
                color=colour,
                marker="o",
                markersize=3,
                label=name,
            )
        axes[0][0].set(
            xlabel="read of the document (%)",
            ylabel="bigrams of the summary seen (%)",
            ylim=(0, 102),
        )
        axes[0][0].grid(alpha=0.3, linewidth=0.5)
        axes[0][0].legend(frameon=False)
    return figure


def read_study(path: str | Path) -> list[dict[str, Any]]:
    """Rows of a sweep's results.jsonl (benchmarks/study.py); a last line cut short is left out.

    Raises:
        InputError: no such file, a line that is no row of a sweep (names file and line), or no row
            at all.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); give results.jsonl of a sweep"
        ) from error
    rows = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            rows.append(row := json.loads(line))
            _ = [row[key] for key in ("encoder", "cross", "seed", *STUDY_PANELS)]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path}:{number}: not a row of a sweep; delete the line") from None
    if not rows:
        raise InputError(f"{path}: holds no row yet; wait for the first cell of the sweep")
    return rows


STUDY_PANELS = {
    "bits": "bits per token",
    "mean_rouge": "mean ROUGE (0 to 100)",
    "tokens_per_second": "tokens/s",
}


def study_figure(rows: Sequence[Mapping[str, Any]], size: tuple[float, float]) -> "Figure":
    """A line per encoder attention, a colour per cross-attention, a dot per run, and panels of what
    was measured.

    Args:
        rows: each with "encoder", "cross" and the keys of ``STUDY_PANELS`` (benchmarks/study.py).
        size: inches.
    """
    encoders, crosses = (
        list(dict.fromkeys(row[key] for row in rows)) for key in ("encoder", "cross")
    )
    with _style():
        figure, axes = _figure(size, 1, len(STUDY_PANELS), sharey=True)
        for ax, (name, label) in zip(axes[0], STUDY_PANELS.items(), strict=True):
            for number, cross in enumerate(crosses):
                own = [row for row in rows if row["cross"] == cross]
                places = [
                    encoders.index(row["encoder"]) + 0.2 * (number - (len(crosses) - 1) / 2)
                    for row in own
                ]
                colour = COLOURS[number % len(COLOURS)]
                ax.plot(
                    [row[name] for row in own],
                    places,
                    "o",
                    color=colour,
                    markersize=3.5,
                    label=cross,
                )
            ax.set(xlabel=label, yticks=range(len(encoders)), yticklabels=encoders)
            ax.grid(alpha=0.3, linewidth=0.5)
        axes[0][0].invert_yaxis()
        figure.legend(
            *axes[0][0].get_legend_handles_labels(),
            loc="outside upper center",
            ncols=4,
            frameon=False,
        )
    return figure


def save(figure: "Figure", path: str | Path, dpi: int) -> None:
    """Writes the figure in the format of the path's ending, ``dpi`` pixels to the inch."""
    content = io.BytesIO()
    figure.savefig(content, format=Path(path).suffix[1:].lower(), dpi=dpi)
    try:
        Path(path).write_bytes(content.getvalue())
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); give another --out"
        ) from error


def require_matplotlib() -> None:
    """Raises InputError where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InputError('plots need matplotlib: pip install "longsum_jax[plots]"') from error


def _style() -> Any:
    from matplotlib import rc_context

    return rc_context(STYLE)


def _figure(
    size: tuple[float, float], rows: int, columns: int, **options: Any
) -> tuple["Figure", np.ndarray]:
    """A figure of its own, without the global state and the windows of pyplot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)
