"""Least bytes of each part of a training step, counted by hand, for ``plans.py --parts``.

Each part reads every input once and writes every output once. In the backward pass, layers are
computed again from their inputs: the values that gradients of products need are written once and
read once. Norms, activations, gates, masks, scores and logits stay on the chip. States, weights
that a device has gathered, and their gradients take 2 bytes (bfloat16); other parameters, and those
of the optimizer, 4 bytes.

    N, T     source and target positions of one device, all rows together
    n, t     source and target positions of one row
    d, f, a  size of states, of the feed-forward, of all heads together
    i        inner maps of a feed-forward: 2 if it is gated, otherwise 1
    m        complex modes of a channel
    V, p     rows of the vocabulary, of tables of positions
    W, P     weights that a device gathers, parameters that it updates

An encoder's attention has A maps of d x a, of which B make arrays of all positions: queries, keys,
values, means. A query reads K keys; at the ends of a text they are fewer, which is not counted.

                        A  B  K
    full                4  4  n
    local               4  4  2 r + 1             radius r
    transient_global    4  4  2 r + 1 + n / g     n / g global keys, sums of blocks of g tokens
    longformer          7  4  w + 2               window w, and the first token; its three maps of
                                                  its own multiply one state a row
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

HALF, WHOLE = 2, 4  # bytes of bfloat16 and float32
REST = "embeddings, weights, optimizer"
ADAM_ARRAYS = 7  # reads a parameter, both moments and the gradient; writes all but the last


class Attention(NamedTuple):
    """An encoder's attention: A, B and K of the table above, and the number of global keys."""

    maps: int
    arrays: int
    keys: float
    global_keys: float = 0.0


class Sizes(NamedTuple):
    """Sizes of a training step of an encoder-decoder, per device.

    ``attention`` is None in a state-space encoder, and ``modes`` 0 in all others.
    """

    rows: float
    source: int
    target: int
    d_model: int
    d_ff: int
    inner_maps: int
    heads: int
    attention: Attention | None
    modes: int
    encoder_layers: int
    decoder_layers: int
    vocabulary: int
    positions: int
    is_tied: bool
    updated: float
    is_sharded: bool

    @property
    def source_states(self) -> float:
        """Elements of the source's states, N d."""
        return self.rows * self.source * self.d_model

    @property
    def weights(self) -> int:
        """Weights of all linear maps and tables: every parameter except the dynamics."""
        maps = 3 * self.d_model
        if self.attention is not None:
            maps = self.attention.maps * self.heads
        feed_forward = (self.inner_maps + 1) * self.d_ff
        encoder = self.encoder_layers * (maps + feed_forward)
        decoder = self.decoder_layers * (8 * self.heads + feed_forward)
        tables = self.vocabulary * (2 - self.is_tied) + self.positions
        return self.d_model * (encoder + decoder + tables)

    @property
    def target_states(self) -> float:
        """Elements of the target's states, T d."""
        return self.rows * self.target * self.d_model


class Least(NamedTuple):
    """Least bytes of both passes, and operations of the forward pass, of which a backward pass
    needs twice as many."""

    forward: float
    backward: float = 0.0
    operations: float = 0.0


def state_space(s: Sizes) -> Least:
    """Layers with three maps of d x d and 8 m + 2 float32 parameters a channel.

    forward    2 (2 N d + 3 d^2) + 4 d (8 m + 2): input, output, parameters
    again      2 (4 N d + 3 d^2) + 4 d (8 m + 2): input, keys, convolved keys and gate; parameters
    gradient   2 (6 N d + 6 d^2) + 8 d (8 m + 2): input, those three, gradients of output and input;
               parameters and their gradients
    operations 6 N d^2; the convolution does not count
    """
    states, maps = s.source_states, 3 * s.d_model**2
    dynamics = WHOLE * s.d_model * (8 * s.modes + 2)
    return _layers(
        s.encoder_layers,
        forward=HALF * (2 * states + maps) + dynamics,
        again=HALF * (4 * states + maps) + dynamics,
        gradient=HALF * (6 * states + 2 * maps) + 2 * dynamics,
        operations=2 * states * 3 * s.d_model,
    )


