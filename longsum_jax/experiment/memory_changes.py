"""Config changes that reduce memory use, cheapest first, or that use the remaining memory."""

import copy
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Protocol

from longsum_jax.experiment.config import RunConfig
from longsum_jax.models.config import EncoderDecoderConfig
from longsum_jax.ops.remat import Remat

HEPOS_STRIDE = 4

# Values by dotted key, and a description of the cost of the change.
Change = tuple[Mapping[str, Any], str]

# Settings of ``model.remat``, the fastest and largest first.
_REMAT_SAYS: Mapping[Remat, str] = {
    False: "no layer is computed again for its gradients",
    "projections": "only feed-forwards are computed again for their gradients",
    "attention": "layers save the results of attention for their gradients",
    True: "layers are computed again for their gradients",
}
_BY_MEMORY = list(_REMAT_SAYS)


class StepPlan(Protocol):
    """The part of ``longsum_plan.plan.ProgramPlan`` that the search for a fast step reads."""

    @property
    def memory(self) -> Mapping[str, int]: ...

    @property
    def fits(self) -> bool | None: ...

    @property
    def total(self) -> int: ...

    def is_faster_than(self, other: Any) -> bool: ...


def training_changes(
    run: RunConfig,
    num_devices: int,
    devices_per_host: int,
    *,
    same_model: bool = False,
) -> Iterator[Change]:
    """Yields changes of the training step.

    Changes of the mesh are complete: a later one replaces an earlier one. All
    changes except the last compute the same update.

    Args:
        run: config of the run.
        num_devices: number of devices of the mesh.
        devices_per_host: devices of the mesh per host; devices that share a
            document are on one host.
        same_model: True to leave out the last change, which is another model.
    """
    for remat in ("projections", True):
        if _BY_MEMORY.index(remat) > _BY_MEMORY.index(run.model.remat):
            yield {"model.remat": remat}, _REMAT_SAYS[remat]
    model = run.model
    has_pages = isinstance(model, EncoderDecoderConfig) and bool(
        model.pages.page_length
    )
    if has_pages and not model.pages.page_recompute:
        yield (
            {"model.page_recompute": True},
            "pages are encoded one after another",
        )
    rows = run.data.batch_size
    is_sharded = run.mesh.preset != "replicated"
    if num_devices > 1 and not is_sharded and rows % num_devices == 0:
        says = "parameters and optimizer state are sharded over the devices"
        yield _mesh("fsdp"), says
    for accumulation in _accumulations(run, num_devices):
        if accumulation > run.training.accumulation:
            says = f"{accumulation} micro-batches for an update, one after the other"
            yield {"training.accumulation": accumulation}, says
    shards = 2 * max(run.mesh.sequence, 1)
    while devices_per_host % shards == 0 and run.model.d_model % shards == 0:
        says = f"every document is sharded over {shards} devices"
        yield _mesh("fsdp+sequence", sequence=shards), says
        shards *= 2
    if not same_model:
        yield from _hepos(run)


def faster_changes(
    run: RunConfig,
    current: StepPlan,
    *,
    memory: int,
    num_devices: int,
    num_hosts: int,
) -> Generator[Change, StepPlan | None, None]:
    """Yields changes that may make the training step faster, and receives their plans.

    They do not change the update. A setting of ``model.remat`` that does not
    fit is tried again with smaller micro-batches.

    Args:
        run: config of the run, whose training step fits.
        current: plan of its training step.
        memory: bytes of memory that may be used on each device.
        num_devices, num_hosts: numbers of devices and hosts of the mesh.
    """
    accumulation, best = run.training.accumulation, current
    counts = _accumulations(run, num_devices)

    def smallest_fitting(plan: StepPlan) -> int:
        totals = ((n, _total_with(plan, accumulation / n)) for n in counts)
        fitting = (n for n, total in totals if total <= memory)
        return next(fitting, accumulation)

    for remat in _BY_MEMORY[: _BY_MEMORY.index(run.model.remat)]:
        values: dict[str, Any] = {"model.remat": remat}
        plan = yield values, _REMAT_SAYS[remat]
        assert plan is not None
        smaller = accumulation
        if not plan.fits:
            smaller = smallest_fitting(plan)
        if smaller > accumulation:
            values["training.accumulation"] = smaller
            says = f"{_REMAT_SAYS[remat]}, in {smaller} micro-batches"
            plan = yield values, says
            assert plan is not None
        if plan.is_faster_than(best):
            accumulation, best = smaller, plan
            break
    while (fewer := smallest_fitting(best)) < accumulation:
        plan = yield (
            {"training.accumulation": fewer},
            f"micro-batches of {run.data.batch_size // fewer:,} rows",
        )
        assert plan is not None
        if not plan.is_faster_than(best):
            break
        accumulation, best = fewer, plan
    if 0 < run.model.length_chunk < run.task.max_source_length:
        says = "dense maps of the encoder read their weights once"
        yield {"model.length_chunk": 0}, says
    if run.mesh.preset != "fsdp" or num_devices == 1:
        return
    # Weights are gathered from fewer devices, or from none.
    if num_hosts > 1 and run.mesh.batch == 1:
        says = "every host has all parameters, sharded over its devices"
        yield _mesh("fsdp", batch=num_hosts), says
    yield (
        _mesh("replicated", batch=-1, fsdp=1),
        "every device has all parameters and the optimizer state",
    )


def _total_with(plan: StepPlan, rows: float) -> float:
    """Returns the bytes of a step with ``rows`` times the rows of a micro-batch, at most."""
    fixed = sum(
        plan.memory.get(part, 0) for part in ("parameters", "optimizer")
    )
    return fixed + (plan.total - fixed) * rows


def _accumulations(run: RunConfig, num_devices: int) -> list[int]:
    """Returns possible numbers of micro-batches, the run's times powers of two, ascending."""
    rows = run.data.batch_size
    row_devices = 1 if rows % num_devices else num_devices
    counts = [run.training.accumulation]
    while counts[0] % 2 == 0:
        counts.insert(0, counts[0] // 2)
    while rows % (row_devices * 2 * counts[-1]) == 0:
        counts.append(2 * counts[-1])
    return counts


def evaluation_changes(run: RunConfig) -> Iterator[Change]:
    """Yields changes of the programs that generate summaries for an evaluation."""
    batch_size = run.evaluation.batch_size // 2
    while batch_size:
        yield (
            {"evaluation.batch_size": batch_size},
            "fewer documents are summarized together",
        )
        batch_size //= 2
    yield from _hepos(run)


def with_changes(
    description: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the nested dictionaries of a config with new values at dotted keys."""
    changed = copy.deepcopy(dict(description))
    for path, value in values.items():
        section, _, key = path.partition(".")
        changed[section][key] = value
    return changed


def _mesh(
    preset: str, *, batch: int = 1, fsdp: int = -1, sequence: int = 1
) -> dict[str, Any]:
    sizes = {"batch": batch, "fsdp": fsdp, "tensor": 1, "sequence": sequence}
    return {
        "mesh.preset": preset,
        **{f"mesh.{axis}": size for axis, size in sizes.items()},
    }


def _hepos(run: RunConfig) -> Iterator[Change]:
    model = run.model
    if (
        isinstance(model, EncoderDecoderConfig)
        and model.cross_attention == "full"
    ):
        values = {
            "model.cross_attention": "hepos",
            "model.hepos_stride": HEPOS_STRIDE,
        }
        yield (
            values,
            f"another model: every head reads one position in {HEPOS_STRIDE}",
        )
