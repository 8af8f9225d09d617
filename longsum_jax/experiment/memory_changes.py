"""Config changes that reduce memory use, cheapest first, or that use the remaining memory."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from longsum_jax.experiment.config import RunConfig
from longsum_jax.models.config import EncoderDecoderConfig

HEPOS_STRIDE = 4

# Values by dotted key, and a description of the cost of the change.
Change = tuple[Mapping[str, Any], str]


def training_changes(
    run: RunConfig, num_devices: int, devices_per_host: int
) -> Iterator[Change]:
    """Yields changes of the training step.

    Changes of the mesh are complete: a later one replaces an earlier one. All
    changes except the last compute the same update.

    Args:
        run: config of the run.
        num_devices: number of devices of the mesh.
        devices_per_host: devices of the mesh per host; devices that share a
            document are on one host.
    """
    if not run.model.remat:
        yield (
            {"model.remat": True},
            "layers are computed again for their gradients",
        )
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
    row_devices = 1 if rows % num_devices else num_devices
    accumulation = 2 * run.training.accumulation
    while rows % (row_devices * accumulation) == 0:
        says = (
            f"{accumulation} micro-batches for an update, one after the other"
        )
        yield {"training.accumulation": accumulation}, says
        accumulation *= 2
    shards = 2 * max(run.mesh.sequence, 1)
    while devices_per_host % shards == 0 and run.model.d_model % shards == 0:
        says = f"every document is sharded over {shards} devices"
        yield _mesh("fsdp+sequence", sequence=shards), says
        shards *= 2
    yield from _hepos(run)


def faster_changes(
    run: RunConfig, room: float, num_hosts: int
) -> Iterator[Change]:
    """Yields changes of the training step that take more memory and may take less time.

    They do not change the update.

    Args:
        run: config of the run.
        room: ratio of the device's memory to the memory of a step.
        num_hosts: number of hosts of the mesh.
    """
    fewer = run.training.accumulation
    while fewer % 2 == 0 and 2 * run.training.accumulation / fewer <= room:
        fewer //= 2
    if fewer < run.training.accumulation:
        yield (
            {"training.accumulation": fewer},
            f"{fewer} micro-batches for an update",
        )
    if run.model.remat:
        yield (
            {"model.remat": False},
            "no layer is computed again for its gradients",
        )
    if run.mesh.preset != "fsdp":
        return
    # Weights are gathered from fewer devices, or from none.
    if num_hosts > 1 and run.mesh.batch == 1:
        says = "every host has all parameters, sharded over its devices"
        yield _mesh("fsdp", batch=num_hosts), says
    yield (
        _mesh("replicated", batch=-1, fsdp=1),
        "every device has all parameters and the optimizer state",
    )


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
