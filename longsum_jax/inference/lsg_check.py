"""Compares models converted to LSG attention with their originals, on random input."""

from typing import NamedTuple

import numpy as np

from longsum_jax.conversion.lsg import first_token
from longsum_jax.errors import InputError
from longsum_jax.inference.convertible import ConvertibleModel
from longsum_jax.layers.attention.options import LsgOptions

# relative to the largest output; float32 errors are a hundredth of it
TOLERANCE = 1e-4
_BLOCKS = 16  # blocks of the long input, for a model without a maximum length
_TARGET_LENGTH = 8


class LsgCheck(NamedTuple):
    """The result of comparing a converted model with its original.

    Attributes:
        length: number of tokens of the long input, whose outputs are finite.
        equal_length: number of tokens of the input on which both models agree;
            0 if they need not agree.
        difference: largest difference on that input, relative to the largest
            output.
    """

    length: int
    equal_length: int = 0
    difference: float = 0.0

    def __str__(self) -> str:
        """Returns a human-readable sentence."""
        finite = f"outputs for {self.length:,} random tokens are finite"
        if not self.equal_length:
            return f"{finite}; the original need not agree"
        return (
            f"{finite}; with one global token in place of the first token it equals the original "
            f"on {self.equal_length:,} tokens (largest difference {self.difference:.0e})"
        )


def check_lsg(
    original: ConvertibleModel,
    converted: ConvertibleModel,
    *,
    first_id: int | None,
    use_token_ids: bool,
    seed: int,
) -> LsgCheck:
    """Runs a converted model on random tokens, and compares it with its original.

    Up to two blocks, LSG attention equals full attention, and the first global
    token is initialized from the first token's embedding. So if the global
    token replaces the first token (``mask_first_token``), outputs for a text
    that begins with this token must not change, whatever the options of the
    conversion. Exempt are models whose texts have no fixed first token, models
    with T5's bias, which does not apply to global tokens, causal models, whose
    global tokens attend to nothing, originals with LSG attention, and global
    tokens without the token type of other tokens.

    Args:
        original, converted: models before and after ``Model.to_lsg``.
        first_id, use_token_ids: options of the conversion.
        seed: random seed for the tokens.

    Raises:
        InputError: outputs that are not finite, or that differ.
    """
    rng = np.random.default_rng(seed)
    first_id = first_token(original.config, first_id)
    block = LsgOptions.of(converted.config.attention).block_size
    length = (converted.config.max_source_length or _BLOCKS * block) - 1
    if not np.isfinite(
        _outputs(converted, _draw(converted, rng, length, first_id))
    ).all():
        raise InputError(
            f"run_test: outputs for {length} tokens are not finite; check the source"
        )
    if first_id is None or not _must_agree(original, use_token_ids):
        return LsgCheck(length)
    # A single global token replaces the first token.
    exact = converted.with_lsg_options(
        num_global_tokens=1,
        mask_first_token=True,
        pass_global_tokens_to_decoder=True,
    )
    # Up to two blocks, every token attends to all others.
    short = min(2 * block, original.config.max_source_length or 2 * block)
    ids = _draw(converted, rng, short, first_id)
    expected, actual = _outputs(original, ids), _outputs(exact, ids)
    difference = float(np.abs(actual - expected).max() / np.abs(expected).max())
    if not difference <= TOLERANCE:
        raise InputError(
            f"run_test: outputs for {short} tokens differ from the original's by {difference:.0e} "
            "of the largest; the conversion has lost something"
        )
    return LsgCheck(length, short, difference)


def _must_agree(original: ConvertibleModel, use_token_ids: bool) -> bool:
    """Returns True if the first global token can replace the first token."""
    config = original.config
    stack = config.encoder_stack
    if (
        config.encoder_attention != "full"
        or stack.causal
        or stack.relative_attention
    ):
        return False
    return use_token_ids or not config.has_token_types


def _draw(
    model: ConvertibleModel,
    rng: np.random.Generator,
    length: int,
    first_id: int | None,
) -> np.ndarray:
    """Returns random tokens, int [1, length], with the first and last token of a text, if any."""
    config = model.config
    special = {first_id, config.pad_token_id, config.eos_token_id}
    # Special tokens occur only at their usual positions.
    ids = rng.choice(
        [i for i in range(config.vocab_size) if i not in special], length
    )
    if first_id is not None:
        ids[0] = first_id
    if config.eos_token_id is not None:
        ids[-1] = config.eos_token_id
    return ids[None]


def _outputs(model: ConvertibleModel, ids: np.ndarray) -> np.ndarray:
    """Returns the states of an encoder, or the logits of a model with a decoder."""
    mask = np.ones_like(ids)
    if not model.family.is_encoder_decoder:
        return np.asarray(model.encode(ids, mask))
    if model.config.head != "language_model":
        return np.asarray(model.logits(ids, mask))
    return np.asarray(model.logits(ids, mask, ids[:, :_TARGET_LENGTH]))
