"""Registry of summary metrics; to add one, add a file to this directory and a line here."""

import importlib
from collections import UserDict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.schema import from_dict

if TYPE_CHECKING:
    from longsum_jax.evaluation.metric import Metric

# name -> module in this directory and class
_CLASSES = {
    "rouge": "rouge.Rouge",
    "meteor": "meteor.Meteor",
    "novelty": "novelty.Novelty",
    "repetition": "repetition.Repetition",
    "extractiveness": "extractiveness.ExtractivenessMetric",
    "length": "length.LengthMetric",
    "salience": "salience.Salience",
    "support": "support.SupportMetric",
    "entities": "entities.EntityPrecision",
    "entity_graph": "entity_graph.EntityGraph",
    "answers": "answers.Answers",
    "choice": "choice.Choice",
    "percentage": "percentage.Percentage",
    "ordering": "ordering.Ordering",
    "bertscore": "bertscore.BertScore",
    "bartscore": "bartscore.BartScore",
    "longdocfactscore": "longdocfactscore.LongDocFactScore",
    "discoscore": "discoscore.DiscoScore",
    "factcc": "factcc.FactCC",
    "summac": "summac.SummaC",
    "blanc": "blanc.Blanc",
    "apes": "apes.Apes",
}


class _Metrics(UserDict[str, Any]):
    """Metric classes by name, imported on access, since commands list the names in their help."""

    def __getitem__(self, name: str) -> "type[Metric]":
        entry = self.data[name]
        if isinstance(entry, str):
            name_of_module, _, class_name = entry.partition(".")
            module = importlib.import_module(
                f"longsum_jax.evaluation.{name_of_module}"
            )
            entry = self.data[name] = getattr(module, class_name)
        return entry


METRICS = _Metrics(_CLASSES)

DEFAULT = ("rouge",)


def make_metrics(
    names: Sequence[str] = DEFAULT,
    options: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, "Metric"]:
    """Returns metrics by name.

    Args:
        names: names in ``METRICS``, at least one.
        options: metric name -> its options by name.

    Raises:
        InputError: no name, an unknown or duplicate one; unknown options, or an
            invalid value.
    """
    if not names:
        raise InputError(
            f"metrics: give at least one; known: {', '.join(sorted(METRICS))}"
        )
    for name in [*names, *options]:
        if name not in METRICS:
            raise InputError(
                f'unknown metric "{name}"; {did_you_mean(name, METRICS)}'
            )
    for name in options:
        if name not in names:
            raise InputError(
                f'options of the metric "{name}", which is not selected; add it'
            )
    if len(set(names)) < len(names):
        raise InputError(
            f"metrics={','.join(names)} names a metric twice; give each once"
        )
    metrics = {}
    for name in names:
        metric = METRICS[name]
        metrics[name] = metric(
            from_dict(metric.Options, options.get(name, {}), f"metrics.{name}")
        )
    return metrics
