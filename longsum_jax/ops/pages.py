"""Cuts sources into overlapping pages and joins their states again. Pages without context are the
blocks of ``ops.attention.blocks``.

A page has a body, and context on either side. With pages of 8 tokens, 2 of them
context on either side, a source of 18 tokens (Bertsch et al. 2023, section
2.1):

    position    0 1 2 3 4 5 6 7 8 9 . . . . . . . 17
    page 0      0 1 2 3 4 5 6 7                           keeps the states of 0 to 5
    page 1              4 5 6 7 8 9 10 11                 6 to 9
    page 2                      8 9 10 11 12 13 14 15     10 to 13
    page 3                          10 11 12 ... 16 17    14 to 17

The first page also keeps the states before its body, the last page the states
after it. The last page is moved back, so that it is full.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped

from longsum_jax.typing import AnyArray


class Pages(NamedTuple):
    """The pages of every row of a batch.

    Attributes:
        positions: positions of the tokens of each page; positions beyond the
            end of the row are padding.
        index: offset of each token's state among the tokens of all pages of its
            row.
    """

    positions: Int[Array, "batch pages page_length"]
    index: Int[Array, "batch length"]  # type: ignore[assignment] # hides tuple.index

    def split(
        self, x: Shaped[AnyArray, "batch length"]
    ) -> Shaped[Array, "all_pages page_length"]:
        """Returns the pages of all rows; zeros (False) beyond the end of a row."""
        batch, length = x.shape
        positions = self.positions.reshape(batch, -1)
        inside = positions < length
        pages = jnp.take_along_axis(x, jnp.minimum(positions, length - 1), 1)
        pages = jnp.where(inside, pages, jnp.zeros((), pages.dtype))
        return pages.reshape(-1, self.positions.shape[2])

    def join(
        self, x: Shaped[AnyArray, "all_pages page_length features"]
    ) -> Shaped[Array, "batch length features"]:
        """Returns the state of every token, taken from the page that keeps it."""
        x = x.reshape(self.index.shape[0], -1, x.shape[-1])
        return jnp.take_along_axis(x, self.index[..., None], 1)


def make_pages(
    mask: Bool[AnyArray, "batch length"],
    page_length: int,
    context: int,
    *,
    full_last: bool,
) -> Pages:
    """Returns overlapping pages for sources that are longer than one page.

    Args:
        mask: True on real tokens, longer than ``page_length``.
        page_length: number of tokens of a page, context included.
        context: tokens on either side of a page's body, from 1 to a third of
            the page.
        full_last: True to move the last page of a row back so that it ends with
            the row's last token; otherwise it begins one body after the
            previous page.
    """
    length = mask.shape[1]
    body = page_length - 2 * context
    count = 1 - (page_length - length) // body
    # Position after the last real token, [batch, 1], and index of the page that
    # reaches it.
    ends = jnp.max(jnp.where(mask, jnp.arange(1, 1 + length), 0), 1)[:, None]
    last = jnp.maximum(-((page_length - ends) // body), 0)
    starts = jnp.broadcast_to(body * jnp.arange(count), (mask.shape[0], count))
    if full_last:
        # Pages that would reach beyond the end are moved back to it.
        starts = jnp.minimum(starts, jnp.maximum(ends - page_length, 0))
    tokens = jnp.arange(length)
    page = jnp.clip((tokens - context) // body, 0, last)
    # The page that keeps each token, and the token's offset inside that page.
    offset = tokens - jnp.take_along_axis(starts, page, 1)
    index = page * page_length + jnp.clip(offset, 0, page_length - 1)
    return Pages(starts[..., None] + jnp.arange(page_length), index)
