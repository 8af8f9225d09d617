"""The interface of a decoder for search."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int

from longsum_jax.typing import AnyArray

Cache = Any  # any pytree of arrays
Tokens = Int[Array, "batch beams"]


class CachedDecoder(NamedTuple):
    """Functions of a model over a cache, which includes the position of every row.

    Attributes:
        step: function (ids [batch, beams] int32, cache) -> (logits [batch,
            beams, vocab], cache) that reads one token for every beam.
        reorder: function (cache, beams [batch, beams] int32) -> cache; row b,
            beam r continues from old beam ``beams[b, r]``. Only self-attention
            entries move: encoder-side keys and values are stored once per batch
            row.
        keep: function (cache, counts [batch] int32) -> cache that keeps the
            first ``counts`` of the consecutive tokens that the last step has
            read in each row. For searches with drafts, whose ``step`` reads the
            newest token followed by a draft instead of beams.
        documents: ids of the documents, -1 for no token. Drafts are looked up
            in them, and their n-grams may be forbidden.
        earlier: ids of the summaries of earlier segments, -1 between and after
            them, whose n-grams may be forbidden; None if they may be repeated.
    """

    step: Callable[
        [Tokens, Cache], tuple[Float[Array, "batch beams vocab"], Cache]
    ]
    reorder: Callable[[Cache, Tokens], Cache]
    keep: Callable[[Cache, Int[Array, " batch"]], Cache] | None = None
    documents: Int[AnyArray, "batch length"] | None = None
    earlier: Int[AnyArray, "batch said"] | None = None


Decoder = CachedDecoder  # public name before version 0.3
