"""Long-document summarization in JAX and Flax.

    text = open("report.txt").read()
    # extractive: the most important sentences, without a model
    print(longsum_jax.summarize(text, length="150 words").text)
    # abstractive: a model writes new sentences
    print(longsum_jax.load("org/name").summarize(text)[0])

Subpackages are imported on first use: ``longsum_jax.ops``, ``.layers``,
``.models``, ``.conversion``, ``.tokenizers``, ``.text``, ``.ranking``,
``.data``, ``.readers``, ``.training``, ``.evaluation``.
"""

import importlib
from typing import TYPE_CHECKING, Any

from longsum_jax.errors import InputError

if TYPE_CHECKING:
    from longsum_jax import (
        conversion,
        data,
        evaluation,
        layers,
        models,
        ops,
        ranking,
        readers,
        text,
        tokenizers,
        training,
    )
    from longsum_jax.summarization.extracts import summarize
    from longsum_jax.summarization.loading import load
    from longsum_jax.summarization.model import Model
    from longsum_jax.summarization.pipeline import pipeline
    from longsum_jax.summarization.summary import Summary

__version__ = "0.2.0"
__all__ = [
    "InputError",
    "Model",
    "Summary",
    "__version__",
    "conversion",
    "data",
    "evaluation",
    "layers",
    "load",
    "models",
    "ops",
    "pipeline",
    "ranking",
    "readers",
    "summarize",
    "text",
    "tokenizers",
    "training",
]

# Public name -> module, for names that are not subpackages.
_HOMES = {
    "Model": "summarization.model",
    "Summary": "summarization.summary",
    "load": "summarization.loading",
    "pipeline": "summarization.pipeline",
    "summarize": "summarization.extracts",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that ``import longsum_jax`` and --help do not
    # wait for jax.
    if name in _HOMES:
        value = getattr(
            importlib.import_module(f"longsum_jax.{_HOMES[name]}"), name
        )
        globals()[name] = value
        return value
    if name in __all__:
        return importlib.import_module(f"longsum_jax.{name}")
    raise AttributeError(f'module "longsum_jax" has no attribute "{name}"')


def __dir__() -> list[str]:
    return sorted(__all__)