def encoder_attention(s: Sizes) -> Least:
    """Layers with attention, see the table above; g are the global keys of a row.

    forward    2 (2 N d + A d a): input, output, weights
    again      2 (N d + B N a + A d a): input, queries, keys, values and their means, weights
    gradient   2 (3 N d + B N a + 2 A d a): input, those, gradients of output and input; weights and
               their gradients
    operations 2 B N d a + 4 N K a, and 4 g d a a row for its global keys and values
    """
    assert s.attention is not None
    attention, states = s.attention, s.source_states
    maps = attention.maps * s.d_model * s.heads
    wide = states / s.d_model * s.heads
    arrays = attention.arrays * wide
    pooled = 4 * s.rows * attention.global_keys * s.d_model * s.heads
    return _layers(
        s.encoder_layers,
        forward=HALF * (2 * states + maps),
        again=HALF * (states + arrays + maps),
        gradient=HALF * (3 * states + arrays + 2 * maps),
        operations=2 * s.d_model * arrays + 4 * wide * attention.keys + pooled,
    )


def encoder_feed_forward(s: Sizes) -> Least:
    """See ``_feed_forward``, over N positions."""
    return _feed_forward(s, s.source_states, s.encoder_layers)


def decoder_feed_forward(s: Sizes) -> Least:
    """See ``_feed_forward``, over T positions."""
    return _feed_forward(s, s.target_states, s.decoder_layers)


def _feed_forward(s: Sizes, states: float, layers: int) -> Least:
    """Feed-forwards of i + 1 maps of d x f.

    forward    2 (2 N d + (i + 1) d f): input, output, weights
    again      2 (N d + i N f + (i + 1) d f): input, results of the inner maps, weights
    gradient   2 (3 N d + i N f + 2 (i + 1) d f): input, those, gradients of output and input;
               weights and their gradients
    operations 2 (i + 1) N d f
    """
    hidden = s.inner_maps * states / s.d_model * s.d_ff
    maps = (s.inner_maps + 1) * s.d_model * s.d_ff
    return _layers(
        layers,
        forward=HALF * (2 * states + maps),
        again=HALF * (states + hidden + maps),
        gradient=HALF * (3 * states + hidden + 2 * maps),
        operations=2 * states / s.d_model * maps,
    )


def self_attention(s: Sizes) -> Least:
    """The decoder's attention to itself, with four maps of d x a.

    forward    2 (2 T d + 4 d a): input, output, weights
    again      2 (T d + 4 T a + 4 d a): input, queries, keys, values and their means, weights
    gradient   2 (3 T d + 4 T a + 8 d a): input, those four, gradients of output and input; weights
               and their gradients
    operations 8 T d a + 4 T t a
    """
    states, maps = s.target_states, 4 * s.d_model * s.heads
    wide = states / s.d_model * s.heads
    return _layers(
        s.decoder_layers,
        forward=HALF * (2 * states + maps),
        again=HALF * (states + 4 * wide + maps),
        gradient=HALF * (3 * states + 4 * wide + 2 * maps),
        operations=2 * states * 4 * s.heads + 4 * wide * s.target,
    )


def cross_attention(s: Sizes) -> Least:
    """The decoder's attention to the source, whose states have one gradient over all layers.

    forward    2 (2 T d + N d + 4 d a): input, output, source, weights
    again      2 (T d + N d + 2 T a + 2 N a + 4 d a): input, source, queries, means, keys, values
    gradient   2 (3 T d + 3 N d + 2 T a + 2 N a + 8 d a): input, source, those four, gradients of
               output, input and (read and written) source; weights and their gradients
    operations 4 (T + N) d a + 4 T n a
    """
    states, source, maps = s.target_states, s.source_states, 4 * s.d_model * s.heads
    wide = 2 * (states + source) / s.d_model * s.heads
    scores = 4 * states / s.d_model * s.source * s.heads
    return _layers(
        s.decoder_layers,
        forward=HALF * (2 * states + source + maps),
        again=HALF * (states + source + wide + maps),
        gradient=HALF * (3 * (states + source) + wide + 2 * maps),
        operations=4 * (states + source) * s.heads + scores,
    )


