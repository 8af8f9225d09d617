"""LoRA adapters: their parameters, their merge, and their files in PEFT's layout.

The matrices A and B of a linear map are parameters next to its kernel, stacked
and sharded like it, see ``layers.dense.Linear``.
"""

import json
import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax import atomic, checksums
from longsum_jax.checkpoints.state_dict import (
    PART,
    LazyArray,
    check_finite,
    to_lazy_state_dict,
)
from longsum_jax.checkpoints.tensor_files import (
    Tensors,
    read_safetensors,
    write_safetensors,
)
from longsum_jax.checkpoints.weights import has_weights
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.files import read_json
from longsum_jax.models.config import ModelConfig
from longsum_jax.models.family import Family
from longsum_jax.models.weight_map import WeightMap, WeightRow, replace_all
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
_PIECE = 2**20  # maximum values of B A in memory, but at least one row
# Options of PEFT that change the computation or the base model, with their
# values in plain LoRA. Other initializations subtract the update from the base.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "alora_invocation_tokens": (None, []),
    "arrow_config": (None,),
    "bias": ("none",),
    "fan_in_fan_out": (False,),
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),
    "kasa_config": (None,),
    "layer_replication": (None, []),
    "modules_to_save": (None, []),
    "monteclora_config": (None,),
    "use_bdlora": (None, False),
    "use_dora": (False,),
    "use_qalora": (False,),
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
        weight_map = family.weight_map(config)
        rows = [row for row in weight_map.rows if row.layout == "linear"]
        self._modules = weight_map.modules
        self._linear = {
            row.path: self._class_names(row, shapes[row.path]) for row in rows
        }
        targets = _selected(self._linear, options.targets)
        self.parameters = [
            _lora_parameter(row, shapes[row.path], axes[row.path], options.rank)
            for row in rows
            if row.path in targets
        ]

    def _class_names(self, row: WeightRow, shape: Sequence[int]) -> list[str]:
        """Returns the names of the linear maps of a kernel in the class of transformers."""
        names = _module_names(row, shape)
        return [replace_all(name, self._modules) for name in names]

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
            **self._patterns(),
            "target_modules": self._target_modules(),
            "task_type": None,
            "use_dora": False,
            "use_rslora": False,
        }
        weight_map = _weight_map(self.parameters, self._modules)
        tensors = _with_blocks(to_lazy_state_dict(params, weight_map))
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

    def _patterns(self) -> dict[str, dict[str, float]]:
        """Returns the ranks and numerators of maps whose weights are stored as one.

        Each part has its own matrices, which PEFT sees as one of a larger rank.
        """
        ranks: dict[str, float] = {}
        alphas: dict[str, float] = {}
        for parameter in self.parameters:
            part = PART.fullmatch(parameter.row.key)
            if part is not None:
                path = parameter.row.path
                name = self._linear[path][0].rpartition(".")[2]
                ranks[name] = int(part[3]) * self.options.rank
                alphas[name] = int(part[3]) * self.options.alpha
        return {"rank_pattern": ranks, "alpha_pattern": alphas}

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
        # A class with other names of modules has further parts, which short
        # names would select.
        if last.isdisjoint(others) and not self._modules:
            return sorted(last)
        return sorted({name for group in names.values() for name in group})


def _module_names(row: WeightRow, shape: Sequence[int]) -> list[str]:
    """Returns the names of the linear maps of a kernel in files of transformers."""
    part = PART.fullmatch(row.key)
    name = (part[1] if part else row.key).removesuffix(_WEIGHT)
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


def _weight_map(
    parameters: Sequence[LoraParameter], modules: Sequence[tuple[str, str]]
) -> WeightMap:
    """Returns the names of matrices in PEFT's files.

    The names of parts of a linear map end with their number, "[0/3]".
    """
    rows = []
    for parameter in parameters:
        row = parameter.row
        part = PART.fullmatch(row.key)
        name, suffix = row.key, ""
        if part is not None:
            name, suffix = part[1], row.key.removeprefix(part[1])
        name = replace_all(name.removesuffix(_WEIGHT), modules)
        for path, matrix in zip(parameter.shapes, "AB", strict=True):
            # The inputs of B are the rank.
            inputs = row.inputs if matrix == "A" else 1
            key = f"{_PREFIX}{name}.lora_{matrix}.weight{suffix}"
            rows.append(row._replace(path=path, key=key, inputs=inputs))
    return WeightMap([row._replace(alternatives=()) for row in rows])


def _with_blocks(tensors: Mapping[str, LazyArray]) -> dict[str, LazyArray]:
    """Returns matrices in which the parts of a linear map are one map.

    The matrices A of the parts are one array already. Each B reads only the
    rank of its part.
    """
    result = dict(tensors)
    for key, a in tensors.items():
        name = key.replace(".lora_A.", ".lora_B.")
        b = tensors[name]
        if name != key and a.shape[0] != b.shape[1]:
            shape = (b.shape[0], a.shape[0])
            result[name] = LazyArray(
                shape, b.dtype, partial(_block_diagonal, b, shape)
            )
    return result


def _block_diagonal(array: LazyArray, shape: tuple[int, int]) -> np.ndarray:
    """Returns a matrix with blocks of rows of an array on its diagonal."""
    values = np.asarray(array)
    rank = values.shape[1]
    count = shape[1] // rank
    result = np.zeros(shape, values.dtype)
    rows = shape[0] // count
    for index in range(count):
        block = slice(index * rows, (index + 1) * rows)
        result[block, index * rank : (index + 1) * rank] = values[block]
    return result


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


