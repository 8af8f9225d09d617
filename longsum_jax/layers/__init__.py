"""Flax modules that hold parameters and call ``ops``.

The public names are listed in ``__init__.pyi`` and imported when they are first
used.
"""

import lazy_loader

from longsum_jax.lazy_classes import with_experimental

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__getattr__ = with_experimental(
    __getattr__,
    {
        "LinformerCrossAttention": "attention.linformer",
        "NearestAttention": "attention.nearest",
        "EfficientAttention": "attention.linear",
        "LinearAttention": "attention.linear",
        "LinformerAttention": "attention.linformer",
        "LshAttention": "attention.lsh",
        "PatternAttention": "attention.patterns",
        "PerformerAttention": "attention.performer",
        "SinkhornAttention": "attention.sinkhorn",
    },
)