def logits(s: Sizes) -> Least:
    """The scores of all targets.

    forward    2 (T d + V d): states, table
    gradient   2 (2 T d + 2 V d): states, table, their gradients; logits are computed again
    operations 2 T d V
    """
    table = s.vocabulary * s.d_model
    forward = HALF * (s.target_states + table)
    return Least(forward, 2 * forward, 2 * s.target_states * s.vocabulary)


def rest(s: Sizes) -> Least:
    """Embeddings, the gathering of sharded weights and the optimizer.

    forward    2 (2 N d + 2 T d + W) + 4 p d: rows of the table, read and written; gathered weights;
               positions
    backward   2 (2 N d + 2 T d + V d + 2 W) + 4 p d + 28 P: gradients of rows, read, and added to a
               table; weights gathered again, and gradients to send; gradients of positions; AdamW
    """
    states = 2 * (s.source_states + s.target_states)
    gathered = s.weights * s.is_sharded
    table = s.vocabulary * s.d_model
    positions = WHOLE * s.positions * s.d_model
    adam = WHOLE * ADAM_ARRAYS * s.updated
    return Least(
        HALF * (states + gathered) + positions,
        HALF * (states + table + 2 * gathered) + positions + adam,
    )


def _layers(
    count: int, *, forward: float, again: float, gradient: float, operations: float
) -> Least:
    return Least(*(count * x for x in (forward, again + gradient, operations)))


def source_rows(s: Sizes) -> Least:
    """The embeddings of the source.

    forward    4 N d + 4 n d: rows of the table, read and written; positions
    """
    positions = WHOLE * min(s.positions, s.source) * s.d_model
    return Least(2 * HALF * s.source_states + positions)


STATE_SPACE, ATTENTION = "state-space layers", "encoder self-attention"
# Part to its count, and to the prefixes of its modules in ``longsum_plan.program_parts``.
Parts = Mapping[str, tuple[Callable[[Sizes], Least], tuple[str, ...]]]


def train_parts(s: Sizes) -> Parts:
    """Returns the parts of a training step; masks of dropout are made on the chip."""
    return {
        **_encoder_parts(s),
        "decoder self-attention": (
            self_attention,
            ("decoder/layers/self", "decoder/relative_attention_bias"),
        ),
        "cross-attention": (cross_attention, ("decoder/layers/cross",)),
        "decoder feed-forward": (decoder_feed_forward, ("decoder/layers/f",)),
        "logits and loss": (logits, ("output_logits", "token_scores", "score")),
        REST: (rest, ("",)),
    }


def read_parts(s: Sizes) -> Parts:
    """Returns the parts of reading a document so long that a search attends to its states."""
    return {**_encoder_parts(s), REST: (source_rows, ("",))}


def _encoder_parts(s: Sizes) -> Parts:
    if s.attention is None:
        prefixes = ("encoder/layers/self", "layers/self_attention/shard_map")
        attention = {STATE_SPACE: (state_space, prefixes)}
    else:
        prefixes = ("encoder/layers/self", "encoder/relative_attention_bias", "encoder/attention")
        attention = {ATTENTION: (encoder_attention, prefixes)}
    return attention | {"encoder feed-forward": (encoder_feed_forward, ("encoder/layers/f",))}


def part_of(module: str, parts: Parts) -> str:
    """Returns the part with the first matching prefix; the last one for all other modules."""
    return next(
        part
        for part, (_, prefixes) in parts.items()
        if any(module.startswith(prefix) for prefix in prefixes)
    )
