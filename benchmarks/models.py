"""The models that train_step.py, encode.py and decode.py measure: sizes, parameters, and the work
that they ask for."""

import contextlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

# Memory of a GPU is for both libraries: the one must not take it all before the other comes.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
from common import fastest

from longsum_jax.layers.layer_groups import layer_attentions
from longsum_jax.models.config import EncoderDecoderConfig
from longsum_jax.models.family import Family
from longsum_jax.models.registry import flat_section, get_family
from longsum_jax.summarization.model import Model


class Entry(NamedTuple):
    """A model of ours, and what its user would take instead.

    Attributes:
        family, options: of ours; options go over the size's fields.
        peers: names of ``MODELS`` whose PyTorch class is the peer (the model's own name: same
            weights, and the results must agree), and for encoders "published" and "published_plain"
            (torch_encoder.py).
        dense: whether its attention grows with the square of the length.
    """

    family: str
    options: Mapping[str, Any]
    peers: tuple[str, ...]
    dense: bool = False


PUBLISHED = ("published", "published_plain")
PAGES = {"page_length": 1024}
HEPOS = {"cross_attention": "hepos", "hepos_stride": 4}
LSG = {
    "encoder_attention": "lsg",
    "block_size": 256,
    "sparsity_type": "none",
    "num_global_tokens": 1,
}
GLOBAL = {"encoder_attention": "transient_global"}
MODELS: dict[str, Entry] = {
    "locost": Entry("locost", {}, (*PUBLISHED, "longt5")),
    "locost_hepos": Entry("locost", HEPOS, ("longt5",)),
    "longt5": Entry("longt5", GLOBAL, ("longt5",)),
    "longt5_local": Entry("longt5", {}, ("longt5_local",)),
    "lsg_bart": Entry("bart", LSG, ("led",)),
    "led": Entry("led", {"attention_window": (1024,)}, ("led",)),
    "bart": Entry("bart", {}, ("bart",), dense=True),
    "bart_hepos": Entry("bart", HEPOS, ("bart",), dense=True),
    "bart_pages": Entry("bart", PAGES, ()),
    "bart_cached": Entry("bart", PAGES | {"page_recompute": True}, ()),
    "t5": Entry(
        "t5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, ("t5",), dense=True
    ),
    "bert": Entry("bert", {}, ("bert",), dense=True),
    "pegasus_x": Entry("pegasus_x", {}, ("pegasus_x",)),
    "bigbird_pegasus": Entry("bigbird_pegasus", {}, ("bigbird_pegasus",)),
    "modernbert": Entry("modernbert", {}, ("modernbert",), dense=True),
    "mpnet": Entry("mpnet", {}, ("mpnet",), dense=True),
    "deberta": Entry("deberta-v2", {}, ("deberta",), dense=True),
    # A vocabulary of 262,144 in every size.
    "t5gemma2": Entry("t5gemma2", {"vocab_size": 2**18}, ("t5gemma2",), dense=True),
}
# Families whose sizes are their presets.
OF_PRESETS = ("modernbert", "mpnet", "deberta-v2", "t5gemma2")
GEMMA_SIZES = {"base": "270m", "small": "tiny", "tiny": "tiny"}
DEFAULT = "locost,longt5,lsg_bart,led,bart,locost_hepos"
# Size -> width, heads, vocabulary; then layers, inner width and modes' size of T5s, layers and
# inner width of BARTs.
SIZES = {
    "base": ((768, 12, 32128), (12, 2048, 512), (6, 3072)),
    "small": ((256, 4, 32128), (6, 704, 128), (4, 1024)),
    "tiny": ((32, 4, 128), (2, 48, 16), (2, 48)),
}
TARGET_ROWS = 1024  # positions of decoders that have a table of them
# What random weights write hardly depends on the document unless they read it louder.
LOUDER = 6.0


def make_config(
    name: str,
    size: str,
    length: int,
    *,
    dtype: str = "float32",
    dropout: float = 0.0,
    remat: bool = False,
    attention_backend: str = "auto",
):
    """Family and config of a model with positions for ``length`` tokens."""
    entry = MODELS[name]
    (width, heads, vocabulary), (layers, inner, modes), (bart_layers, bart_inner) = SIZES[size]
    values: dict[str, Any] = {"vocab_size": vocabulary, "dtype": dtype, "remat": remat}
    # Not every family has the option.
    backend = {} if attention_backend == "auto" else {"attention_backend": attention_backend}
    if entry.family in OF_PRESETS:
        names = GEMMA_SIZES if entry.family == "t5gemma2" else {}
        preset = get_family(entry.family).presets[names.get(size, size)]
        values = flat_section(preset) | {"dtype": dtype, "remat": remat}
        rates = [key for key in values if key.endswith(("dropout", "dropout_rate", "dropout_prob"))]
        values |= dict.fromkeys(rates, dropout)
    elif entry.family in ("locost", "t5", "longt5"):
        values |= {
            "d_model": width,
            "num_heads": heads,
            "d_kv": width // heads,
            "d_ff": inner,
            "num_layers": layers,
        }
        values |= {"num_decoder_layers": layers, "dropout_rate": dropout}
        values |= {"d_state": modes} if entry.family == "locost" else {}
    elif entry.family == "bert":
        values |= {"hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": layers}
        values |= {
            "intermediate_size": bart_inner,
            "max_position_embeddings": length,
            "hidden_dropout_prob": dropout,
        }
        values |= {"attention_probs_dropout_prob": dropout}
    else:
        values |= {
            "d_model": width,
            "encoder_layers": bart_layers,
            "decoder_layers": bart_layers,
            "dropout": dropout,
        }
        for side in ("encoder", "decoder"):
            values |= {f"{side}_ffn_dim": bart_inner, f"{side}_attention_heads": heads}
    family = get_family(entry.family)
    config = family.config(values | dict(entry.options) | backend)
    if hasattr(config, "with_max_source_length") and config.max_source_length is not None:
        config = config.with_max_source_length(max(length, TARGET_ROWS))
    return family, config


