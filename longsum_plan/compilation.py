"""Compiles programs, or reads what a compiler returned before for the same program.

JAX can write programs for described devices to its compilation cache, but not
read them back. A plan only needs their text and sizes, which are kept here in
the same directory, ``JAX_COMPILATION_CACHE_DIR``.
"""

import contextlib
import gzip
import hashlib
import importlib.metadata
import json
import os
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.stages import Lowered

from longsum_plan.devices import Target

# environment variables that change compiled programs
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")


class Compilation(NamedTuple):
    """The properties of a compiled program that a plan needs.

    Attributes:
        text: text of the compiled program.
        memory: bytes on one device of "arguments", of "results" that are not
            written over arguments, of "temporary" values and of "code".
        is_used: True for each argument that the program uses, in the order of
            the leaves.
        seconds: compilation time on the machine that compiled it.
    """

    text: str
    memory: Mapping[str, int]
    is_used: Sequence[bool]
    seconds: float


def compile_program(lowered: Lowered, target: Target) -> Compilation:
    """Compiles a program for a target, or reads it from the compilation cache.

    The key of an entry is a hash of the program with the names of its modules,
    its arguments, the device, the versions of JAX, jaxlib and the compiler, and
    compiler options and flags. Entries that cannot be read are written again.

    Raises:
        jax.errors.JaxRuntimeError: XLA cannot compile the program.
    """
    entry = _entry(lowered, target)
    if entry is not None:
        try:
            return Compilation(
                **json.loads(gzip.decompress(entry.read_bytes()))
            )
        except (OSError, EOFError, ValueError, TypeError, zlib.error):
            pass  # absent or damaged
    result = _compile(lowered)
    if entry is not None:
        written = entry.with_suffix(f".{os.getpid()}")
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            written.write_bytes(
                gzip.compress(json.dumps(result._asdict()).encode(), 3)
            )
            written.replace(entry)
        except OSError:  # the next plan compiles again
            with contextlib.suppress(OSError):
                written.unlink()
    return result


def _compile(lowered: Lowered) -> Compilation:
    began = time.perf_counter()
    compiled = lowered.compile()
    seconds = time.perf_counter() - began
    analysis = compiled.memory_analysis()
    assert analysis is not None  # because the program was compiled here
    memory = {
        "arguments": analysis.argument_size_in_bytes,
        # Donated arguments share their memory with outputs and are counted
        # once.
        "results": analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
        "temporary": analysis.temp_size_in_bytes,
        "code": analysis.generated_code_size_in_bytes,
    }
    shardings, _ = compiled.input_shardings
    used = jax.tree.leaves(shardings, is_leaf=lambda x: x is None)
    return Compilation(
        compiled.as_text() or "",
        memory,
        [sharding is not None for sharding in used],
        seconds,
    )


def _entry(lowered: Lowered, target: Target) -> Path | None:
    """Returns the file of a program in the cache; None without a local cache, and for CPUs.

    Programs for CPUs depend on the machine, and compile in seconds.
    """
    directory = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if not directory or "://" in directory or target.platform == "cpu":
        return None
    device = target.devices[0]
    parts = [
        lowered.as_text(debug_info=True),
        # The text lacks arguments that the program does not use, and options of
        # the compiler.
        str(lowered.in_avals),
        *map(repr, _compiler_options(lowered)),
        device.device_kind,
        target.name,
        str(len(target.devices)),
        jax.__version__,
        importlib.metadata.version("jaxlib"),
        device.client.platform_version,
        *(os.environ.get(name, "") for name in _FLAGS),
    ]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return Path(directory) / f"longsum-plan-{key}"


def _compiler_options(lowered: Lowered) -> Sequence[tuple[str, Any]]:
    """Returns the ``compiler_options`` of ``jax.jit``; JAX has no public name for them."""
    lowering = getattr(lowered, "_lowering", None)
    return getattr(lowering, "_compiler_options_kvs", ())
