"""Registry of strategies; to add one, write a generator as in ``strategies``, and a line here."""

from collections.abc import Callable
from typing import Any

from longsum_jax.lazy_classes import LazyClasses

_PACKAGE = "longsum_jax.summarization"

# Functions from a document (``strategies.StrategyInput``) to a generator of
# rounds, which returns a draft.
STRATEGIES: LazyClasses[Callable[[Any], Any]] = LazyClasses(
    {
        "direct": f"{_PACKAGE}.strategies:direct",
        "extract": f"{_PACKAGE}.extract_strategy:extract",
        "segments": f"{_PACKAGE}.strategies:segments",
        "hierarchical": f"{_PACKAGE}.strategies:hierarchical",
        "refine": f"{_PACKAGE}.strategies:refine",
        "memory": f"{_PACKAGE}.segments:memory",
    }
)
