"""Models of the probes: encoder attentions, cross-attentions and memories at equal parameters."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from probe_tasks import EOS, PAD, VOCABULARY

from longsum_jax.models.family import Family
from longsum_jax.models.registry import get_family

# A query of the sparse encoders sees about 64 tokens around it, one of LSG as many sparse ones.
S4D = {"encoder_attention": "s4d", "d_state": 32}
LOCAL = {"encoder_attention": "local", "local_radius": 31}
LSG = {
    "encoder_attention": "lsg",
    "block_size": 32,
    "sparse_block_size": 32,
    "sparsity_factor": 4,
    "num_global_tokens": 1,
}
ENCODERS: dict[str, Mapping[str, Any]] = {
    "full": {},
    # One bias for all keys from 32 tokens on; T5's biases tell distances up to 128 apart.
    "full_near": {"encoder_attention": "full", "relative_attention_max_distance": 32},
    "s4d": S4D,
    "s4d_forward": S4D | {"bidirectional": False},
    "s4d_ungated": S4D | {"gating": False},
    "s4d_four": S4D | {"d_state": 4},
    "s4d_fast": S4D | {"ssm_dt_min": 5e-2},  # at first a memory of 40 tokens, not of 2,000
    "lsg": LSG,  # sparse keys are those of the largest norm
    "lsg_pooling": LSG | {"sparsity_type": "pooling"},  # means of four
    "lsg_stride": LSG | {"sparsity_type": "stride"},  # each fourth
    "lsg_lsh": LSG | {"sparsity_type": "lsh"},  # means of similar ones
    "lsg_none": LSG | {"sparsity_type": "none"},
    "local": LOCAL,
    "longformer": {"attention_window": (64,)},
    "transient_global": {"local_radius": 31, "global_block_size": 16},  # means of every 16
    # What one layer of windows, or of a global token, cannot carry across a text, several may.
    "s4d_deep": S4D | {"num_layers": 3},
    "lsg_deep": LSG | {"num_layers": 3},
    "local_deep": LOCAL | {"num_layers": 3},
}
CROSSES: dict[str, Mapping[str, Any]] = {
    "full": {},
    "hepos": {"hepos_stride": 4},
    "hepos_2": {"cross_attention": "hepos", "hepos_stride": 2},
    "nearest": {"cross_nearest": 64},
    # As many keys at 1,024 tokens, its longest source, as hepos has there.
    "linformer": {"cross_linformer_size": 256, "cross_linformer_max_length": 1024},
}
# A decoder that writes nothing before the last segment needs no memory.
MEMORY = {
    "memory_layers": "all",
    "memory_decoder": False,
    "memory_size": 64,
    "memory_backprop": 0,
}
ATTENTIVE = {"memory": "attentive", **MEMORY}
FACT = 5  # tokens: a mark, and the most that stands behind it
MEMORIES: dict[str, Mapping[str, Any]] = {
    "none": {},
    "se3": {},
    "compressive": {"memory": "compressive", **MEMORY},
    "attentive": ATTENTIVE,
    "text": {},
    "vectors": {"salient_vectors": FACT},
    "attentive_text": ATTENTIVE,
    "attentive_said": ATTENTIVE,
    "attentive_decoder": ATTENTIVE | {"memory_decoder": True},
}
WITH_TEXT = ("text", "attentive_text")  # read facts of other segments behind their own tokens
SAY_FACTS = ("attentive_said", "attentive_decoder")  # write a fact in the segment where it ends
OF_THE_NEEDLE = (*WITH_TEXT, "vectors", *SAY_FACTS)  # know where the only fact of a text stands
SIZE = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 1,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "dropout_rate": 0.0,
    "feed_forward_proj": "gated-gelu",
    "pad_token_id": PAD,
    "eos_token_id": EOS,
}
# A compressive memory holds what a layer reads: in the first one tokens that do not know their
# neighbours. An attentive one has many parameters, which the inner width makes up for; with one in
# the decoder there are more, so that models that say facts are wider, and alike among themselves.
SIZE_IN_SEGMENTS = {"num_layers": 2, "d_ff": 256}
SIZE_OF_SAYING = SIZE_IN_SEGMENTS | {"d_ff": 512}
GLOBAL_TABLE = "encoder/attention/global_embeddings"  # of LSG; rows of its unused tokens
LENGTH_MAPS = "length_projection"  # of Linformer, more than all else; they know no token


def make_config(encoder: str, cross: str, memory: str) -> tuple[Family, Any]:
    """Family and config of a model with as many parameters as full attention has."""
    family = get_family("t5")
    of_segments = SIZE_OF_SAYING if memory in SAY_FACTS else SIZE_IN_SEGMENTS
    size = SIZE if memory == "none" else SIZE | of_segments
    options = {"encoder_attention": encoder, "cross_attention": cross}
    options |= {**ENCODERS[encoder], **CROSSES[cross], **MEMORIES[memory]}
    config = family.config(size | options)
    surplus = num_parameters(family, config) - num_parameters(family, family.config(size))
    layers = config.num_layers + config.num_decoder_layers
    narrower = round(surplus / (3 * config.d_model * layers))  # a gated layer has three maps
    return family, dataclasses.replace(config, d_ff=config.d_ff - narrower)


def num_parameters(family: Family, config: Any) -> int:
    """Parameters that inputs reach, without Linformer's maps of the length."""
    shapes = family.parameter_shapes(config)
    if GLOBAL_TABLE in shapes:
        shapes[GLOBAL_TABLE] = (config.attention.num_global_tokens, config.d_model)
    counted = [shape for name, shape in shapes.items() if not name.endswith(LENGTH_MAPS)]
    return sum(math.prod(shape) for shape in counted)
