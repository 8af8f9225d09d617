"""A decoder as a search sees it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int

from longsum_jax.typing import AnyArray

Cache = Any  # any pytree of arrays
Tokens = Int[Array, "batch beams"]


class Decoder(NamedTuple):
    """Functions of a model over a cache that holds the position of every row.

    Attributes:
        step: (ids [batch, beams] int32, cache) -> (logits [batch, beams, vocab], cache); reads one
            token for every beam.
        reorder: (cache, beams [batch, beams] int32) -> cache; row b, beam r continues from old beam
            ``beams[b, r]``. Only self-attention entries move: encoder-side keys and values are
            stored once per batch row.
        keep: (cache, counts [batch] int32) -> cache; of the tokens of a row that the last step has
            read one after the other, the first ``counts`` stay. For searches with drafts, whose
            ``step`` reads a newest token and a draft behind it in place of beams.
        documents: ids of the documents, -1 where there is no token. Drafts are looked up in them
            too, and their n-grams may be forbidden.
        earlier: ids of the summaries of earlier segments, -1 between and behind them, whose n-grams
            may be forbidden; None where they may be repeated.
    """

    step: Callable[[Tokens, Cache], tuple[Float[Array, "batch beams vocab"], Cache]]
    reorder: Callable[[Cache, Tokens], Cache]
    keep: Callable[[Cache, Int[Array, " batch"]], Cache] | None = None
    documents: Int[AnyArray, "batch length"] | None = None
    earlier: Int[AnyArray, "batch said"] | None = None
