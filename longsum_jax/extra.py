"""Imports packages of the extras when a document needs one."""

import importlib
from types import ModuleType

from longsum_jax.errors import InputError


def import_extra(
    module: str, name: str, what: str, extra: str = "files"
) -> ModuleType:
    """Returns a module of an extra.

    Args:
        module: name of the module.
        name: name of the file that needs it.
        what: file type that the module reads, for the error.
        extra: name of the extra.

    Raises:
        InputError: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise missing_extra(name, what, extra) from None


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
