"""Loads models that summarize."""

from pathlib import Path
from typing import Literal

from longsum_jax.inference.loading import LoadOptions, load_model
from longsum_jax.models.config import MatmulPrecision
from longsum_jax.ops.storage import Storage
from longsum_jax.summarization.model import Model


def load(
    path: str | Path,
    *,
    dtype: Literal["float32", "bfloat16"] = "float32",
    matmul_precision: MatmulPrecision = "highest",
    param_dtype: Literal["float32", "bfloat16"] = "float32",
    tokenizer: str | Path | None = None,
    which: Literal["best", "latest"] = "best",
    revision: str | None = None,
    architecture: str | None = None,
    base: str | Path | None = None,
    decoder_storage: Storage = "float32",
) -> Model:
    """Loads a model from a directory, a training workdir, an adapter, or the Hugging Face Hub.

    Args:
        path: a directory in Hugging Face layout (as published, or written by
            ``save`` or ``convert``), the workdir of a training run, a LoRA
            adapter in PEFT's layout, which is merged into its base model, or
            the name "org/name" of a repository.
        dtype: dtype of the computation.
        matmul_precision: precision of float32 matmuls, see
            ``models.config.ModelConfig``.
        param_dtype: dtype of the parameters; "bfloat16" halves their memory
            (state-space kernels stay float32).
        tokenizer: .model file or directory to use instead of the tokenizer in
            ``path``.
        which: checkpoint of a training run: the one with the best evaluation,
            or the latest. Without effect on other kinds of ``path``.
        revision: branch, tag or commit of a repository.
        architecture: transformers class of the weights in ``path``, if its
            config.json names the wrong class or none.
        base: base model of an adapter, in any form that ``path`` accepts; by
            default the model named in its adapter_config.json.
        decoder_storage: storage type in decoding, for the decoder's weights,
            the output embeddings, and the keys and values of the document; only
            on a single CPU, elsewhere decoding raises InputError. Decoding
            still computes in float32. "bfloat16" rounds each number by at most
            2^-8 of its value, and halves the bytes read per token. "int8"
            quarters them, and rounds each number by at most 1/254 of the
            largest one for the same output (weights) or in the same vector
            (keys and values). The stored copies are made at the first summary,
            and need memory in addition to the parameters.

    Returns:
        The model with its parameters and, if there is one, its tokenizer.

    Raises:
        InputError: a missing, damaged or incompatible file, whose name is in
            the message; an unsupported value of an option; ``base`` for a path
            that is not an adapter; or a device that JAX cannot initialize.
    """
    options = LoadOptions(
        dtype=dtype,
        matmul_precision=matmul_precision,
        param_dtype=param_dtype,
        tokenizer=tokenizer,
        which=which,
        revision=revision,
        architecture=architecture,
        base=base,
        decoder_storage=decoder_storage,
    )
    return load_model(Model, path, options)
