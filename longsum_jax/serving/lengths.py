"""The few lengths for which the server compiles programs.

    length of an input     200    900   1,500   5,000   16,000   tokens
    length that is read    256  1,024   1,536   5,120   16,384
    length of the row      1,024        4,096   16,384

An input is padded to one of a few lengths and encoded: a power of two, or above
1,024 tokens, for which padding costs more time, one of four lengths from a
power of two to the next. It is then decoded in a row of one of fewer lengths,
so that inputs of different lengths share a batch. Rows also have room for one
of few numbers of tokens of a summary, which ends at its limit:

    limit of a summary      10     90    128    200      300   tokens
    room of the row        128           128    256      512

All of them depend only on the request, so that its summary does not depend on
others.
"""

from typing import Any

from longsum_jax.inference.padding import depends_on_padding, input_length
from longsum_jax.layers.layer_groups import parse_hybrid
from longsum_jax.models.registry import max_input_length

_SHORTEST_READ = 2**8
_SHORTEST_ROW = 2**10
# Lengths per power of two above the shortest row. On the documents of
# benchmarks/serving.py, padding adds 5 % to the tokens instead of 17 % with
# powers of two only. Up to 4,096 tokens there are 11 programs instead of 5,
# each of which compiles in some 2 seconds.
_LENGTHS_PER_POWER = 4


def read_length(config: Any, length: int) -> int:
    """Returns the length to which an input of ``length`` tokens is padded.

    If padding changes the summary, inputs have many lengths.
    """
    if depends_on_padding(config):
        return input_length(config, length)
    return _limited(config, _padded(config, length))


def row_length(config: Any, length: int) -> int:
    """Returns the length of the rows in which an input of ``length`` tokens is decoded."""
    row = _SHORTEST_ROW
    while row < length:
        row *= 4
    return _limited(config, row)


def summary_room(config: Any, limit: int, default: int) -> int:
    """Returns the number of tokens for which a row has room.

    It is the model's default, so that no shorter limit needs a program of its
    own, doubled until the limit fits.

    Args:
        config: config of the model.
        limit: maximum number of tokens of a summary.
        default: the same without options of a request.
    """
    room = default
    while room < limit:
        room *= 2
    # at most the positions of the decoder, and never below the limit
    return max(min(room, config.max_target_length or room), limit)


def read_lengths(config: Any, max_tokens: int) -> list[int]:
    """Returns the values of ``read_length`` up to ``max_tokens`` tokens, longest first.

    Of BigBird's attention, only some of them.
    """
    longest = read_length(config, max_tokens)
    lengths = [longest]
    length = _SHORTEST_READ
    while length < longest:
        lengths.append(length)
        length = _padded(config, length + 1)
    return sorted(lengths, reverse=True)


def _padded(config: Any, length: int) -> int:
    power = max(1 << (length - 1).bit_length(), _SHORTEST_READ)
    attentions = [name for name, _ in parse_hybrid(config.encoder_attention)]
    # The kernels of state-space layers are stored for every length.
    if power <= _SHORTEST_ROW or "s4d" in attentions:
        return power
    step = power // 2 // _LENGTHS_PER_POWER
    return -(-length // step) * step


def _limited(config: Any, length: int) -> int:
    """Returns a length, at most the longest that the model reads."""
    limit = max_input_length(config)
    return length if limit is None else min(length, limit)
