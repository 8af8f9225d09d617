"""LoRA adapters: their parameters, their merge, and their files in PEFT's layout.

The matrices A and B of a linear map are parameters next to its kernel, stacked
and sharded like it, see ``layers.dense.Linear``.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax import atomic, checksums
from longsum_jax.checkpoints.state_dict import (
    LazyArray,
    check_finite,
    to_lazy_state_dict,
    to_params,
)
from longsum_jax.checkpoints.tensor_files import (
    Tensors,
    read_safetensors,
    write_safetensors,
)
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.files import read_json
from longsum_jax.models.config import ModelConfig
from longsum_jax.models.family import Family
from longsum_jax.models.weight_map import WeightMap, WeightRow
from longsum_jax.schema import first_names, shortened
from longsum_jax.training.lora import (
    ALL_LINEAR,
    KERNEL,
    LORA_A,
    LORA_B,
    LoraOptions,
)
from longsum_jax.typing import Array, Params

ADAPTER_CONFIG, ADAPTER = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."  # PEFT's wrappers around the model
_WEIGHT = ".weight"
# Options of PEFT that change the computation, with their values in plain LoRA.
_PLAIN = {
    "bias": ("none",),
    "fan_in_fan_out": (False,),
    "modules_to_save": (None, []),
    "use_dora": (False,),
}


class LoraParameter(NamedTuple):
    """The matrices of one (stack of) linear maps.

    Attributes:
        row: row of the kernel in the weight map of the model.
        shapes: shapes of both matrices by path.
        axes: logical names of their axes by path.
        num_inputs: number of inputs of one map.
    """

    row: WeightRow
    shapes: dict[str, tuple[int, ...]]
    axes: dict[str, tuple[str | None, ...]]
    num_inputs: int


class Lora:
    """The matrices that LoRA adds to a model.

    Args:
        family, config: the model.
        options: options of LoRA.

    Raises:
        InputError: a target that matches no linear map, or only some layers of
            a stack.
    """

    def __init__(
        self, family: Family, config: ModelConfig, options: LoraOptions
    ) -> None:
        self.options = options
        shapes, axes = (
            family.parameter_shapes(config),
            family.parameter_axes(config),
        )
        rows = [
            row
            for row in family.weight_map(config).rows
            if row.layout == "linear"
        ]
        self._linear = {
            row.path: _module_names(row, shapes[row.path]) for row in rows
        }
        targets = _selected(self._linear, options.targets)
        self.parameters = [
            _lora_parameter(row, shapes[row.path], axes[row.path], options.rank)
            for row in rows
            if row.path in targets
        ]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all matrices by path."""
        return {
            path: shape
            for p in self.parameters
            for path, shape in p.shapes.items()
        }

    @property
    def axes(self) -> dict[str, tuple[str | None, ...]]:
        """Logical names of the axes of all matrices by path."""
        return {
            path: names
            for p in self.parameters
            for path, names in p.axes.items()
        }

    def init(self, key: Array) -> dict[str, Array]:
        """Returns new matrices by path: A as by PEFT, uniform; B is 0."""
        matrices = {}
        for number, parameter in enumerate(self.parameters):
            (path_a, shape_a), (path_b, shape_b) = parameter.shapes.items()
            bound = 1 / math.sqrt(parameter.num_inputs)
            subkey = jax.random.fold_in(key, number)
            matrices[path_a] = jax.random.uniform(
                subkey, shape_a, jnp.float32, -bound, bound
            )
            matrices[path_b] = jnp.zeros(shape_b)
        return matrices

    def with_matrices(
        self, init: Callable[[Array], Any]
    ) -> Callable[[Array], Any]:
        """Returns ``init`` with the matrices, boxed with their axis names."""

        def init_all(key: Array) -> Any:
            flat = flax.traverse_util.flatten_dict(init(key), sep="/")
            for path, value in self.init(key).items():
                flat[path] = nn.LogicallyPartitioned(value, self.axes[path])
            return flax.traverse_util.unflatten_dict(flat, sep="/")

        return init_all

    def added_to(self, params: Params, seed: int) -> Params:
        """Returns the parameters of a base model with new matrices."""
        flat = flax.traverse_util.flatten_dict(params, sep="/")
        flat |= jax.jit(self.init)(jax.random.key(seed))
        return flax.traverse_util.unflatten_dict(flat, sep="/")

    def merged(self, params: Params) -> Params:
        """Returns the parameters with the kernels W + scale * A B, sharded like W."""
        return merged_params(params, self.options.scale)

    def write(self, directory: str | Path, params: Params, base: str) -> None:
        """Writes the matrices of ``params`` in PEFT's layout, with checksums.

        Args:
            directory: directory to write or replace.
            params: parameters with matrices, on the host.
            base: path or name of the base model, for adapter_config.json.

        Raises:
            InputError: the directory cannot be written.
        """
        options = self.options
        description = {
            "base_model_name_or_path": base,
            "bias": "none",
            "fan_in_fan_out": False,
            "inference_mode": True,
            "init_lora_weights": True,
            "lora_alpha": options.alpha,
            "lora_dropout": options.dropout,
            "modules_to_save": None,
            "peft_type": "LORA",
            "r": options.rank,
            "target_modules": self._target_modules(),
            "task_type": None,
            "use_dora": False,
            "use_rslora": False,
        }
        tensors = to_lazy_state_dict(params, _weight_map(self.parameters))
        try:
            with atomic.new_directory(Path(directory), overwrite=True) as work:
                text = json.dumps(description, indent=2, sort_keys=True) + "\n"
                (work / ADAPTER_CONFIG).write_text(text, encoding="utf-8")
                write_safetensors(work / ADAPTER, tensors, checksums.MARK)
                checksums.write(work)
        except OSError as error:
            raise InputError(
                f"{directory}: the adapter cannot be written ({error.strerror}); free up space"
            ) from error

    def _target_modules(self) -> list[str]:
        """Returns names from which PEFT selects exactly these maps."""
        targets = {p.row.path for p in self.parameters}
        names = {
            path: names
            for path, names in self._linear.items()
            if path in targets
        }
        last = {
            name.rpartition(".")[2]
            for group in names.values()
            for name in group
        }
        others = {
            name.rpartition(".")[2]
            for path, group in self._linear.items()
            if path not in targets
            for name in group
        }
        if last.isdisjoint(others):
            return sorted(last)
        return sorted(name for group in names.values() for name in group)


