"""Pure functions of arrays: attentions, state-space models, losses; no Flax, no configs.

The public names are listed in ``__init__.pyi`` and imported when they are first
used.
"""

import lazy_loader

from longsum_jax.lazy_classes import with_experimental

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__getattr__ = with_experimental(
    __getattr__,
    {
        "efficient_attention": "ops.linear",
        "linear_attention": "ops.linear",
        "compress_length": "ops.linformer",
        "lsh_attention": "ops.lsh",
        "KeyPattern": "ops.patterns",
        "pattern_attention": "ops.patterns",
        "performer_attention": "ops.performer",
        "sinkhorn_attention": "ops.sinkhorn",
    },
)
