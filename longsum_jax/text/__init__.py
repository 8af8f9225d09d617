"""Documents, sentences, n-grams, gap sentences, segments: plain Python and numpy.

The public names are listed in ``__init__.pyi`` and imported when they are first
used.
"""

import lazy_loader

from longsum_jax.lazy_classes import with_experimental

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__getattr__ = with_experimental(
    __getattr__,
    {
        "Claim": "tasks.claims",
        "ClaimOptions": "tasks.claims",
        "claims_of": "tasks.claims",
        "ClozeOptions": "tasks.cloze",
        "ClozeQuestion": "tasks.cloze",
        "cloze_questions": "tasks.cloze",
        "question_context": "tasks.cloze",
    },
)
