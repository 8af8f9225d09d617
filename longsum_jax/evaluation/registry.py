"""The metrics of summaries by name; a new one is a file in this directory and a line here."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.evaluation.answers import Answers
from longsum_jax.evaluation.apes import Apes
from longsum_jax.evaluation.bartscore import BartScore
from longsum_jax.evaluation.bertscore import BertScore
from longsum_jax.evaluation.blanc import Blanc
from longsum_jax.evaluation.choice import Choice
from longsum_jax.evaluation.discoscore import DiscoScore
from longsum_jax.evaluation.entities import EntityPrecision
from longsum_jax.evaluation.entity_graph import EntityGraph
from longsum_jax.evaluation.extractiveness import Extractiveness
from longsum_jax.evaluation.factcc import FactCC
from longsum_jax.evaluation.length import Length
from longsum_jax.evaluation.longdocfactscore import LongDocFactScore
from longsum_jax.evaluation.meteor import Meteor
from longsum_jax.evaluation.metric import Metric
from longsum_jax.evaluation.novelty import Novelty
from longsum_jax.evaluation.ordering import Ordering
from longsum_jax.evaluation.percentage import Percentage
from longsum_jax.evaluation.repetition import Repetition
from longsum_jax.evaluation.rouge import Rouge
from longsum_jax.evaluation.salience import Salience
from longsum_jax.evaluation.summac import SummaC
from longsum_jax.evaluation.support import Support
from longsum_jax.schema import from_dict

METRICS: dict[str, type[Metric]] = {
    "rouge": Rouge,
    "meteor": Meteor,
    "novelty": Novelty,
    "repetition": Repetition,
    "extractiveness": Extractiveness,
    "length": Length,
    "salience": Salience,
    "support": Support,
    "entities": EntityPrecision,
    "entity_graph": EntityGraph,
    "answers": Answers,
    "choice": Choice,
    "percentage": Percentage,
    "ordering": Ordering,
    "bertscore": BertScore,
    "bartscore": BartScore,
    "longdocfactscore": LongDocFactScore,
    "discoscore": DiscoScore,
    "factcc": FactCC,
    "summac": SummaC,
    "blanc": Blanc,
    "apes": Apes,
}

DEFAULT = ("rouge",)


def make_metrics(
    names: Sequence[str] = DEFAULT,
    options: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, Metric]:
    """Returns metrics by name.

    Args:
        names: of ``METRICS``, at least one.
        options: name of a metric -> its options by name.

    Raises:
        InputError: no name, an unknown one or one given twice; unknown options, or a value that
            does not fit.
    """
    if not names:
        raise InputError(f"metrics: give at least one; known: {', '.join(sorted(METRICS))}")
    for name in [*names, *options]:
        if name not in METRICS:
            raise InputError(f'unknown metric "{name}"; {did_you_mean(name, METRICS)}')
    for name in options:
        if name not in names:
            raise InputError(f'options of the metric "{name}", which is not asked for; add it')
    if len(set(names)) < len(names):
        raise InputError(f"metrics={','.join(names)} names one twice; give each once")
    metrics = {}
    for name in names:
        metric = METRICS[name]
        metrics[name] = metric(from_dict(metric.Options, options.get(name, {}), f"metrics.{name}"))
    return metrics
