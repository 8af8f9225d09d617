"""A cache of state-space kernels, which a loaded model computes once per length."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longsum_jax.layers.layer_groups import parse_hybrid
from longsum_jax.layers.s4d import KERNELS
from longsum_jax.typing import Params

# Maximum bytes of cached state-space kernels per model.
MAX_KERNEL_CACHE_BYTES = 2**31


class _CachedKernels(NamedTuple):
    variables: Mapping[str, Any]
    num_bytes: int


class KernelCache:
    """Caches state-space kernels by length; a module is applied to them and its parameters.

    Kernels depend only on parameters and length. The least recently used
    lengths are evicted first, and all lengths if the parameters are replaced.
    Kernels of 12 layers with 768 channels take 74 KB per token of the length.

    Args:
        module: module with the methods of ``models.encoder_decoder``.
        limit: maximum bytes to cache; kernels of a length that takes more are
            recomputed in every call.
        make: program from ``kernel_program``; None for a new one.
    """

    def __init__(self, module: Any, limit: int, make: Any = None) -> None:
        self.limit = limit
        self._make = make or kernel_program(module)
        # Only state-space layers have kernels.
        attentions = [
            name for name, _ in parse_hybrid(module.config.encoder_attention)
        ]
        self._has_kernels = "s4d" in attentions
        self._lock = threading.Lock()
        # leaves of the parameters that the entries belong to
        self._leaves: list[Any] = []
        # by length
        self._entries: OrderedDict[int, _CachedKernels] = OrderedDict()

    def __call__(self, params: Params, length: int) -> Mapping[str, Any]:
        """Returns variables for inputs of ``length`` padded tokens: {KERNELS: ...}, or {}.

        Returns {} for models without state-space layers, for kernels beyond the
        limit, and on a mesh, on which every device computes the kernels of its
        own channels.
        """
        if not self._is_used:
            return {}
        with self._lock:  # threads may share a model
            self._forget_other_params(params)
            if length not in self._entries:
                self._add(params, length)
            # Mark as most recently used.
            self._entries.move_to_end(length)
            return self._entries[length].variables

    def shapes(self, params: Params, length: int) -> Mapping[str, Any]:
        """Returns the shapes of a call's result; ``params`` may also be shapes."""
        if not self._is_used:
            return {}
        kernels = self._make.eval_shape(params, length)
        if 0 < _num_bytes(kernels) <= self.limit:
            return kernels
        return {}

    def forget(self) -> None:
        """Drops all kernels, but not the compiled program."""
        with self._lock:
            self._leaves = []
            self._entries = OrderedDict()

    @property
    def _is_used(self) -> bool:
        on_mesh = not jax.sharding.get_abstract_mesh().empty
        return self._has_kernels and self.limit > 0 and not on_mesh

    def _forget_other_params(self, params: Params) -> None:
        leaves = jax.tree.leaves(params)
        # Compare identities, because comparing values would be slow.
        same = len(leaves) == len(self._leaves) and all(
            new is old for new, old in zip(leaves, self._leaves, strict=True)
        )
        if not same:
            self._leaves = leaves
            self._entries = OrderedDict()

    def _add(self, params: Params, length: int) -> None:
        num_bytes = _num_bytes(self._make.eval_shape(params, length))
        # Without a cache entry's variables, the model computes its kernels
        # itself.
        if not 0 < num_bytes <= self.limit:
            self._entries[length] = _CachedKernels({}, 0)
            return
        # Evict the least recently used entries until the new one fits.
        while (
            sum(entry.num_bytes for entry in self._entries.values()) + num_bytes
            > self.limit
        ):
            self._entries.popitem(last=False)
        self._entries[length] = _CachedKernels(
            self._make(params, length), num_bytes
        )


def kernel_program(module: Any) -> Any:
    """Returns the compiled function from parameters and a length to the encoder's kernels.

    XLA eliminates the rest of the encoder as dead code.

    Args:
        module: module with the methods of ``models.encoder_decoder``.
    """

    def kernels(params: Params, length: int) -> Mapping[str, Any]:
        # The values do not matter: kernels depend only on the length.
        ids = jnp.zeros((1, length), jnp.int32)
        _, arrays = module.apply(
            {"params": params}, ids, ids, method="encode", mutable=[KERNELS]
        )
        return arrays

    return jax.jit(kernels, static_argnums=1)


def _num_bytes(tree: Any) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
