"""The device mesh, and the sharding of every parameter, optimizer slot and batch row on it.

Models name the axes of their parameters and activations (Flax Linen logical
partitioning), such as:

    parameters    layers, vocab, embed, heads, kv, mlp, channels, modes
    activations   batch, length, act_embed, act_heads, channels

A preset maps some of these names to the mesh axes "batch" (rows of the batch),
"fsdp" (rows of the batch, and slices of parameters along "embed"), "tensor"
(slices of the wide dimensions) and "sequence" (slices of every document); axes
with other names are not sharded. This module is independent of models.
"""

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from flax.core import meta
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.stages import Lowered

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.typing import Array, NumpyBatch, RowShards

MESH_AXES = ("batch", "fsdp", "tensor", "sequence")
BATCH_AXES = ("batch", "fsdp")  # the axes that shard the rows of a batch

Rules = Mapping[str, tuple[str, ...]]  # logical axis name to mesh axes

_FSDP: Rules = {"batch": BATCH_AXES, "embed": ("fsdp",)}
_TENSOR: Rules = {
    name: ("tensor",)
    for wide in ("heads", "mlp", "vocab", "channels")
    for name in (wide, f"act_{wide}")
}
PRESETS: Mapping[str, Rules] = {
    "replicated": {"batch": ("batch",)},
    "fsdp": _FSDP,
    "fsdp+tensor": {**_FSDP, **_TENSOR},
    "fsdp+sequence": {**_FSDP, "length": ("sequence",)},
}

# Options of XLA for all programs of a mesh, by platform.
_COMPILER_OPTIONS: Mapping[str, Mapping[str, str | bool]] = {
    "tpu": {
        # Weights are gathered before a product. Otherwise XLA multiplies with
        # the shard of one device after another, each time over all outputs,
        # which are larger than the weights.
        "xla_tpu_enable_windowed_einsum_for_all_gather": False,
        "xla_tpu_enable_windowed_einsum_for_reduce_scatter": False,
    }
}


@dataclass(frozen=True)
class MeshOptions:
    """The arrangement of the devices.

    Attributes:
        preset: sharding preset: "replicated" (every device has every
            parameter), "fsdp" (parameters other than vectors, and their
            optimizer state, sharded along their "embed" dimension),
            "fsdp+tensor" (additionally heads, mlp, vocab and channels sharded)
            or "fsdp+sequence" (as "fsdp", and the encoder's positions sharded,
            for documents that do not fit on a single device;
            ``ops.sequence_sharding``).
        batch, fsdp, tensor, sequence: numbers of devices along each mesh axis;
            one of them may be -1, for all remaining devices. Axes that the
            preset does not use must be 1.

    Raises:
        InputError: an unknown preset, a number of devices that is neither
            positive nor -1, or more than one device along an unused axis.
    """

    preset: Literal["replicated", "fsdp", "fsdp+tensor", "fsdp+sequence"] = (
        "replicated"
    )
    batch: int = -1
    fsdp: int = 1
    tensor: int = 1
    sequence: int = 1

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            guess = did_you_mean(self.preset, PRESETS)
            raise InputError(
                f'mesh.preset: "{self.preset}" is not allowed; {guess}'
            )
        # mesh axes to which the preset maps any logical name
        used = set().union(*PRESETS[self.preset].values())
        for axis in MESH_AXES:
            size = getattr(self, axis)
            if size < 1 and size != -1:
                raise InputError(
                    f"mesh.{axis}: {size} devices; give 1 or more, or -1 for the rest"
                )
            if size != 1 and axis not in used:
                raise InputError(
                    f'mesh.{axis}: {size}, but preset "{self.preset}" does not use that axis; '
                    "give 1"
                )

    @property
    def rules(self) -> Rules:
        """The preset's mapping from logical names to mesh axes."""
        return PRESETS[self.preset]


