"""Least bytes of each part of a training step, counted by hand, for ``plans.py --parts``.

Each part reads every input once and writes every output once. In the backward pass, layers are
computed again from their inputs: the values that gradients of products need are written once and
read once. Norms, activations, gates, masks, scores and logits stay on the chip. States, weights
that a device has gathered, and their gradients take 2 bytes (bfloat16); other parameters, and those
of the optimizer, 4 bytes.

    N, T     source and target positions of one device, all rows together
    n, t     source and target positions of one row
    d, f, a  size of states, of the feed-forward, of all heads together
    m        complex modes of a channel
    V        rows of the vocabulary
    W, P     weights that a device gathers, parameters that it updates
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

HALF, WHOLE = 2, 4  # bytes of bfloat16 and float32
REST = "embeddings, weights, optimizer"
ADAM_ARRAYS = 7  # reads a parameter, both moments and the gradient; writes all but the last


class Sizes(NamedTuple):
    """Sizes of a training step of an encoder-decoder with a state-space encoder, per device."""

    rows: float
    source: int
    target: int
    d_model: int
    d_ff: int
    heads: int
    modes: int
    encoder_layers: int
    decoder_layers: int
    vocabulary: int
    updated: float
    is_sharded: bool

    @property
    def source_states(self) -> float:
        """Elements of the source's states, N d."""
        return self.rows * self.source * self.d_model

    @property
    def weights(self) -> int:
        """Weights of all linear maps and the table: every parameter except the dynamics."""
        encoder = 3 * self.d_model * (self.d_model + self.d_ff)
        decoder = self.d_model * (8 * self.heads + 3 * self.d_ff)
        layers = self.encoder_layers * encoder + self.decoder_layers * decoder
        return layers + self.vocabulary * self.d_model

    @property
    def target_states(self) -> float:
        """Elements of the target's states, T d."""
        return self.rows * self.target * self.d_model


class Least(NamedTuple):
    """Least bytes of both passes, and operations of the forward pass, of which a backward pass
    needs twice as many."""

    forward: float
    backward: float
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


def encoder_feed_forward(s: Sizes) -> Least:
    """See ``_feed_forward``, over N positions."""
    return _feed_forward(s, s.source_states, s.encoder_layers)


def decoder_feed_forward(s: Sizes) -> Least:
    """See ``_feed_forward``, over T positions."""
    return _feed_forward(s, s.target_states, s.decoder_layers)


def _feed_forward(s: Sizes, states: float, layers: int) -> Least:
    """Gated feed-forwards of three maps of d x f.

    forward    2 (2 N d + 3 d f): input, output, weights
    again      2 (N d + 2 N f + 3 d f): input, results of both inner maps, weights
    gradient   2 (3 N d + 2 N f + 6 d f): input, those two, gradients of output and input; weights
               and their gradients
    operations 6 N d f
    """
    hidden = states / s.d_model * s.d_ff
    maps = 3 * s.d_model * s.d_ff
    return _layers(
        layers,
        forward=HALF * (2 * states + maps),
        again=HALF * (states + 2 * hidden + maps),
        gradient=HALF * (3 * states + 2 * hidden + 2 * maps),
        operations=2 * states * 3 * s.d_ff,
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

    forward    2 (2 N d + 2 T d + W): rows of the table, read and written; gathered weights
    backward   2 (2 N d + 2 T d + V d + 2 W) + 28 P: gradients of rows, read, and added to a table;
               weights gathered again, and gradients to send; AdamW
    """
    states = 2 * (s.source_states + s.target_states)
    gathered = s.weights * s.is_sharded
    table = s.vocabulary * s.d_model
    adam = WHOLE * ADAM_ARRAYS * s.updated
    return Least(HALF * (states + gathered), HALF * (states + table + 2 * gathered) + adam)


def _layers(
    count: int, *, forward: float, again: float, gradient: float, operations: float
) -> Least:
    return Least(*(count * x for x in (forward, again + gradient, operations)))


# Part to its count, and to the prefixes of its modules in ``longsum_plan.program_parts``.
PARTS: Mapping[str, tuple[Callable[[Sizes], Least], tuple[str, ...]]] = {
    "state-space layers": (
        state_space,
        ("encoder/layers/self", "layers/self_attention/shard_map"),
    ),
    "encoder feed-forward": (encoder_feed_forward, ("encoder/layers/f",)),
    "decoder self-attention": (
        self_attention,
        ("decoder/layers/self", "decoder/relative_attention_bias"),
    ),
    "cross-attention": (cross_attention, ("decoder/layers/cross",)),
    "decoder feed-forward": (decoder_feed_forward, ("decoder/layers/f",)),
    "logits and loss": (logits, ("output_logits", "token_scores", "score")),
    REST: (rest, ("",)),
}


def part_of(module: str) -> str:
    """Returns the part with the first matching prefix; the last one for all other modules."""
    return next(
        part
        for part, (_, prefixes) in PARTS.items()
        if any(module.startswith(prefix) for prefix in prefixes)
    )
