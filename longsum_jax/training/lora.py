"""Low-rank adaptation (LoRA) of linear maps: options, and names of parameters.

Hu et al. 2021 (LoRA, section 4.1): a linear map W of a frozen model becomes
W + alpha / rank * A B, of which only A and B are trained. B is 0 at the start.
"""

from dataclasses import dataclass

from longsum_jax.errors import InputError
from longsum_jax.schema import Positive, PositiveFloat, Rate, check_ranges

# Parameters next to the kernel W [inputs, outputs] of a linear map:
# A [inputs, rank] and B [rank, outputs].
KERNEL, LORA_A, LORA_B = "kernel", "lora_a", "lora_b"
ALL_LINEAR = "all-linear"


@dataclass(frozen=True)
class LoraOptions:
    """Options of LoRA, under PEFT's meanings.

    Attributes:
        rank: number of columns of A and of rows of B (PEFT: r).
        alpha: numerator of the scale alpha / rank (PEFT: lora_alpha).
        dropout: dropout rate of the inputs of A, in training.
        targets: linear maps to adapt: "all-linear" (all except the output
            embeddings), last components of transformers' module names ("q",
            "q_proj"), or regular expressions that match whole names.
    """

    rank: Positive = 8
    alpha: PositiveFloat = 16.0
    dropout: Rate = 0.0
    targets: tuple[str, ...] = (ALL_LINEAR,)

    def __post_init__(self) -> None:
        check_ranges(self, "lora")
        if not self.targets:
            raise InputError(
                'lora.targets is empty; give "all-linear", or names such as "q"'
            )

    @property
    def scale(self) -> float:
        """The factor of A B."""
        return self.alpha / self.rank
