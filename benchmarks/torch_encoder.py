"""The published LOCOST encoder's computation in plain PyTorch, with kernels that need no extension.

The published code computes its kernels in a CUDA extension. Without one the plain form is the sum
over the modes of all their powers, [H, M, L] numbers, here a few channels at a time; the fastest
one is the two-level Vandermonde product. Both are shared by the two directions. All else follows
the published model: FFTs of length 2L, dense maps with biases, gated tanh-gelu.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

POWERS_BYTES = 2**29  # that the plain kernel makes at a time


class TorchEncoder:
    """Encoder of one published state dict, evaluation only; ``plain`` takes the kernel of all
    powers."""

    def __init__(
        self,
        state: Mapping[str, np.ndarray],
        num_layers: int,
        epsilon: float = 1e-6,
        *,
        plain: bool = False,
    ) -> None:
        self.state = {key: torch.from_numpy(np.array(value)) for key, value in state.items()}
        self.num_layers, self.epsilon = num_layers, epsilon
        self._vandermonde = _all_powers if plain else _two_levels

    @torch.no_grad()
    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """Ids int [B, L], none of them padding, -> states float32 [B, L, D]."""
        x = self.state["shared.weight"][torch.from_numpy(ids)]
        for i in range(self.num_layers):
            layer = f"encoder.block.{i}.layer."
            x = x + self._ssm_layer(
                self._norm(x, layer + "0.layer_prenorm"), layer + "0.ssm_layer."
            )
            x = x + self._feed_forward(
                self._norm(x, layer + "1.layer_norm"), layer + "1.DenseReluDense."
            )
        return self._norm(x, "encoder.final_layer_norm").numpy()

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return (
            x
            * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon)
            * self.state[name + ".weight"]
        )

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.state[name + ".weight"], self.state.get(name + ".bias"))

    def _feed_forward(self, x: Tensor, name: str) -> Tensor:
        hidden = F.gelu(self._linear(x, name + "wi_0"), approximate="tanh") * self._linear(
            x, name + "wi_1"
        )
        return self._linear(hidden, name + "wo")

    def _ssm_layer(self, x: Tensor, name: str) -> Tensor:
        k, length = self._linear(x, name + "k_proj"), x.shape[1]
        forward, backward = self._kernels(name + "kernel.", length)
        kernel = F.pad(forward, (0, length))
        kernel[:, 0] += backward[:, 0]
        kernel[:, length + 1 :] = backward[:, 1:].flip(-1)
        spectrum = torch.fft.rfft(k.mT, n=2 * length) * torch.fft.rfft(kernel)
        y = torch.fft.irfft(spectrum, n=2 * length)[..., :length].mT + self.state[name + "D"] * k
        return self._linear(y * self._linear(x, name + "q_proj"), name + "output_linear")

    def _kernels(self, name: str, length: int) -> Tensor:
        """[2, H, L], of the past and of the future."""
        B, C = (torch.view_as_complex(self.state[name + part]) for part in "BC")
        A = torch.complex(-self.state[name + "inv_A_real"].exp(), self.state[name + "A_imag"])
        dt_A = self.state[name + "log_dt"].exp()[:, None] * A
        Ct = 2 * B * C * torch.expm1(dt_A) / A  # [2, H, M]
        return self._vandermonde(dt_A, Ct, length)


def _two_levels(dt_A: Tensor, Ct: Tensor, length: int) -> Tensor:
    """[2, H, L]: lag a S + s is the product of row a and column s, all real."""
    inner = 2 ** round(math.log2(length) / 2)
    columns = (dt_A[..., None] * torch.arange(inner)).exp()  # [H, M, S]
    rows = (dt_A[:, None] * (inner * torch.arange(-(-length // inner)))[:, None]).exp()  # [H, N, M]
    rows = torch.cat([c[:, None] * rows for c in Ct], 1)  # [H, 2N, M]
    product = torch.cat([rows.real, -rows.imag], -1) @ torch.cat([columns.real, columns.imag], 1)
    channels = product.shape[0]
    return product.reshape(channels, 2, -1)[..., :length].transpose(0, 1)


def _all_powers(dt_A: Tensor, Ct: Tensor, length: int) -> Tensor:
    """[2, H, L]: every mode's powers, weighted and summed."""
    channels = max(POWERS_BYTES // (8 * dt_A.shape[1] * length), 1)
    parts = []
    for start in range(0, len(dt_A), channels):
        some = slice(start, start + channels)
        powers = (dt_A[some, :, None] * torch.arange(length)).exp()  # [H, M, L]
        parts.append(torch.einsum("chm,hml->chl", Ct[:, some], powers).real)
    return torch.cat(parts, 1)
