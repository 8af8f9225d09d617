"""Runs the compiled programs of a model on ids, independent of texts."""

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Generated
from longsum_jax.errors import InputError
from longsum_jax.inference.continuous import ContinuousBatch, Pad
from longsum_jax.inference.kernel_cache import (
    MAX_KERNEL_CACHE_BYTES,
    KernelCache,
)
from longsum_jax.inference.padding import (
    BUCKET,
    PaddedInputs,
    check_inputs,
    pad_inputs,
)
from longsum_jax.inference.programs import EncodedDocuments, Programs
from longsum_jax.models.family import Family
from longsum_jax.ops.storage import Storage
from longsum_jax.typing import Params


class Runner:
    """Runs the programs of a module with its parameters, on the device or from host memory.

    A process forked after the runner was made gets an InputError when it uses
    it.

    Args:
        family: family of the model.
        config: config of the module.
        params: parameters of the module.
        storage: storage type of the decoder's weights and the document's keys
            in decoding.

    Attributes:
        family, config: the arguments of these names.
        module: the Flax module.
        params: the module's parameter tree, which may be replaced.
    """

    def __init__(
        self,
        family: Family,
        config: Any,
        params: Params | None,
        storage: Storage = "float32",
    ) -> None:
        self.family = family
        self.config = config
        self.module = family.module_class(config)
        self.params = params
        self._storage = storage
        self._process = os.getpid()

    @property
    def params(self) -> Params:
        return self._params

    @params.setter
    def params(self, params: Params | None) -> None:
        self._params: Any = params
        # the copy made by ``to_host``, if any
        self._host_params: Params | None = None

    @property
    def name(self) -> str:
        """Family and head, for error messages."""
        return f"{self.family.name}, head {self.config.head}"

    def to_host(self) -> None:
        """Moves the parameters to host memory; calls then copy them to the device every time."""
        self.kernels.forget()
        # Copy to the host only once.
        if self._host_params is None:
            self._host_params = jax.device_get(self._params)
        self._params = self._host_params

    def to_device(self) -> None:
        """Moves parameters from host memory to the device."""
        if self._params is self._host_params:
            self._params = jax.device_put(self._host_params)

    def padded(
        self,
        ids: np.ndarray,
        mask: np.ndarray,
        inputs: Mapping[str, Any],
        bucket: int = BUCKET,
    ) -> PaddedInputs:
        """Returns padded inputs of the module; see ``padding.pad_inputs``."""
        family = self.family.name
        return pad_inputs(
            ids, mask, inputs, config=self.config, family=family, bucket=bucket
        )

    def variables(self, padded: PaddedInputs) -> Mapping[str, Any]:
        """Returns the parameters and the cached state-space kernels of this length."""
        return {
            "params": self.params,
            **self.kernels(self.params, padded.ids.shape[1]),
        }

    def generate(
        self,
        input_ids: Any,
        attention_mask: Any,
        options: GenerationOptions,
        seed: int,
        inputs: Mapping[str, Any],
    ) -> Generated:
        """Decodes rows that start and end together.

        Args:
            input_ids: int [batch, length].
            attention_mask: [batch, length]; None for all except padding ids.
            options: generation options.
            seed: random seed for sampling.
            inputs: further inputs of some encoders under their Hugging Face
                names.

        Raises:
            InputError: ids outside the vocabulary, mismatched shapes.
        """
        padded = self.padded(
            *check_inputs(input_ids, attention_mask, self.config), inputs
        )
        keys = None
        if options.do_sample:
            # All rows have the same key, so a row's samples do not depend on
            # its position in the batch.
            keys = jnp.broadcast_to(jax.random.key(seed), (len(padded.ids),))
        ids, mask, extra = padded
        variables = self.variables(padded)
        return self.programs.generate(
            variables, ids, mask, extra, keys, options=options
        )

    def encoded(self, padded: PaddedInputs) -> EncodedDocuments:
        """Returns encoded documents for a search.

        Args:
            padded: inputs of the encoder.
        """
        programs = self.programs
        source = programs.read(self.variables(padded), *padded)
        return EncodedDocuments(
            self.params, programs.search.weights(self.params), source
        )

    def slots(self, pad: Pad, **sizes: Any) -> ContinuousBatch:
        """Returns slots in which documents are decoded one by one.

        Args:
            pad: function that pads the ids and masks of documents.
            **sizes: ``batch_size``, ``options`` and ``seed``, see
                ``ContinuousBatch``.
        """
        return ContinuousBatch(
            self.programs,
            self.params,
            pad=pad,
            variables=self.variables,
            **sizes,
        )

    @cached_property
    def kernels(self) -> KernelCache:
        """The cache of state-space kernels by input length."""
        return KernelCache(
            self.module, MAX_KERNEL_CACHE_BYTES, self.programs.kernels
        )

    @property
    def programs(self) -> Programs:
        """The compiled programs of the module.

        Raises:
            InputError: the process was forked, see ``check_process``.
        """
        self.check_process()
        return self._programs

    def check_process(self) -> None:
        """Raises InputError in a process that was forked after the runner was made."""
        if os.getpid() != self._process:
            raise InputError(
                "this process was forked after the model was loaded, without the threads that "
                "compute; load the model here, or start processes by spawn "
                '(multiprocessing.get_context("spawn"))'
            )

    @cached_property
    def _programs(self) -> Programs:
        return Programs(self.module, self._storage)

    def share_programs(self, other: "Runner") -> None:
        """Shares the programs of a runner with the same config; parameters are their arguments."""
        self._programs = other.programs