def parameter_shapes(family: Family, config: Any, dtype: str = "float32") -> Any:
    """The tree of parameters as shapes."""
    tree = nn.meta.unbox(jax.eval_shape(family.init_params(config), jax.random.key(0)))
    return _typed(family, config, tree, dtype, lambda x, to: jax.ShapeDtypeStruct(x.shape, to))


def make_model(family: Family, config: Any, dtype: str = "float32") -> Model:
    """A model with random parameters, as ``longsum_jax.load`` would give it with
    ``param_dtype=dtype``."""
    tree = nn.meta.unbox(jax.jit(family.init_params(config))(jax.random.key(0)))
    return Model(family, config, _typed(family, config, tree, dtype, lambda x, to: x.astype(to)))


def read_louder(model: Model) -> None:
    """Scales cross-attention of random weights, so that summaries differ between documents."""
    flat = flax.traverse_util.flatten_dict(model.params, sep="/")
    for path in flat:
        if path.endswith(("cross_attention/v/kernel", "cross_attention/o/kernel")):
            flat[path] = LOUDER * flat[path]
    model.params = flax.traverse_util.unflatten_dict(flat, sep="/")


def _typed(family: Family, config: Any, tree: Any, dtype: str, cast: Any) -> Any:
    table, flat = family.weight_map(config), flax.traverse_util.flatten_dict(tree, sep="/")
    flat = {path: cast(x, table.dtype(path, dtype)) for path, x in flat.items()}
    return flax.traverse_util.unflatten_dict(flat, sep="/")


def make_ids(config: Any, batch: int, length: int, seed: int = 0) -> np.ndarray:
    """Random ids int32 [batch, length], none of them special."""
    return np.random.default_rng(seed).integers(
        5, config.vocab_size, (batch, length), dtype=np.int32
    )


def forward_flops(family: Family, config: Any, source: int, target: int = 0) -> float:
    """Multiplications and additions that one document asks for; ``target`` 0 is the encoder alone.

    Dense maps by the shapes of their kernels, attention by the keys that a query sees, the
    convolution of a state-space layer by three real FFTs of twice the length, its kernels not
    counted (a loaded model needs them once).
    """
    shapes = family.parameter_shapes(config)
    maps = {
        path: float(np.prod(shape)) for path, shape in shapes.items() if path.endswith("/kernel")
    }
    encoder = config.encoder_stack
    inner = encoder.num_heads * encoder.d_kv
    total = 2 * source * sum(n for path, n in maps.items() if path.startswith("encoder/"))
    if config.encoder_attention == "s4d":
        total += encoder.num_layers * encoder.d_model * 3 * 2.5 * 2 * source * np.log2(2 * source)
    else:
        total += encoder.num_layers * 4 * source * inner * encoder_keys(config, source)
    if not target:
        return total
    decoder = config.decoder_stack
    of_source = [
        n for path, n in maps.items() if "cross_attention/k" in path or "cross_attention/v" in path
    ]
    rest = sum(n for path, n in maps.items() if path.startswith("decoder/")) - sum(of_source)
    stride = config.cross.hepos_stride if config.cross_attention == "hepos" else 1
    keys = target / 2 + source / stride
    total += 2 * target * (rest + config.d_model * config.vocab_size) + 2 * source / stride * sum(
        of_source
    )
    return total + decoder.num_layers * 4 * target * decoder.num_heads * decoder.d_kv * keys


def encoder_keys(config: Any, length: int) -> float:
    """Keys of a query of the encoder, the mean of its layers."""
    kinds = layer_attentions(config.encoder_attention, config.encoder_stack.num_layers)
    return float(np.mean([min(_layer_keys(config, kind, length), length) for kind in kinds]))


def _layer_keys(config: Any, kind: str, length: int) -> float:
    if isinstance(config, EncoderDecoderConfig):
        length = min(length, config.pages.page_length or length)
    option = config.option
    return {
        "full": lambda: length,
        "disentangled": lambda: length,
        "local": lambda: 3 * (option("local_radius") + 1),
        "transient_global": lambda: (
            3 * (option("local_radius") + 1) + length / option("global_block_size")
        ),
        "longformer": lambda: option("attention_window")[0] + 2,
        "lsg": lambda: 3 * option("block_size") + option("num_global_tokens"),
        "block_staggered": lambda: option("block_size") + option("num_global_tokens"),
        "bigbird": lambda: (5 + option("num_random_blocks")) * option("block_size"),
    }[kind]()


def peak_flops(dtype: str) -> float:
    """Operations per second of the faster of two matrix products, ours and PyTorch's, on the device
    in use; ours if PyTorch is missing or does not use it."""
    size = 2048 if jax.default_backend() == "cpu" else 8192
    a = jnp.ones((size, size), dtype)
    product = jax.jit(jnp.matmul)
    calls = {"jax": lambda: product(a, a).block_until_ready()}
    with contextlib.suppress(ImportError):
        import torch
        from torch_peers import device, has_device_of, synchronized

        if has_device_of(jax.default_backend()):
            b = torch.ones((size, size), dtype=getattr(torch, dtype), device=device())
            calls["torch"] = lambda: synchronized(lambda: b @ b)
    return 2 * size**3 / min(seconds.wall for seconds in fastest(calls, 5).values())
