"""Changes to a model without training: longer inputs, LSG attention, Hepos, and
encoder-decoders made from two encoders, which have to be fine-tuned.

The public names are listed in ``__init__.pyi`` and imported when they are first
used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
