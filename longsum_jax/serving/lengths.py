"""The few lengths for which the server compiles programs.

    length of an input     200    900   1,500   5,000   16,000   tokens
    length that is read    256  1,024   2,048   8,192   16,384
    length of the row      1,024        4,096   16,384

An input is padded to a power of two and encoded. It is then decoded in a row
of one of fewer lengths, so that inputs of different lengths share a batch. Both
depend only on the input, so that its summary does not depend on others.
"""

import itertools
from typing import Any

from longsum_jax.inference.padding import input_length
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.models.registry import max_input_length

_SHORTEST_READ = 2**8
_SHORTEST_ROW = 2**10


def read_length(config: Any, length: int) -> int:
    """Returns the length to which an input of ``length`` tokens is padded.

    In BigBird's attention the last block of the input is global, so that more
    padding would change the summary: its inputs have many lengths.
    """
    if get_encoder_attention(config).pads_to:
        return input_length(config, length)
    power = 1 << (length - 1).bit_length()
    return _limited(config, max(power, _SHORTEST_READ))


def row_length(config: Any, length: int) -> int:
    """Returns the length of the rows in which an input of ``length`` tokens is decoded."""
    row = _SHORTEST_ROW
    while row < length:
        row *= 4
    return _limited(config, row)


def read_lengths(config: Any, max_tokens: int) -> list[int]:
    """Returns all values of ``read_length`` up to ``max_tokens`` tokens, longest first."""
    longest = read_length(config, max_tokens)
    powers = (_SHORTEST_READ << i for i in itertools.count())
    shorter = itertools.takewhile(lambda length: length < longest, powers)
    return [longest, *reversed(list(shorter))]


def _limited(config: Any, length: int) -> int:
    """Returns a length, at most the longest that the model reads."""
    limit = max_input_length(config)
    return length if limit is None else min(length, limit)