def _module_names(row: WeightRow, shape: Sequence[int]) -> list[str]:
    """Returns the names of the linear maps of a kernel in transformers."""
    name = row.key.removesuffix(_WEIGHT)
    if "{i}" not in name:
        return [name]
    return [name.format(i=row.first + i) for i in range(shape[0])]


def _selected(
    linear: Mapping[str, Sequence[str]], targets: Sequence[str]
) -> set[str]:
    """Returns the paths of the kernels that the targets select."""
    selected = set()
    for target in targets:
        matched = set()
        for path, names in linear.items():
            matches = [_is_target(name, target) for name in names]
            if any(matches) and not all(matches):
                raise InputError(
                    f'lora.targets: "{target}" selects only some of the layers of '
                    f"{path.removesuffix('/' + KERNEL)}, whose parameters are one array; "
                    "select all of them"
                )
            if all(matches):
                matched.add(path)
        if not matched:
            last = sorted(
                {names[0].rpartition(".")[2] for names in linear.values()}
            )
            raise InputError(
                f'lora.targets: "{target}" matches no linear map of this model; '
                f"{did_you_mean(target, last)}"
            )
        selected |= matched
    return selected


def _is_target(name: str, target: str) -> bool:
    """Returns True if PEFT would adapt the module ``name`` for ``target``."""
    if target == ALL_LINEAR or name == target or name.endswith("." + target):
        return True
    try:
        return re.fullmatch(target, name) is not None
    except re.error as error:
        raise InputError(
            f'lora.targets: "{target}" is not a regular expression ({error})'
        ) from None


def _lora_parameter(
    row: WeightRow,
    shape: tuple[int, ...],
    axes: tuple[str | None, ...],
    rank: int,
) -> LoraParameter:
    first = 1 if "{i}" in row.key else 0  # the axis of layers
    middle = first + row.inputs
    module = row.path.removesuffix(KERNEL)
    return LoraParameter(
        row,
        {
            module + LORA_A: (*shape[:middle], rank),
            module + LORA_B: (*shape[:first], rank, *shape[middle:]),
        },
        {
            module + LORA_A: (*axes[:middle], None),
            module + LORA_B: (*axes[:first], None, *axes[middle:]),
        },
        math.prod(shape[first:middle]),
    )


