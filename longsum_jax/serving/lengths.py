"""The few lengths for which the server compiles programs.

    length of an input     200    900   1,300   5,000   16,000   tokens
    length that is read    256  1,024   1,536   6,144   16,384
    length of the row      1,024        4,096   16,384

An input is padded to a power of two, or to three quarters of one, and encoded.
It is then decoded in a row of one of fewer lengths, so that inputs of different
lengths share a batch. Both depend only on the input, so that its summary does
not depend on others.
"""

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
    power = max(1 << (length - 1).bit_length(), _SHORTEST_READ)
    between = 3 * power // 4
    if between > _SHORTEST_READ and length <= between:
        return _limited(config, between)
    return _limited(config, power)


def row_length(config: Any, length: int) -> int:
    """Returns the length of the rows in which an input of ``length`` tokens is decoded."""
    row = _SHORTEST_ROW
    while row < length:
        row *= 4
    return _limited(config, row)


def read_lengths(config: Any, max_tokens: int) -> list[int]:
    """Returns all values of ``read_length`` up to ``max_tokens`` tokens, longest first."""
    lengths = [read_length(config, max_tokens)]
    power = _SHORTEST_READ
    while power < max_tokens:
        lengths += [power, 3 * power // 2]
        power *= 2
    return sorted(
        {length for length in lengths if length <= lengths[0]}, reverse=True
    )


def _limited(config: Any, length: int) -> int:
    """Returns a length, at most the longest that the model reads."""
    limit = max_input_length(config)
    return length if limit is None else min(length, limit)