def make_mesh(
    options: MeshOptions, devices: Sequence[jax.Device] | None = None
) -> Mesh:
    """Arranges devices as a mesh with the axes "batch", "fsdp", "tensor" and "sequence".

    Args:
        options: number of devices along each axis.
        devices: devices of the mesh; None for all devices of all processes.

    Raises:
        InputError: more than one -1; sizes whose product is not the number of
            devices; a duplicate device; or a product of ``tensor`` and
            ``sequence`` that is neither a divisor nor a multiple of the number
            of devices per host.
    """
    if devices is None:
        devices = jax.devices()
    else:
        devices = list(devices)
    if len(set(devices)) < len(devices):
        twice = next(device for device in devices if devices.count(device) > 1)
        raise InputError(
            f"mesh: device {twice} is listed twice; list every device once"
        )
    sizes = axis_sizes(options, len(devices))
    per_host = len(devices) // len({device.process_index for device in devices})
    # number of devices that share the rows of a batch
    per_row = sizes["tensor"] * sizes["sequence"]
    # These devices must be a part of one host or several whole hosts.
    if per_host % per_row and per_row % per_host:
        raise InputError(
            f"mesh.tensor x mesh.sequence: {per_row} devices neither divide the {per_host} of one "
            "host nor are a multiple of them; give another number"
        )
    return jax.make_mesh(
        tuple(sizes.values()),
        MESH_AXES,
        axis_types=(AxisType.Auto,) * len(sizes),
        devices=devices,
    )


def axis_sizes(options: MeshOptions, num_devices: int) -> dict[str, int]:
    """Returns the number of devices along each axis of a mesh, in the order of ``MESH_AXES``.

    Args:
        options: numbers of devices, of which one may be -1.
        num_devices: total number of devices.

    Raises:
        InputError: more than one -1, or sizes whose product is not the number
            of devices.
    """
    sizes = [getattr(options, axis) for axis in MESH_AXES]
    if sizes.count(-1) > 1:
        raise InputError(
            f"mesh: only one of {', '.join(MESH_AXES)} may be -1, got {sizes}"
        )
    fixed = math.prod(size for size in sizes if size != -1)
    if num_devices % fixed or (-1 not in sizes and fixed != num_devices):
        axes = " x ".join(
            f"{axis}={size}"
            for axis, size in zip(MESH_AXES, sizes, strict=True)
        )
        if -1 in sizes:
            needed = f"a multiple of {fixed}"
        else:
            needed = f"{fixed}"
        raise InputError(
            f"mesh: {axes} needs {needed} devices, there are {num_devices}; change mesh.batch, "
            "mesh.fsdp, mesh.tensor or mesh.sequence"
        )
    # Devices per unit of the axis that is -1.
    rest = num_devices // fixed
    sizes = [rest if size == -1 else size for size in sizes]
    return dict(zip(MESH_AXES, sizes, strict=True))


@functools.lru_cache(maxsize=8)
def host_rows(mesh: Mesh) -> RowShards:
    """Returns the rows of every batch that this process reads.

    Processes whose devices share rows, because "tensor" or "sequence" span
    several hosts, read the same ones.

    Args:
        mesh: result of `make_mesh`.

    Raises:
        InputError: two processes share some of their rows, but not all.
    """
    shards = np.arange(row_shards(mesh))
    sharding = NamedSharding(mesh, P(BATCH_AXES))
    # The set of rows of each process, in order of the processes.
    slices: Mapping[Any, Any] = sharding.devices_indices_map(shards.shape)
    # Two hosts with two devices each: if "tensor" has size 4, both hosts read
    # row 0; if it has size 2, host 0 reads row 0 and host 1 row 1.
    rows: dict[int, set[int]] = {}
    for device, index in slices.items():
        rows.setdefault(device.process_index, set()).update(
            shards[index].tolist()
        )
    # Parts are disjoint or equal, unless the topology interleaves hosts.
    parts = {frozenset(process_rows) for process_rows in rows.values()}
    if sum(map(len, parts)) > len(shards) or len(set(map(len, parts))) > 1:
        raise InputError(
            "mesh.tensor x mesh.sequence: the devices of hosts share some rows of a batch, but "
            "not all, as the topology orders them; give a divisor of the devices of a host"
        )
    return RowShards(tuple(sorted(rows[jax.process_index()])), len(shards))


