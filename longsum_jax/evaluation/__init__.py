"""Metrics, baselines, and scoring of predictions.

The public names are listed in ``__init__.pyi`` and imported when they are first
used.
"""

import lazy_loader

from longsum_jax.lazy_classes import with_experimental

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__getattr__ = with_experimental(
    __getattr__,
    {
        "kendall": "judging.agreement",
        "krippendorff_alpha": "judging.agreement",
        "majority_vote": "judging.agreement",
        "pearson": "judging.agreement",
        "spearman": "judging.agreement",
        "aggregate_answers": "judging.judgements",
        "correlations": "judging.judgements",
        "PROTOCOLS": "judging.judging",
        "make_key": "judging.judging",
        "read_sheets": "judging.sheets",
        "write_sheets": "judging.sheets",
    },
)
