"""Registry of summary metrics; to add one, add a file to this directory and a line here."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.lazy_classes import LazyClasses
from longsum_jax.schema import from_dict

if TYPE_CHECKING:
    from longsum_jax.evaluation.metric import Metric

_PACKAGE = "longsum_jax.evaluation"
_EXPERIMENTAL = "longsum_jax.experimental.metrics"

# Metric name -> class. The experimental ones may change in any release.
METRICS: LazyClasses["type[Metric]"] = LazyClasses(
    {
        "rouge": f"{_PACKAGE}.rouge:Rouge",
        "meteor": f"{_PACKAGE}.meteor:Meteor",
        "novelty": f"{_PACKAGE}.words:Novelty",
        "repetition": f"{_PACKAGE}.words:Repetition",
        "extractiveness": f"{_PACKAGE}.words:ExtractivenessMetric",
        "length": f"{_PACKAGE}.words:LengthMetric",
        "salience": f"{_PACKAGE}.words:Salience",
        "support": f"{_PACKAGE}.words:SupportMetric",
        "entities": f"{_EXPERIMENTAL}.entities:EntityPrecision",
        "entity_graph": f"{_EXPERIMENTAL}.entity_graph:EntityGraph",
        "answers": f"{_PACKAGE}.answers:Answers",
        "choice": f"{_EXPERIMENTAL}.choice:Choice",
        "percentage": f"{_PACKAGE}.answers:Percentage",
        "ordering": f"{_PACKAGE}.answers:Ordering",
        "bertscore": f"{_PACKAGE}.bertscore:BertScore",
        "bartscore": f"{_EXPERIMENTAL}.bartscore:BartScore",
        "longdocfactscore": f"{_EXPERIMENTAL}.longdocfactscore:LongDocFactScore",
        "discoscore": f"{_EXPERIMENTAL}.discoscore:DiscoScore",
        "factcc": f"{_EXPERIMENTAL}.factcc:FactCC",
        "summac": f"{_PACKAGE}.summac:SummaC",
        "blanc": f"{_EXPERIMENTAL}.blanc:Blanc",
        "apes": f"{_EXPERIMENTAL}.apes:Apes",
    }
)

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


def notes_of(
    metrics: Mapping[str, "Metric"], references: Sequence[str]
) -> list[str]:
    """Returns the notes of all metrics, and one on scripts whose words they leave out.

    Args:
        metrics: metrics by name.
        references: first reference of each example.
    """
    from longsum_jax.text.ngrams import is_latin

    notes = []
    for metric in metrics.values():
        notes += metric.notes(references)
    num_others = sum(not is_latin(text) for text in references)
    # ROUGE has its own note, as its tokenizer may depend on the reference.
    names = [
        name
        for name, metric in metrics.items()
        if name != "rouge"
        and getattr(metric.options, "tokenizer", None) == "default"
    ]
    if num_others and names:
        remedy = " ".join(
            f"--metric_option={name}.tokenizer=unicode" for name in names
        )
        notes.append(
            f"{num_others} of {len(references)} references are not in Latin script, whose words "
            f"{', '.join(names)} left out: their scores mean nothing; give {remedy}"
        )
    return notes


def columns_of(metrics: Mapping[str, "Metric"]) -> tuple[str, ...]:
    """Returns the column names of all metrics, in the order of tables."""
    return tuple(name for metric in metrics.values() for name in metric.columns)
