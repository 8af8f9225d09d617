"""What models add to the loss of any objective."""

from typing import Any

from longsum_jax.layers.attention.patterns import span_penalty
from longsum_jax.training.step import LossFn, LossOutput, SegmentedLoss


def with_span_penalty(loss_fn: LossFn | SegmentedLoss, config: Any) -> LossFn | SegmentedLoss:
    """``loss_fn`` and the penalty on adaptive spans, if the model ``config`` has one.

    The mean loss grows by ``span_penalty`` times the mean span. The metric "span_penalty" is, like
    all metrics, a sum: over "weight" it is what the loss holds of it.
    """
    if not config.span_penalty:
        return loss_fn
    if isinstance(loss_fn, SegmentedLoss):
        return loss_fn._replace(loss_fn=with_span_penalty(loss_fn.loss_fn, config))

    def penalised(params: Any, *args: Any) -> LossOutput:
        out = LossOutput(*loss_fn(params, *args))
        penalty = span_penalty(config, params) * out.weight
        return out._replace(
            loss_sum=out.loss_sum + penalty, metrics=out.metrics | {"span_penalty": penalty}
        )

    return penalised
