"""Config changes that reduce memory use, cheapest first."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from longsum_jax.experiment.config import RunConfig
from longsum_jax.models.config import EncoderDecoderConfig
from longsum_jax.ops.remat import Remat
from longsum_jax.training.mesh import BATCH_AXES, axis_sizes

HEPOS_STRIDE = 4

# Values by dotted key, and a description of the cost of the change.
Change = tuple[Mapping[str, Any], str]

# Settings of ``model.remat``, the largest first.
REMAT_SAYS: Mapping[Remat, str] = {
    False: "no layer is computed again for its gradients",
    "projections": "only feed-forwards are computed again for their gradients",
    "attention": "layers save the results of attention for their gradients",
    True: "layers are computed again for their gradients",
}
BY_MEMORY = list(REMAT_SAYS)


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
        if BY_MEMORY.index(remat) > BY_MEMORY.index(run.model.remat):
            yield {"model.remat": remat}, REMAT_SAYS[remat]
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
        yield mesh_values("fsdp"), says
    for accumulation in accumulations(run, num_devices):
        if accumulation > run.training.accumulation:
            says = f"{accumulation} micro-batches for an update, one after the other"
            yield {"training.accumulation": accumulation}, says
    shards = 2 * axis_sizes(run.mesh, num_devices)["sequence"]
    while devices_per_host % shards == 0 and run.model.d_model % shards == 0:
        says = f"every document is sharded over {shards} devices"
        yield mesh_values("fsdp+sequence", sequence=shards), says
        shards *= 2
    if not same_model:
        yield from _hepos(run)


def accumulations(run: RunConfig, num_devices: int) -> list[int]:
    """Returns possible numbers of micro-batches, the run's times powers of two, ascending.

    Each micro-batch has as many rows on all devices that split the rows.
    """
    rows = run.data.batch_size
    sizes = axis_sizes(run.mesh, num_devices)
    row_devices = math.prod(sizes[axis] for axis in BATCH_AXES)
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


def mesh_values(
    preset: str, *, batch: int = 1, fsdp: int = -1, sequence: int = 1
) -> dict[str, Any]:
    """Returns all values of a mesh, without an axis for "tensor", by dotted key."""
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
