"""The training loop, its step, optimizers, meshes and checkpoints, independent of models and data.

The public names are listed in ``__init__.pyi`` and imported when they are first
used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