@contextlib.contextmanager
def activate(mesh: Mesh, rules: Rules) -> Iterator[None]:
    """Makes `nn.with_logical_constraint` in a model shard activations on ``mesh`` by ``rules``."""
    with jax.set_mesh(mesh), nn.logical_axis_rules(tuple(rules.items())):
        yield


def row_shards(mesh: Mesh | AbstractMesh) -> int:
    """Returns the number of shards of a batch's rows, 1 without a mesh."""
    return math.prod(mesh.shape.get(axis, 1) for axis in BATCH_AXES)


def platform_of(mesh: Mesh | AbstractMesh) -> str | None:
    """Returns the platform of a mesh, such as "tpu"; None for an empty mesh."""
    device = mesh.abstract_mesh.abstract_device
    if device is None:
        return None
    return device.platform


def jit_for(
    platform: str | None, function: Callable[..., Any], **settings: Any
) -> Any:
    """Returns ``jax.jit(function, **settings)`` with the options of XLA for a mesh.

    Args:
        platform: platform of the mesh, see ``platform_of``.
        function: function of arrays.
        **settings: further options of ``jax.jit``.
    """
    options = _COMPILER_OPTIONS.get(platform or "")
    if options is None:
        return jax.jit(function, **settings)
    return jax.jit(function, compiler_options=dict(options), **settings)


class MeshJit:
    """A function like ``jax.jit`` that is compiled with the options for the active mesh.

    For functions of parameters, which a mesh may shard. XLA takes options only
    for whole programs, so another compiled function cannot call it.

    Args:
        function: function of arrays.
        **settings: options of ``jax.jit``.
    """

    def __init__(self, function: Callable[..., Any], **settings: Any) -> None:
        # one function for each platform, usually one in all
        self._jitted = functools.cache(
            lambda platform: jit_for(platform, function, **settings)
        )

    def __call__(self, *arguments: Any, **static: Any) -> Any:
        """Runs the program."""
        return self._active()(*arguments, **static)

    def lower(self, *arguments: Any, **static: Any) -> Lowered:
        """Returns the lowered program, see ``jax.jit``."""
        return self._active().lower(*arguments, **static)

    def eval_shape(self, *arguments: Any, **static: Any) -> Any:
        """Returns the shapes of the results."""
        return self._active().eval_shape(*arguments, **static)

    def _active(self) -> Any:
        return self._jitted(platform_of(jax.sharding.get_abstract_mesh()))


class Placement(NamedTuple):
    """The sharding of one array.

    Attributes:
        sharding: sharding on the mesh.
        note: note on dimensions that could not be sharded by the rules, "" for
            none.
    """

    sharding: NamedSharding
    note: str


def place(
    names: tuple[str | None, ...],
    shape: tuple[int, ...],
    mesh: Mesh,
    rules: Rules,
) -> Placement:
    """Returns the sharding of an array by the logical names of its dimensions, from the left.

    A dimension is not sharded if its mesh axes do not divide it or already
    shard an earlier dimension. "fsdp" does not shard vectors.

    Args:
        names: logical name of each dimension; None for a dimension that is not
            sharded.
        shape: shape of the array.
        mesh: result of `make_mesh`.
        rules: mapping from logical names to mesh axes, see `MeshOptions.rules`.

    Raises:
        ValueError: the numbers of names and dimensions differ.
    """
    spec: list[str | tuple[str, ...] | None] = []
    notes: list[str] = []
    used: set[str] = set()
    # Vectors, such as the scales of norms, need little memory, but would be
    # gathered by a collective in every layer.
    is_vector = sum(name not in (None, "layers") for name in names) == 1
    for name, size in zip(names, shape, strict=True):
        of_name = () if name is None else rules.get(name, ())
        # Mesh axes of size 1 do not shard anything.
        axes = tuple(
            axis
            for axis in of_name
            if mesh.shape[axis] > 1 and not (is_vector and axis == "fsdp")
        )
        num_shards = math.prod(mesh.shape[axis] for axis in axes)
        if used & set(axes):
            notes.append(f"{name} {size} whole: {'+'.join(axes)} taken")
            axes = ()
        elif size % num_shards:
            notes.append(f"{name} {size} whole: not a multiple of {num_shards}")
            axes = ()
        used |= set(axes)
        if not axes:
            spec.append(None)
        elif len(axes) == 1:
            spec.append(axes[0])
        else:
            spec.append(axes)
    # Trailing None entries have no effect.
    while spec and spec[-1] is None:
        spec.pop()
    return Placement(NamedSharding(mesh, P(*spec)), "; ".join(notes))