class _Pair(NamedTuple):
    """The matrices of a linear map, and the factor of B A."""

    a: Any
    b: Any
    scale: float


def is_adapter(directory: Path) -> bool:
    """Returns True for a directory with an adapter instead of the weights of a model.

    Some adapters are published with the config.json of their base model.
    """
    has_config = (directory / ADAPTER_CONFIG).exists()
    return has_config and not has_weights(directory)


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
    """Returns the parameters of a base model with an adapter merged in, on devices.

    NumPy arrays in ``params`` are changed in place, so that no kernel is in
    memory twice. Other kernels are copied to the host, one at a time.

    Args:
        params: parameters of the base model, which are changed.
        family, config: the base model.
        adapter: result of ``read_adapter``; it may adapt only some layers.

    Raises:
        InputError: the adapter is for another model.
    """
    path = adapter.directory / ADAPTER
    weight_map = family.weight_map(config)
    # The rows of a linear map: several if its weights are stored as one.
    rows: dict[str, list[WeightRow]] = {}
    for row in weight_map.rows:
        if row.layout == "linear":
            for name in _module_names(row, _at(params, row.path).shape):
                rows.setdefault(name, []).append(row)
    pairs = {}
    for name, matrices in _matrices(adapter, path).items():
        file_name = _file_name(name, weight_map, rows)
        if file_name in rows or not weight_map.ignores(file_name + _WEIGHT):
            pairs[file_name] = _Pair(*matrices, adapter.scale(name))
    missing = sorted(pairs.keys() - rows.keys())
    tables = {row.key for row in weight_map.rows} | weight_map.tied.keys()
    adapted = [name for name in missing if name + _WEIGHT in tables]
    if adapted:
        raise InputError(
            f"{path}: adapts {first_names(adapted)}, a table of embeddings or output weights, "
            "which is not supported; merge the adapter with PEFT's merge_and_unload"
        )
    if missing:
        raise InputError(
            f"{path}: is not for this {family.name} model, which has no linear map "
            f"{first_names(missing)}; give the model that it was trained on (base)"
        )
    for row in dict.fromkeys(row for name in pairs for row in rows[name]):
        kernel = np.require(_at(params, row.path), requirements=["C", "W"])
        layers = kernel if "{i}" in row.key else [kernel]
        for name, layer in zip(
            _module_names(row, kernel.shape), layers, strict=True
        ):
            if name in pairs:
                _add_update(layer, row, pairs[name], path)
        _replace(params, row.path, kernel)
    for row in weight_map.rows:
        _replace(params, row.path, jax.device_put(_at(params, row.path)))
    return params


def _at(params: Params, path: str) -> Any:
    """Returns a parameter by its path, "a/b/kernel"."""
    for name in path.split("/"):
        params = params[name]
    return params


def _replace(params: Params, path: str, value: Any) -> None:
    """Replaces a parameter."""
    *parents, name = path.split("/")
    tree: Any = params
    for parent in parents:
        tree = tree[parent]
    tree[name] = value


def _file_name(name: str, weight_map: WeightMap, names: Container[str]) -> str:
    """Returns the name in files of a linear map that an adapter names.

    Args:
        name: name of the module in the class that the adapter was trained with,
            which may lack the head, and therefore the prefix.
        weight_map: names of the model's parameters.
        names: names of all linear maps.
    """
    name = replace_all(name, weight_map.aliases)
    prefixed = weight_map.prefix + name
    return prefixed if name not in names and prefixed in names else name


def _matrices(adapter: Adapter, path: Path) -> dict[str, tuple[Any, Any]]:
    """Returns A and B by the name of their linear map in transformers."""
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


def _add_update(
    kernel: np.ndarray, row: WeightRow, pair: _Pair, path: Path
) -> None:
    """Adds scale * B A to the kernel of one layer, a few inputs at a time."""
    part = PART.fullmatch(row.key)
    index, num_parts = (int(part[2]), int(part[3])) if part else (0, 1)
    num_outputs = math.prod(kernel.shape[row.inputs :])
    kernel = kernel.reshape(-1, num_outputs)  # a view
    shape = num_parts * num_outputs, len(kernel)
    is_fitting = (
        len(pair.a.shape) == len(pair.b.shape) == 2
        and (pair.b.shape[0], pair.a.shape[1]) == shape
        and pair.a.shape[0] == pair.b.shape[1]
    )
    if not is_fitting:
        raise InputError(
            f"{path}: is for another model: matrices {tuple(pair.b.shape)} and "
            f"{tuple(pair.a.shape)} for a weight {shape}; give the model that it was trained on "
            "(base)"
        )
    a, b = (np.asarray(x).astype(np.float32) for x in (pair.a, pair.b))
    for matrix in (a, b):
        check_finite(matrix, "lora", str(path))
    b = b[index * num_outputs : (index + 1) * num_outputs]
    num_rows = max(1, _PIECE // num_outputs)
    for first in range(0, len(kernel), num_rows):
        rows = slice(first, first + num_rows)
        update = pair.scale * (a.T[rows] @ b.T)
        kernel[rows] = kernel[rows].astype(np.float32) + update