def _weight_map(parameters: Sequence[LoraParameter]) -> WeightMap:
    """Returns the names of matrices in PEFT's files."""
    rows = []
    for parameter in parameters:
        row = parameter.row
        key = _PREFIX + row.key.removesuffix(_WEIGHT)
        path_a, path_b = parameter.shapes
        rows.append(row._replace(path=path_a, key=f"{key}.lora_A.weight"))
        rows.append(
            row._replace(path=path_b, key=f"{key}.lora_B.weight", inputs=1)
        )
    return WeightMap([row._replace(alternatives=()) for row in rows])


def has_matrices(params: Params) -> bool:
    """Returns True if a parameter tree contains matrices of LoRA."""
    return any(
        path[-1] == LORA_A for path in flax.traverse_util.flatten_dict(params)
    )


def without_matrices(params: Params) -> Params:
    """Returns the parameters of the base model."""
    flat = flax.traverse_util.flatten_dict(params)
    base = {
        path: x for path, x in flat.items() if path[-1] not in (LORA_A, LORA_B)
    }
    return flax.traverse_util.unflatten_dict(base)


def merged_params(params: Params, scale: float) -> Params:
    """Returns W + scale * A B for every kernel with matrices, without them.

    Args:
        params: parameter tree on the host or on devices.
        scale: factor of A B, ``LoraOptions.scale``.
    """
    flat = flax.traverse_util.flatten_dict(params)
    merged = {}
    for path, value in flat.items():
        if path[-1] in (LORA_A, LORA_B):
            continue
        a, b = (flat.get((*path[:-1], name)) for name in (LORA_A, LORA_B))
        if path[-1] == KERNEL and a is not None:
            value = _merged_kernel(value, a, b, scale)
        merged[path] = value
    return flax.traverse_util.unflatten_dict(merged)


def _merged_kernel(kernel: Any, a: Any, b: Any, scale: float) -> Array:
    def merge(kernel: Array, a: Array, b: Array) -> Array:
        # Of one layer, [*inputs, rank] and [rank, *outputs].
        update = jnp.tensordot(a, b, axes=1, precision="highest")
        return (kernel.astype(jnp.float32) + scale * update).astype(
            kernel.dtype
        )

    # A and B have three more axes than a stack of kernels, two more than one.
    is_stacked = a.ndim + b.ndim - kernel.ndim == 3
    sharding = None
    if isinstance(kernel, jax.Array):
        sharding = kernel.sharding
    merge_all = jax.vmap(merge) if is_stacked else merge
    return jax.jit(merge_all, out_shardings=sharding)(kernel, a, b)


# Adapters in PEFT's layout


class Adapter(NamedTuple):
    """The files of an adapter.

    Attributes:
        directory: directory of the adapter.
        description: content of adapter_config.json.
        tensors: matrices by their names in PEFT.
    """

    directory: Path
    description: dict[str, Any]
    tensors: Tensors

    @property
    def base(self) -> str:
        """The path or name of the base model; "" if the adapter has none."""
        return self.description.get("base_model_name_or_path") or ""

    def scale(self, module: str) -> float:
        """The factor of B A of a module."""
        description = self.description
        rank = _pattern(
            description.get("rank_pattern"), module, description["r"]
        )
        alpha = _pattern(
            description.get("alpha_pattern"), module, description["lora_alpha"]
        )
        return alpha / (
            math.sqrt(rank) if description.get("use_rslora") else rank
        )


def _pattern(
    patterns: Mapping[str, Any] | None, module: str, default: Any
) -> Any:
    """Returns the value of the first pattern that the end of a name matches."""
    for pattern, value in (patterns or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return default


def is_adapter(directory: Path) -> bool:
    """Returns True for a directory with an adapter instead of a model."""
    return (directory / ADAPTER_CONFIG).exists() and not (
        directory / "config.json"
    ).exists()


def read_adapter(directory: Path) -> Adapter:
    """Reads the files of an adapter; its tensors are read on demand.

    Raises:
        InputError: a file is missing or invalid, or the adapter is not LoRA.
    """
    checksums.check(directory)
    where = directory / ADAPTER_CONFIG
    description = read_json(where)
    if description.get("peft_type") != "LORA":
        raise InputError(
            f"{where}: peft_type is {shortened(description.get('peft_type'))}; only LORA is "
            "supported, merge other adapters with PEFT's merge_and_unload"
        )
    for name, allowed in _PLAIN.items():
        if name in description and description[name] not in allowed:
            raise InputError(
                f"{where}: {name}={shortened(description[name])} is not supported; merge the "
                "adapter with PEFT's merge_and_unload"
            )
    for name in ("r", "lora_alpha"):
        value = description.get(name)
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or value <= 0
        ):
            raise InputError(
                f"{where}: {name} is {shortened(value)}; give a number above 0"
            )
    path = directory / ADAPTER
    if not path.exists():
        raise InputError(
            f"{path}: no such file; save the adapter as safetensors"
        )
    return Adapter(directory, description, read_safetensors(path))


