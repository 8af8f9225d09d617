"""A model family: its config, module, presets and names in checkpoints."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.options import CrossAttentionOptions, EncoderAttentionOptions
from longsum_jax.layers.attention.registry import CROSS_ATTENTIONS, get_encoder_attention
from longsum_jax.layers.layer_groups import parse_layer_path
from longsum_jax.layers.stack import MemoryOptions, PageOptions
from longsum_jax.models import lsg_layout as lsg
from longsum_jax.models.weight_map import WeightMap, WeightRow
from longsum_jax.schema import from_dict

OWN_TYPE = (
    "longsum_jax/"  # before the family's name in model_type, for models that exist here alone
)


@dataclass(frozen=True)
class Family:
    """A model family.

    Attributes:
        name: as in ``model_type`` of config.json.
        architecture: class name in ``architectures`` of config.json.
        kind: "encoder" for families without a decoder.
        attentions: encoder attentions that the class in transformers, or a published one made from
            it, has. A model with another one, or with another cross-attention than the full one, is
            saved under a model_type of ours, so that no other library reads it as what it is not.
        config_class: frozen dataclass whose fields have Hugging Face names.
        module_class: the Flax module, built from a config.
        presets: named configs.
        runtime_fields: config fields that say how to compute and are not written to checkpoints.
        read_config: config.json content -> config fields; raises InputError for what is not
            supported.
        names: config -> names in state dicts of transformers, see ``checkpoints.state_dict``.
        generation: defaults of generation_config.json for checkpoints that have none.
        extra_config: config -> further entries of config.json that the published code reads.
        infer_from_weights: (config, tensors by key as stored) -> config, for what only the tensors tell:
            whether the output weights are tied, which head there is. A tensor has shape and dtype,
            and ``np.asarray`` reads it.
    """

    name: str
    architecture: str
    config_class: type
    module_class: type[nn.Module]
    presets: Mapping[str, Any]
    runtime_fields: tuple[str, ...]
    read_config: Callable[[Mapping[str, Any]], dict[str, Any]]
    names: Callable[[Any], WeightMap]
    generation: Mapping[str, Any] = dataclasses.field(
        default_factory=lambda: {"max_new_tokens": 256}
    )
    extra_config: Callable[[Any], dict[str, Any]] = lambda config: {}
    kind: Literal["encoder_decoder", "encoder"] = "encoder_decoder"
    attentions: tuple[str, ...] = ("full",)
    infer_from_weights: Callable[[Any, Mapping[str, Any]], Any] = lambda config, tensors: config

    def config(self, values: Mapping[str, Any], where: str = "model") -> Any:
        """Config from plain values; unknown keys and bad values are InputErrors that say where."""
        with _at(where):
            return from_dict(self.config_class, values, where)

    def config_of_json(self, raw: Mapping[str, Any], where: str, **runtime: Any) -> Any:
        """Config from the content of a config.json; ``runtime`` sets fields that are not written
        there."""
        with _at(where):
            return self.config(self.read_config(lsg.normalize_config(raw)) | runtime, where)

    def generation_config(self, config: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """``given`` over the family's defaults; token ids are the config's, a given max_length is
        the length limit."""
        if self.kind == "encoder":
            return {}
        ids = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
        defaults = {name: getattr(config, name) for name in ids} | dict(self.generation)
        given = {key: value for key, value in given.items() if value is not None}
        if "max_length" in given:
            defaults.pop("max_new_tokens", None)
        return defaults | given

    def config_json(self, config: Any) -> dict[str, Any]:
        """Content of config.json: what transformers reads, and the options of the attentions in
        use."""
        left_out = {*self.runtime_fields, *_attention_fields()} - _read_options(config)
        values = {key: value for key, value in vars(config).items() if key not in left_out}
        fixed = {
            "model_type": self.name,
            "architectures": [self.architecture],
            "is_encoder_decoder": True,
        }
        values = fixed | values | self.extra_config(config)
        if not self.is_published(config):
            values["model_type"] = OWN_TYPE + self.name
        elif config.encoder_attention == "lsg":
            values |= lsg.published_entries(self.name, values["architectures"][0])
        return {key: value for key, value in values.items() if value is not None}

    def weight_map(self, config: Any) -> WeightMap:
        """Names of all parameters in state dicts; those that transformers does not have are called
        as they are here."""
        table = self.names(config)
        if self.is_published(config):
            return table
        rows = {row.path: row for row in table.rows}
        return table._replace(
            rows=[_name_row(path, rows) for path in self.parameter_shapes(config)]
        )

    def own_parameters(self, config: Any) -> set[str]:
        """Paths of the parameters that the published class has no counterpart of, whatever
        attention it has."""
        rows = {row.path for row in self.names(config).rows}
        paths = self.parameter_shapes(config)
        return {path for path in paths if (parse_layer_path(path) or (path, 0))[0] not in rows}

    def is_published(self, config: Any) -> bool:
        """Whether the class in transformers computes what this config says."""
        full = getattr(config, "cross_attention", "full") == "full"
        own = (
            _has_memory(config)
            or getattr(config, "page_length", 0)
            or getattr(config, "head", None) == "extraction"
        )
        return config.encoder_attention in self.attentions and full and not own

    def parameter_shapes(self, config: Any) -> dict[str, tuple[int, ...]]:
        """Flat path to shape of every parameter, without creating any."""
        tree = jax.eval_shape(self.init_params(config), jax.random.key(0))
        flat = flax.traverse_util.flatten_dict(nn.meta.unbox(tree), sep="/")
        return {path: leaf.shape for path, leaf in flat.items()}

    def init_params(self, config: Any) -> Callable[[jax.Array], Any]:
        """PRNG key -> parameters boxed with their logical axis names."""
        module = self.module_class(config)

        def init(rng: jax.Array) -> Any:
            ids = [jnp.zeros((1, 2), jnp.int32)] * (2 if self.kind == "encoder" else 3)
            return module.init(rng, *ids)["params"]

        return init


def _name_row(path: str, rows: Mapping[str, WeightRow]) -> WeightRow:
    """The row of ``rows`` for a parameter of some layers of a stack or, where there is none, one of
    our own."""
    whole, first = parse_layer_path(path) or (path, 0)
    row = rows.get(whole) or WeightRow(
        whole, whole.replace("/layers/", "/layers/{i}/").replace("/", ".")
    )
    return row._replace(path=path, first=first)


def _attention_fields() -> set[str]:
    """Config fields that only some attentions read."""
    kinds = EncoderAttentionOptions, CrossAttentionOptions, MemoryOptions, PageOptions
    return {field.name for kind in kinds for field in dataclasses.fields(kind)} - {
        "encoder_attention"
    }


def _read_options(config: Any) -> set[str]:
    """Those of ``_attention_fields`` that ``config`` makes use of; full cross-attention is not
    worth a word."""
    read = set(get_encoder_attention(config).option_names(config.encoder_attention))
    if (name := getattr(config, "cross_attention", "full")) != "full":
        read |= {"cross_attention", *CROSS_ATTENTIONS[name].option_names()}
    if getattr(config, "page_length", 0):
        read |= {field.name for field in dataclasses.fields(PageOptions)}
    return (
        read | {field.name for field in dataclasses.fields(MemoryOptions)}
        if _has_memory(config)
        else read
    )


def _has_memory(config: Any) -> bool:
    """Whether something goes from segment to segment of a document."""
    return isinstance(config, MemoryOptions) and (
        config.memory != "none" or config.salient_vectors > 0
    )


@contextlib.contextmanager
def _at(where: str) -> Iterator[None]:
    """Puts ``where`` before the message of an InputError that does not say it."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(where):
            raise
        raise InputError(f"{where}: {error}") from None
