"""Imports packages of the extras for files when a document needs one."""

import importlib
from types import ModuleType

from longsum_jax.errors import InputError


def import_extra(module: str, name: str, what: str) -> ModuleType:
    """Returns a module of the extra "files".

    Args:
        module: name of the module.
        name: name of the file that needs it.
        what: file type that the module reads, for the error.

    Raises:
        InputError: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise missing_extra(name, what, "files") from None


def missing_extra(name: str, what: str, extra: str) -> InputError:
    """Returns the error for an extra that is not installed.

    Args:
        name: name of the file that needs it.
        what: file type that the extra reads.
        extra: name of the extra.
    """
    return InputError(
        f"{name}: to read {what}, pip install 'longsum_jax[{extra}]'"
    )