def merge_adapter(
    params: Params, family: Family, config: ModelConfig, adapter: Adapter
) -> Params:
    """Returns the parameters of a base model with an adapter merged in.

    One kernel (of all layers) is read, changed and placed at a time.

    Args:
        params: parameters of the base model.
        family, config: the base model.
        adapter: result of ``read_adapter``; it may adapt only some layers.

    Raises:
        InputError: the adapter is for another model.
    """
    path = adapter.directory / ADAPTER
    pairs = _pairs(adapter, path)
    weight_map = family.weight_map(config)
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    rows = {
        f"{name}{_WEIGHT}": row
        for row in weight_map.rows
        if row.layout == "linear"
        for name in _module_names(row, flat[row.path].shape)
    }
    missing = [name for name in pairs if f"{name}{_WEIGHT}" not in rows]
    if missing:
        raise InputError(
            f"{path}: is not for this {family.name} model, which has no linear map "
            f"{first_names(missing)}; give the model that it was trained on (base)"
        )
    for row in dict.fromkeys(rows[f"{name}{_WEIGHT}"] for name in pairs):
        kernel = flat[row.path]
        single = WeightMap([row])
        tree = flax.traverse_util.unflatten_dict({row.path: kernel}, sep="/")
        state = to_lazy_state_dict(tree, single)
        for name in _module_names(row, kernel.shape):
            if name in pairs:
                key = name + _WEIGHT
                state[key] = _updated(
                    state[key], *pairs[name], adapter.scale(name), path
                )
        shapes = {row.path: kernel.shape}
        tree = to_params(state, single, shapes, str(path), dtype=kernel.dtype)
        flat |= flax.traverse_util.flatten_dict(tree, sep="/")
    return flax.traverse_util.unflatten_dict(flat, sep="/")


def _pairs(adapter: Adapter, path: Path) -> dict[str, tuple[Any, Any]]:
    """Returns both matrices by the name of their linear map in transformers."""
    halves: dict[str, dict[str, Any]] = {}
    for key, tensor in adapter.tensors.items():
        match = re.fullmatch(
            rf"{re.escape(_PREFIX)}(.+)\.lora_([AB])\.weight", key
        )
        if match is None:
            raise InputError(
                f'{path}: "{key}" is not a matrix of LoRA for a linear map; merge the adapter '
                "with PEFT's merge_and_unload"
            )
        halves.setdefault(match[1], {})[match[2]] = tensor
    single = [name for name, matrices in halves.items() if len(matrices) < 2]
    if single or not halves:
        raise InputError(
            f"{path}: only one of lora_A and lora_B for {first_names(single) or 'every map'}; "
            "copy the adapter again"
        )
    return {
        name: (matrices["A"], matrices["B"])
        for name, matrices in halves.items()
    }


def _updated(
    weight: Any, a: Any, b: Any, scale: float, path: Path
) -> LazyArray:
    """Returns ``weight`` [outputs, inputs] plus scale * B A, computed on demand."""
    num_outputs, num_inputs = weight.shape
    is_fitting = (
        len(a.shape) == len(b.shape) == 2
        and (b.shape[0], a.shape[1]) == (num_outputs, num_inputs)
        and a.shape[0] == b.shape[1]
    )
    if not is_fitting:
        raise InputError(
            f"{path}: is for another model: matrices {tuple(b.shape)} and {tuple(a.shape)} for a "
            f"weight {tuple(weight.shape)}; give the model that it was trained on (base)"
        )

    def read() -> np.ndarray:
        factors = [np.asarray(x).astype(np.float32) for x in (a, b)]
        for matrix in factors:
            check_finite(matrix, "lora", str(path))
        update = scale * (factors[1] @ factors[0])
        base = np.asarray(weight)
        return (base.astype(np.float32) + update).astype(base.dtype)

    return LazyArray(weight.shape, weight.dtype, read)