class Layout(NamedTuple):
    """The shardings of all arrays of a parameter tree.

    Attributes:
        shapes: tree of jax.ShapeDtypeStruct, including shardings.
        shardings: tree of NamedSharding.
        notes: tree of notes, see `Placement`.
    """

    shapes: Any
    shardings: Any
    notes: Any


def plan_layout(
    init: Callable[..., Any], mesh: Mesh, rules: Rules, *args: Any
) -> Layout:
    """Returns the shardings of the parameters that ``init(*args)`` would create.

    Nothing is computed or allocated. Leaves that are not boxed with logical
    names (`nn.with_logical_partitioning`) are replicated.

    Args:
        init: function that returns a parameter tree.
        mesh: result of `make_mesh`.
        rules: mapping from logical names to mesh axes, see `MeshOptions.rules`.
        *args: arguments of ``init``, usually a PRNG key.
    """
    # Shapes and names only; no parameter is computed.
    boxed = jax.eval_shape(init, *args)

    def place_leaf(leaf: Any) -> Placement:
        names = getattr(leaf, "names", ())
        shape = meta.unbox(leaf).shape
        unnamed = (None,) * (len(shape) - len(names))
        return place((*names, *unnamed), shape, mesh, rules)

    placements = jax.tree.map(place_leaf, boxed, is_leaf=_is_box)
    shardings = _pick(placements, "sharding")
    notes = _pick(placements, "note")
    shapes = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding
        ),
        meta.unbox(boxed),
        shardings,
    )
    return Layout(shapes, shardings, notes)


def create_sharded(init: Callable[..., Any], shardings: Any, *args: Any) -> Any:
    """Runs ``init(*args)`` so that every parameter is created on its devices, never whole on one.

    Args:
        init: function that returns a tree of arrays, boxed by
            `nn.with_logical_partitioning` or not.
        shardings: shardings of the unboxed tree, as in
            ``plan_layout(...).shardings``.
        *args: arguments of ``init``, usually a PRNG key.

    Returns:
        The unboxed parameters; their values do not depend on the mesh.
    """
    # No logical rules are active here: inside `init`, boxes would constrain
    # dimensions that do not divide.
    create = jax.jit(
        lambda *args: meta.unbox(init(*args)), out_shardings=shardings
    )
    return create(*args)


def slot_shardings(slots: Any, params: Any, shardings: Any, mesh: Mesh) -> Any:
    """Returns the shardings of an optimizer state: moments like their parameters.

    An array of the state (a slot) belongs to a parameter if its path ends with
    the parameter's path and the shapes agree; all other slots (step counts,
    Adafactor's means over rows and columns) are replicated.

    Args:
        slots: optimizer state, of arrays or shapes.
        params: parameter tree, of arrays or shapes.
        shardings: tree of the parameters' shardings.
        mesh: mesh of the shardings.
    """
    shardings_by_name = {}
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    for (path, leaf), sharding in zip(
        leaves, jax.tree.leaves(shardings), strict=True
    ):
        # The moments of Adam are trees like the parameters:
        # opt_state/0/mu/encoder/... ends with encoder/...
        shardings_by_name[_names(path)] = (leaf.shape, sharding)
    replicated = NamedSharding(mesh, P())

    def shard_slot(path: Any, slot: Any) -> NamedSharding:
        # Tries suffixes of the slot's path, longest first.
        names = _names(path)
        for start in range(len(names)):
            shape, sharding = shardings_by_name.get(names[start:], (None, None))
            if shape == slot.shape:
                return sharding
        return replicated

    return jax.tree_util.tree_map_with_path(shard_slot, slots)


