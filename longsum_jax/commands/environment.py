"""Checks of the environment variables that JAX and XLA read when they start.

JAX answers invalid values with a traceback, XLA ends the process.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from longsum_jax.errors import InputError, in_one_line

_TRUE_OR_FALSE = frozenset(
    ["y", "yes", "t", "true", "on", "1", "n", "no", "f", "false", "off", "0"]
)
_PRECISIONS = frozenset(
    [
        "default",
        "high",
        "highest",
        "bfloat16",
        "tensorfloat32",
        "float32",
        "ANY_F8_ANY_F8_F32",
        "ANY_F8_ANY_F8_F32_FAST_ACCUM",
        "ANY_F8_ANY_F8_ANY",
        "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
        "F16_F16_F16",
        "F16_F16_F32",
        "BF16_BF16_BF16",
        "BF16_BF16_F32",
        "BF16_BF16_F32_X3",
        "BF16_BF16_F32_X6",
        "BF16_BF16_F32_X9",
        "TF32_TF32_F32",
        "TF32_TF32_F32_X3",
        "F32_F32_F32",
        "F64_F64_F64",
    ]
)
_MOST_CPU_DEVICES = 1024
_PLATFORMS = ("cpu", "cuda", "gpu", "rocm", "tpu")
_REMEDIES = {
    "cuda": "install longsum_jax[cuda13] or [cuda12]",
    "gpu": "install longsum_jax[cuda13] or [cuda12]",
    "tpu": "install longsum_jax[tpu]",
}
# Errors of JAX for a device that does not start.
_NOT_STARTED = re.compile(
    r"(?:Unable to initialize backend|Unknown backend:?|Backend) '?(\w+)'?(?:: )?(.*)"
)
# JAX reads its variables when it is imported.
_READ_VARIABLES = "import jax"
# XLA parses its flags when the first options are created.
_PARSE_FLAGS = (
    "from jaxlib import _jax; "
    "_jax.CompileOptions().executable_build_options.debug_options"
)
_FLAG_ERROR = re.compile(
    r"Unknown flags? in XLA_FLAGS: .*|Couldn't interpret value .* for flag [^\s.]+|"
    r"Could not open file .* to read flags"
)
_VARIABLE_ERROR = re.compile(
    r"Invalid value .* for JAX flag (jax_\w+)|invalid truth value .* for environment '(JAX_\w+)'",
    re.DOTALL,
)
# Variables that are checked here or by ``training.distributed``, or that may
# have any value.
_READ_ELSEWHERE = frozenset(
    [
        "JAX_COMPILATION_CACHE_DIR",
        "JAX_COORDINATOR_ADDRESS",
        "JAX_DEFAULT_MATMUL_PRECISION",
        "JAX_ENABLE_COMPILATION_CACHE",
        "JAX_ENABLE_X64",
        "JAX_NUM_CPU_DEVICES",
        "JAX_NUM_PROCESSES",
        "JAX_PLATFORMS",
        "JAX_PROCESS_ID",
    ]
)


def check_environment(environment: Mapping[str, str]) -> None:
    """Raises InputError for an invalid value that JAX or XLA would read.

    Flags of XLA and rare variables of JAX are checked in a child process, once
    for each value.

    Args:
        environment: environment variables of this process.
    """
    for name in ("JAX_ENABLE_X64", "JAX_ENABLE_COMPILATION_CACHE"):
        value = environment.get(name)
        if value is not None and value.lower() not in _TRUE_OR_FALSE:
            raise _invalid(name, value, "give true or false")
    value = environment.get("JAX_DEFAULT_MATMUL_PRECISION")
    if value is not None and value not in _PRECISIONS:
        remedy = (
            "give default, high, highest, bfloat16, tensorfloat32 or float32"
        )
        raise _invalid("JAX_DEFAULT_MATMUL_PRECISION", value, remedy)
    value = environment.get("JAX_NUM_CPU_DEVICES")
    if value is not None and not _is_number_of_devices(value):
        remedy = f"give a whole number from 1 to {_MOST_CPU_DEVICES}"
        raise _invalid("JAX_NUM_CPU_DEVICES", value, remedy)
    value = environment.get("JAX_PLATFORMS", "")
    for name in value.split(",") if value else ():
        if name not in _PLATFORMS and not _has_plugins():
            remedy = f"give {', '.join(_PLATFORMS[:-1])} or {_PLATFORMS[-1]}"
            raise _invalid("JAX_PLATFORMS", value, remedy)
    variables = {
        name: value
        for name, value in environment.items()
        if (name.startswith("JAX_") and name not in _READ_ELSEWHERE)
        or (name == "XLA_FLAGS" and value.strip())
    }
    if variables:
        _check_in_child(environment, variables)


def not_started(error: Exception, environment: Mapping[str, str]) -> str | None:
    """Returns a sentence for JAX's error of a device that does not start.

    None for other errors.

    Args:
        error: error of JAX.
        environment: environment variables of this process.
    """
    value = environment.get("JAX_PLATFORMS")
    match = _NOT_STARTED.match(str(error))
    if match is not None:
        platform, reason = match.groups()
        reason = reason.partition(" (set JAX_PLATFORMS")[0].strip()
    elif value and isinstance(error, AssertionError) and _is_of_backends(error):
        platform, reason = value, "JAX has no plug-in for it"
    else:
        return None
    if value in _REMEDIES:  # JAX names another platform for gpu
        platform = value
    if value is None:
        variable = "JAX_PLATFORMS is not set"
    else:
        variable = f"JAX_PLATFORMS={value}"
    install = _REMEDIES.get(platform, "check its driver and its plug-in of JAX")
    return in_one_line(
        f"{variable}: the device {platform} does not start ({_short(reason)}); "
        f"{install}, or set JAX_PLATFORMS=cpu"
    )


def _is_of_backends(error: BaseException) -> bool:
    """Returns True if JAX raised an error when it looked for devices."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return False
    return Path(traceback.tb_frame.f_code.co_filename).name == "xla_bridge.py"


