"""Kernels of a loaded model's state-space layers, computed once for every length."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from longsum_jax.layers.layer_groups import parse_hybrid
from longsum_jax.layers.s4d import KERNELS
from longsum_jax.typing import Params


class KernelCache:
    """What ``Model`` gives its module besides parameters: state-space kernels, which depend on
    parameters and length.

    Lengths that were not used for longest are dropped first, and all of them when parameters are
    replaced. Kernels of 12 layers of 768 channels take 74 KB for every token of the length.

    Args:
        module: with the methods of ``models.encoder_decoder``.
        limit: bytes that are kept; kernels of a length that takes more are computed anew in every
            call.
    """

    def __init__(self, module: Any, limit: int) -> None:
        self.limit = limit
        self._module = module
        self._make = jax.jit(self._kernels, static_argnums=1)
        self._there = any(
            kind == "s4d" for kind, _ in parse_hybrid(module.config.encoder_attention)
        )
        self._params: list[Any] = []
        self._kept: OrderedDict[int, tuple[Mapping[str, Any], int]] = (
            OrderedDict()
        )  # length -> variables, bytes

    def __call__(self, params: Params, length: int) -> Mapping[str, Any]:
        """Variables for inputs of ``length`` padded tokens: {KERNELS: ...}, or nothing where none
        are to be kept."""
        # On a mesh, every device computes the kernels of its own channels.
        if not self._there or not self.limit or not jax.sharding.get_abstract_mesh().empty:
            return {}
        leaves = jax.tree.leaves(params)
        if len(leaves) != len(self._params) or any(
            a is not b for a, b in zip(leaves, self._params, strict=True)
        ):
            self._params, self._kept = leaves, OrderedDict()
        if length not in self._kept:
            self._keep(params, length)
        self._kept.move_to_end(length)
        return self._kept[length][0]

    def _keep(self, params: Params, length: int) -> None:
        traced = self._make.trace(params, length)
        size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(traced.out_info))
        if not 0 < size <= self.limit:
            self._kept[length] = {}, 0
            return
        while sum(kept for _, kept in self._kept.values()) + size > self.limit:
            self._kept.popitem(last=False)
        self._kept[length] = traced.lower().compile()(params), size

    def _kernels(self, params: Params, length: int) -> Mapping[str, Any]:
        """Runs the encoder for the sake of its kernels; nothing of the rest is left in the compiled
        program."""
        ids = jnp.zeros((1, length), jnp.int32)
        _, kernels = self._module.apply(
            {"params": params}, ids, ids, method="encode", mutable=[KERNELS]
        )
        return kernels
