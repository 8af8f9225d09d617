"""The published LOCOST encoder's computation in plain PyTorch, with the best kernel that needs no extension.

The published code computes its kernels in a CUDA extension; without one the fastest plain form is the two-level
Vandermonde product, here shared by both directions. All else follows the published model: FFTs of length 2L, dense maps
with biases, gated tanh-gelu.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


class TorchEncoder:
    """Encoder of one published state dict, evaluation only."""

    def __init__(self, state: Mapping[str, np.ndarray], num_layers: int, epsilon: float = 1e-6):
        self.state = {key: torch.from_numpy(np.array(value)) for key, value in state.items()}
        self.num_layers, self.epsilon = num_layers, epsilon

    @torch.no_grad()
    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """Ids int [B, L], none of them padding, -> states float32 [B, L, D]."""
        x = self.state["shared.weight"][torch.from_numpy(ids)]
        for i in range(self.num_layers):
            layer = f"encoder.block.{i}.layer."
            x = x + self._ssm_layer(self._norm(x, layer + "0.layer_prenorm"), layer + "0.ssm_layer.")
            x = x + self._feed_forward(self._norm(x, layer + "1.layer_norm"), layer + "1.DenseReluDense.")
        return self._norm(x, "encoder.final_layer_norm").numpy()

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon) * self.state[name + ".weight"]

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.state[name + ".weight"], self.state.get(name + ".bias"))

    def _feed_forward(self, x: Tensor, name: str) -> Tensor:
        hidden = F.gelu(self._linear(x, name + "wi_0"), approximate="tanh") * self._linear(x, name + "wi_1")
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
        """[2, H, L]: lag a S + s is the product of row a and column s, all real."""
        B, C = (torch.view_as_complex(self.state[name + part]) for part in "BC")
        A = torch.complex(-self.state[name + "inv_A_real"].exp(), self.state[name + "A_imag"])
        dt_A = self.state[name + "log_dt"].exp()[:, None] * A
        Ct = 2 * B * C * torch.expm1(dt_A) / A  # [2, H, M]
        inner = 2 ** round(math.log2(length) / 2)
        columns = (dt_A[..., None] * torch.arange(inner)).exp()  # [H, M, S]
        rows = (dt_A[:, None] * (inner * torch.arange(-(-length // inner)))[:, None]).exp()  # [H, N, M]
        rows = torch.cat([c[:, None] * rows for c in Ct], 1)  # [H, 2N, M]
        product = torch.cat([rows.real, -rows.imag], -1) @ torch.cat([columns.real, columns.imag], 1)
        channels = product.shape[0]
        return product.reshape(channels, 2, -1)[..., :length].transpose(0, 1)