def _short(text: str) -> str:
    """Returns the beginning of a text."""
    return text if len(text) <= 200 else f"{text[:200]}..."


def _invalid(name: str, value: str, remedy: str) -> InputError:
    return InputError(
        f"the environment variable {name}={_short(value)} is invalid; {remedy}, or unset it"
    )


def _is_number_of_devices(value: str) -> bool:
    try:
        number = int(value)
    except ValueError:
        return False
    # -1 is JAX's default
    return number == -1 or 1 <= number <= _MOST_CPU_DEVICES


def _has_plugins() -> bool:
    """Returns True if plug-ins of JAX are installed, whose platforms have any name."""
    has_entry_points = bool(
        importlib.metadata.entry_points(group="jax_plugins")
    )
    return has_entry_points or find_spec("jax_plugins") is not None


def _check_in_child(
    environment: Mapping[str, str], variables: Mapping[str, str]
) -> None:
    """Raises InputError if JAX or XLA does not accept the value of a variable.

    Args:
        environment: environment variables of this process.
        variables: variables to check.
    """
    marker = _marker(environment, variables)
    if marker is not None and marker.exists():
        return
    code = []
    if "XLA_FLAGS" in variables:
        code.append(_PARSE_FLAGS)
    if variables.keys() - {"XLA_FLAGS"}:
        code.append(_READ_VARIABLES)
    # -P: no modules of the working directory.
    command = [sys.executable, "-P", "-c", "; ".join(code)]
    try:
        child = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return  # JAX and XLA themselves will answer
    if child.returncode == 0:
        if marker is not None:
            with contextlib.suppress(OSError):
                marker.touch()
        return
    output = child.stderr.decode(errors="replace")
    match = _VARIABLE_ERROR.search(output)
    if match is not None:
        name = (match[1] or match[2]).upper()
        remedy = "JAX does not accept it; correct the value"
        raise _invalid(name, environment.get(name, ""), remedy)
    match = _FLAG_ERROR.search(output)
    if match is not None:
        remedy = f"XLA reports: {_short(match[0].strip())}; correct the flag"
        raise _invalid("XLA_FLAGS", environment.get("XLA_FLAGS", ""), remedy)


def _marker(
    environment: Mapping[str, str], variables: Mapping[str, str]
) -> Path | None:
    """Returns the path of a file that exists if the variables are valid; None without a cache."""
    directory = environment.get("JAX_COMPILATION_CACHE_DIR", "")
    flags = variables.get("XLA_FLAGS", "-").lstrip()
    if not flags.startswith("-") or not os.path.isdir(directory):
        return None  # flags in a file, which may change
    try:
        version = importlib.metadata.version("jaxlib")
    except importlib.metadata.PackageNotFoundError:
        return None
    content = f"{version} {sorted(variables.items())}".encode(
        errors="surrogateescape"
    )
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    return Path(directory, f"variables-{digest}")
