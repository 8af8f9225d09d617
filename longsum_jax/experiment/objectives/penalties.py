"""Penalties of models that are added to the loss of any objective."""

from typing import Any

from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.training.loss import LossFn, LossOutput, SegmentedLoss
from longsum_jax.typing import Array, Params


def with_span_penalty(
    loss_fn: LossFn | SegmentedLoss, config: Any
) -> LossFn | SegmentedLoss:
    """Returns ``loss_fn`` plus the penalty on adaptive spans, if ``config`` enables it.

    The mean loss grows by ``span_penalty`` times the mean span. The metric
    "span_penalty" is, like all metrics, a sum: divided by "weight" it is the
    penalty's share of the loss.
    """
    if not config.attention.flat().get("span_penalty"):
        return loss_fn
    attention = get_encoder_attention(config.encoder_attention)

    def add_penalty(params: Params, out: LossOutput) -> LossOutput:
        out = LossOutput(*out)
        penalty = attention.penalty(config.attention, params) * out.weight
        metrics = out.metrics | {"span_penalty": penalty}
        return out._replace(loss_sum=out.loss_sum + penalty, metrics=metrics)

    if isinstance(loss_fn, SegmentedLoss):
        segment_loss = loss_fn.loss_fn

        def penalized_segment(
            params: Params, segment: dict[str, Array], rng: Array, memory: Any
        ) -> tuple[LossOutput, Any]:
            out, memory = segment_loss(params, segment, rng, memory)
            return add_penalty(params, out), memory

        return loss_fn._replace(loss_fn=penalized_segment)

    def penalized(
        params: Params, batch: dict[str, Array], rng: Array
    ) -> LossOutput:
        return add_penalty(params, loss_fn(params, batch, rng))

    return penalized