def sharding_table(layout: Layout) -> str:
    """Returns a text table of all parameters: shape, mesh axes, bytes per device, notes.

    The last line has the totals.
    """
    rows = [("parameter", "shape", "sharding", "bytes/device", "")]
    paths, _ = jax.tree_util.tree_flatten_with_path(layout.shapes)
    count = total = local = 0
    for (path, leaf), note in zip(
        paths, jax.tree.leaves(layout.notes), strict=True
    ):
        bytes_here = (
            math.prod(leaf.sharding.shard_shape(leaf.shape))
            * leaf.dtype.itemsize
        )
        axes = ", ".join(_axis_names(axes) for axes in leaf.sharding.spec)
        rows.append(
            (
                "/".join(_names(path)),
                str(leaf.shape),
                f"({axes})",
                f"{bytes_here:,}",
                note,
            )
        )
        count += leaf.size
        total += leaf.size * leaf.dtype.itemsize
        local += bytes_here
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    lines.append(
        f"{count:,} parameters, {total:,} bytes, {local:,} bytes on each device"
    )
    return "\n".join(lines)


def check_batch_size(rows: int, mesh: Mesh, accumulation: int = 1) -> None:
    """Raises InputError unless ``rows`` divide evenly over micro-batches and devices.

    Args:
        rows: number of rows of the global batch.
        mesh: result of `make_mesh`.
        accumulation: number of micro-batches per step.
    """
    devices = row_shards(mesh)
    if rows % (devices * accumulation):
        raise InputError(
            f"batch_size: {rows} rows do not divide into {accumulation} micro-batch(es) over "
            f"batch x fsdp = {devices} devices; give a multiple of {devices * accumulation}"
            f"{_other_remedies(rows, devices, accumulation)}"
        )


def _other_remedies(rows: int, devices: int, accumulation: int) -> str:
    """Returns the accumulation and the mesh with which ``rows`` divide, as text; "" for none.

    Args:
        rows: number that does not divide by ``devices * accumulation``.
        devices: number of devices of the mesh's batch axes.
        accumulation: number of micro-batches.
    """
    remedies = ""
    if rows % devices == 0:
        largest = math.gcd(rows // devices, accumulation)
        remedies += f", or training.accumulation={largest}"
    if rows % accumulation == 0:
        fitting = math.gcd(rows // accumulation, devices)
        remedies += (
            f", or batch x fsdp = {fitting} with the other devices along mesh.tensor or "
            "mesh.sequence"
        )
    return remedies


def put_batch(
    batch: NumpyBatch, mesh: Mesh, accumulation: int = 1
) -> dict[str, Array]:
    """Makes global arrays from this process's rows of a batch; rows are sharded over the mesh.

    Args:
        batch: arrays [rows, ...] of the rows that this process reads, see
            `host_rows`.
        mesh: mesh of the run.
        accumulation: number of micro-batches into which a step divides the
            rows.

    Returns:
        Arrays [rows, ...] by name, with the rows of all processes.

    Raises:
        InputError: the global number of rows is not divisible by the devices
            and micro-batches that share them (`check_batch_size`).
    """
    rows = len(next(iter(batch.values())))
    # Every process passes only its own rows.
    global_rows = rows * host_rows(mesh).num_hosts
    check_batch_size(global_rows, mesh, accumulation)
    sharding = NamedSharding(mesh, P(BATCH_AXES))
    placed = {}
    for name, value in batch.items():
        shape = (global_rows, *np.shape(value)[1:])
        local = np.asarray(value)
        placed[name] = jax.make_array_from_process_local_data(
            sharding, local, shape
        )
    return placed


def _axis_names(axes: str | tuple[str, ...] | None) -> str:
    """Returns the mesh axes of one dimension as text, "-" for none."""
    if axes is None:
        return "-"
    if isinstance(axes, str):
        return axes
    return "+".join(axes)


def _is_box(leaf: Any) -> bool:
    return isinstance(leaf, meta.AxisMetadata)


def _pick(placements: Any, field: str) -> Any:
    def is_placement(node: Any) -> bool:
        return isinstance(node, Placement)

    return jax.tree.map(
        operator.attrgetter(field), placements, is_leaf=is_placement
    )


def _names(path: Any) -> tuple[str, ...]:
    """Returns the keys, attributes or indices of a tree path."""
    return tuple(
        str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k))))
        for k in path
    )
