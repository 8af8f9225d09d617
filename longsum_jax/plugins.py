"""Modules of other packages that add attentions, families, objectives, metrics or readers.

A plugin is a module that adds entries to registries when it is imported
(``docs/extend``). Commands import the plugins that the environment variable
LONGSUM_JAX_PLUGINS names, and the plugins that installed packages name by entry
points in the group "longsum_jax". Programs import them as usual.

Names in a config.json never import a module: a model from elsewhere cannot
choose the code that runs.
"""

import importlib
import os
from importlib.metadata import entry_points

from longsum_jax.errors import InputError

GROUP = "longsum_jax"
VARIABLE = "LONGSUM_JAX_PLUGINS"


def load_plugins() -> None:
    """Imports all plugins.

    Raises:
        InputError: a module is missing or its import fails.
    """
    for name in os.environ.get(VARIABLE, "").split(","):
        if name.strip():
            _import(name.strip(), f"{VARIABLE} names")
    for entry in entry_points(group=GROUP):
        _import(
            entry.module,
            f'the entry point "{entry.name}" in the group "{GROUP}" names',
        )


def _import(module: str, origin: str) -> None:
    """Imports a module.

    Args:
        module: name of the module.
        origin: beginning of error messages.
    """
    try:
        importlib.import_module(module)
    except InputError as error:
        raise InputError(f'{origin} the plugin "{module}": {error}') from error
    except Exception as error:
        raise InputError(
            f'{origin} the plugin "{module}", whose import fails ({type(error).__name__}: '
            f"{error}); install it, or add its folder to PYTHONPATH"
        ) from error
