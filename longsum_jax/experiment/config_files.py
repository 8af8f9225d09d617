"""Config files: Python files with ``get_config(mode)``, overrides and changes of configs.

``configs/locost_c4.py`` is the file's default mode,
``configs/locost_c4.py:tiny`` another one, and
``configs/locost_c4.py:tiny,data.batch_size=8`` a mode with overrides;
``--config.data.batch_size=8`` does the same. A file may declare arguments,
``ARGUMENTS = ("model", "data")``: ``configs/finetune.py:model=DIR,data=FILE``
then calls ``get_config(mode, model="DIR", data="FILE")``. Commas inside quotes
or brackets belong to the value: ``:data="a,b.jsonl"``.
"""

import ast
import copy
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import longsum_jax.configs
from longsum_jax.errors import InputError, did_you_mean

if TYPE_CHECKING:
    import jax

    from longsum_jax.experiment.config import RunConfig

_PREFIX = "--config."
# A part of ``mode,key=value,...``; commas inside quotes and brackets do not end
# it.
_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|\([^()]*\)|\[[^\[\]]*\]|[^,])+""")
_QUOTED = re.compile(r"""(["'])(.*)\1""", re.DOTALL)
_ATTENTIONS = ("model.encoder_attention", "model.cross_attention")
_WORDS = {"true": True, "false": False, "none": None}
_KINDS = {int: "a whole number", float: "a number"}


def read_config(spec: str, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Returns the config as nested plain dictionaries.

    Args:
        spec: ``FILE[:mode][,key=value]...``, in which a key is an argument of
            the file or a dotted key of its config; a FILE that is not in the
            working directory is looked up among the configs shipped with the
            package (``configs/quickstart.py``).
        overrides: text by dotted key, applied last.

    Raises:
        InputError: the file is missing, cannot be run or lacks ``get_config``;
            or an unknown mode, argument or key, or a value of a wrong type.
    """
    name, _, argument = spec.partition(":")
    mode, *pairs = _PART.findall(argument) or [""]
    if "=" in mode:
        mode, pairs = "", [mode, *pairs]
    values = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise InputError(
                f'--config={spec}: "{pair}" is not key=value; put a value with commas in quotes, '
                'key="a,b"'
            )
        quoted = _QUOTED.fullmatch(text)
        values[key] = quoted[2] if quoted else text
    config = _call_get_config(_find(name), mode, values)
    values |= overrides
    # Attentions first, because they determine which options the model has.
    for key in sorted(values, key=lambda key: key not in _ATTENTIONS):
        set_value(config, key, values[key])
    return config


def split_overrides(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Separates ``--config.key=value`` (or ``--config.key value``) from other arguments."""
    rest, overrides = [], {}
    arguments = iter(argv)
    for argument in arguments:
        if not argument.startswith(_PREFIX):
            rest.append(argument)
            continue
        key, equals, text = argument.removeprefix(_PREFIX).partition("=")
        if not equals:
            following = next(arguments, None)
            if following is None:
                raise InputError(
                    f"{argument}: the value is missing; write {argument}=VALUE"
                )
            text = following
        overrides[key] = text
    return rest, overrides


def set_value(config: dict[str, Any], key: str, text: str) -> None:
    """Replaces the value at a dotted ``key`` by ``text``, parsed as the type of the old value."""
    # Imported here, so that --help does not wait for it.
    from longsum_jax.experiment.config import allowed_words, takes_several

    *parents, last = key.split(".")
    node = config
    for depth, parent in enumerate(parents):
        _check_known(parent, node, ".".join(parents[:depth]))
        node = node[parent]
        if not isinstance(node, dict):
            raise InputError(
                f'config.{".".join(parents[: depth + 1])} is a value; it has no key "{last}"'
            )
    if parents == ["model"] and _is_option_of_plugin(last, node):
        node.setdefault(last, None)
    _check_known(last, node, ".".join(parents))
    if isinstance(node[last], dict):
        raise InputError(
            f"config.{key} is a section with the keys {', '.join(node[last])}; set one of them"
        )
    if node[last] is None and takes_several(key):
        old = ()
    else:
        old = node[last]
    node[last] = _parse(text, old, f"config.{key}", allowed_words(key))


def with_changes(
    description: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the nested dictionaries of a config with new values at dotted keys."""
    changed = copy.deepcopy(dict(description))
    for path, value in values.items():
        section, _, key = path.partition(".")
        changed[section][key] = value
    return changed


def with_micro_batches(
    run: "RunConfig",
    say: Callable[[str], None],
    devices: "Sequence[jax.Device] | None" = None,
) -> "RunConfig":
    """Returns the run with at most as many micro-batches as a device has rows of a batch.

    A micro-batch has a row for each device at least; the update is the same.

    Args:
        run: config of the run.
        say: function that prints a line, if the number changes.
        devices: devices of the mesh; None for all of the process.
    """
    from longsum_jax.experiment.config import run_config
    from longsum_jax.training.mesh import make_mesh, row_shards

    mesh = make_mesh(run.mesh, devices)
    num_devices = row_shards(mesh)
    rows, rest = divmod(run.data.batch_size, num_devices)
    if rest or rows >= run.training.accumulation:
        return run
    say(
        f"training.accumulation={rows} instead of {run.training.accumulation}: "
        f"{num_devices:,} devices have {rows} of {run.data.batch_size:,} rows each"
    )
    return run_config(
        with_changes(run.description, {"training.accumulation": rows})
    )


def _is_option_of_plugin(name: str, model: Mapping[str, Any]) -> bool:
    """Returns True for an option that only an attention of another package has, if it is in use."""
    if name in model or "family" not in model:
        return False
    # Imported here, so that --help does not wait for it.
    from longsum_jax.models.registry import get_family

    attentions = {
        key: model[key]
        for key in ("encoder_attention", "cross_attention")
        if model.get(key) is not None
    }
    config_class = get_family(model["family"]).config_class
    return name in config_class.keys(attentions) - config_class.keys({})


def _check_known(name: str, node: Mapping[str, Any], where: str) -> None:
    if name not in node:
        location = f"config.{where}" if where else "config"
        raise InputError(
            f'{location}: unknown key "{name}"; {did_you_mean(name, node)}'
        )


def _parse(text: str, old: Any, where: str, words: Mapping[str, Any]) -> Any:
    """Parses a value of the type of ``old``, or one of ``words``, see ``allowed_words``."""
    if text.lower() in words:
        return words[text.lower()]
    if words and isinstance(old, str):
        old = False if "true" in words else 0
    if isinstance(old, str):
        return text
    if isinstance(old, bool):
        choices = _WORDS | {"1": True, "0": False}
        if text.lower() not in choices:
            advice = f"; {did_you_mean(text, words)}" if words else ""
            raise InputError(
                f'{where}: "{text}" is neither true nor false{advice}'
            )
        return choices[text.lower()]
    try:
        value = ast.literal_eval(text)
    except (
        ValueError,
        SyntaxError,
        TypeError,
    ):  # TypeError: an unhashable element of a set
        if isinstance(old, list | tuple):
            value = text
        else:
            value = _WORDS.get(text.lower(), text)
    if old is None or value is None:
        return value
    if (
        isinstance(old, float)
        and isinstance(value, int)
        and not isinstance(value, bool)
    ):
        return float(value)
    if isinstance(old, list | tuple):
        if isinstance(value, str):
            value = value.split(",")
        if isinstance(value, list | tuple):
            return tuple(value)
        return (value,)
    if type(value) is not type(old):
        kind = _KINDS.get(type(old), f"of type {type(old).__name__}")
        if words:
            advice = did_you_mean(text, words)
        else:
            advice = f"give one such as {old!r}"
        raise InputError(f'{where}: "{text}" is not {kind}; {advice}')
    return value


def _find(name: str) -> Path:
    """Returns the path of a config file: as given, or among the configs of the package."""
    shipped = Path(longsum_jax.configs.__path__[0])
    for path in (Path(name), shipped.parent / name):
        if path.is_file():
            return path
    files = [
        f"configs/{path.name}"
        for path in shipped.glob("*.py")
        if _is_config(path)
    ]
    raise InputError(
        f"--config={name}: no such file, neither here nor in {shipped}; {did_you_mean(name, files)}"
    )


def _is_config(path: Path) -> bool:
    return "def get_config(" in path.read_text(encoding="utf-8")


def _call_get_config(
    path: Path, mode: str, values: dict[str, str]
) -> dict[str, Any]:
    """Returns the config of a mode; removes the file's arguments from ``values``."""
    try:
        module = _run(path)
        if not hasattr(module, "get_config"):
            raise InputError(
                f"{path}: defines no get_config(mode); write one that returns the config"
            )
        modes = getattr(module, "MODES", ())
        mode = mode or (modes[0] if modes else "")
        if modes and mode not in modes:
            raise InputError(
                f'{path}: unknown mode "{mode}"; {did_you_mean(mode, modes)}'
            )
        names = getattr(module, "ARGUMENTS", ())
        arguments = {name: values.pop(name) for name in names if name in values}
        config = _to_dict(module.get_config(mode, **arguments))
        _check_arguments(values, names, config, path)
        return config
    except InputError:
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InputError(
            f"{path}: cannot be run as a config ({problem}); fix the file"
        ) from error


def _check_arguments(
    values: Mapping[str, str],
    names: Sequence[str],
    config: Mapping[str, Any],
    path: Path,
) -> None:
    """Raises InputError for a key that is neither an argument of the file nor in its config."""
    for key in values:
        if names and "." not in key and key not in config:
            guess = did_you_mean(key, {*names, *config})
            raise InputError(
                f'{path}: "{key}" is neither an argument ({", ".join(names)}) nor a section of '
                f"its config; {guess}"
            )


def _run(path: Path) -> ModuleType:
    """Executes the file with its directory importable, as Python does for scripts."""
    if path.suffix != ".py":
        raise InputError(
            f"--config={path} is not a Python file; give one that ends in .py"
        )
    spec = importlib.util.spec_from_file_location(
        f"longsum_jax_config_{path.stem}", path
    )
    assert spec is not None  # because the file ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    directory = str(path.parent.resolve())
    sys.path.insert(0, directory)
    another_common = sys.modules.pop("common", None)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(directory)
        sys.modules.pop("common", None)
        if another_common is not None:
            sys.modules["common"] = another_common
    return module


def _to_dict(config: Any) -> dict[str, Any]:
    if hasattr(config, "to_dict"):
        return config.to_dict()
    return dict(config)
