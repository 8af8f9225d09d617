"""A model family: its config, module, presets and names in checkpoints."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.options import option_names
from longsum_jax.layers.layer_groups import (
    is_hybrid,
    parse_hybrid,
    parse_layer_path,
)
from longsum_jax.layers.stack import MemoryOptions, PageOptions
from longsum_jax.models import lsg_layout
from longsum_jax.models.config import EncoderDecoderConfig, ModelConfig
from longsum_jax.models.weight_map import WeightMap, WeightRow

# Prefix of the family's name in the model_type of models that only this library
# supports.
LIBRARY_PREFIX = "longsum_jax/"


def _keep_config(config: Any, tensors: Mapping[str, Any]) -> Any:
    """Returns the config unchanged: it does not depend on the stored tensors."""
    return config


@dataclass(frozen=True, kw_only=True)
class Family:
    """A model family.

    Attributes:
        name: ``model_type`` of config.json.
        architecture: class name in ``architectures`` of config.json.
        config_class: frozen dataclass whose fields have Hugging Face names.
        module_class: Flax module class, constructed from a config.
        presets: configs by name.
        runtime_fields: config fields that select how to compute and are not
            written to checkpoints.
        read_config: function from the content of a config.json to config
            fields; it raises an InputError if the model is not supported.
        published_weight_map: function from a config to the names of the
            parameters in state dicts of transformers; see ``weight_map`` for
            any model.
        write_config: function from a config to the entries of config.json that
            the published code reads in addition to or instead of the fields;
            None removes an entry.
        infer_from_weights: function (config, tensors by key as stored) ->
            config that sets the fields that depend on the stored tensors: tied
            output weights, a pooler, stored position tables. A tensor has a
            shape and a dtype, and ``np.asarray`` reads it.
        is_encoder_decoder: False for families without a decoder.
        attentions: encoder attentions of the class in transformers, or of a
            published class derived from it. A model with another encoder
            attention, or without full cross-attention, is saved under a
            model_type of this library, so that other libraries do not misread
            it.
        mixes_attentions: True if the layers of a published model may have
            different ``attentions``.
        generation: defaults for checkpoints without generation_config.json.
            Their maximum length counts the start token: with ``max_new_tokens``
            in the file, a ``max_length`` passed by a transformers user would
            have no effect.
    """

    name: str
    architecture: str
    config_class: type[ModelConfig]
    module_class: Callable[[Any], Any]
    presets: Mapping[str, ModelConfig]
    runtime_fields: tuple[str, ...]
    read_config: Callable[[Mapping[str, Any]], dict[str, Any]]
    published_weight_map: Callable[[Any], WeightMap]
    write_config: Callable[[Any], dict[str, Any]]
    infer_from_weights: Callable[[Any, Mapping[str, Any]], Any] = _keep_config
    is_encoder_decoder: bool = True
    attentions: tuple[str, ...] = ("full",)
    mixes_attentions: bool = False
    generation: Mapping[str, Any] = field(
        default_factory=lambda: {"max_length": 257}
    )

    def config(
        self, values: Mapping[str, Any], where: str = "model"
    ) -> ModelConfig:
        """Returns the config with these field values.

        Args:
            values: fields and options by their keys in config.json.
            where: name of the values in error messages.

        Raises:
            InputError: an unknown key or an invalid value; begins with
                ``where``.
        """
        with _errors_at(where):
            return self.config_class.from_flat(values, where)

    def config_of_json(
        self, raw: Mapping[str, Any], where: str, **runtime: Any
    ) -> ModelConfig:
        """Returns the config described by a config.json.

        Args:
            raw: content of the file.
            where: path of the file, for error messages.
            **runtime: values of ``runtime_fields``, which are not in the file.

        Raises:
            InputError: an unsupported model, or an invalid value.
        """
        with _errors_at(where):
            values = self.read_config(lsg_layout.normalize_config(raw))
            return self.config(values | runtime, where)

    def config_json(self, config: ModelConfig) -> dict[str, Any]:
        """Returns the content of config.json.

        It contains the keys that transformers reads, and the options of the
        attentions in use.
        """
        left_out = _unused_keys(config).union(self.runtime_fields)
        values: dict[str, Any] = {
            "model_type": self.name,
            "architectures": [self.architecture],
            "is_encoder_decoder": True,
        }
        values |= {
            key: value
            for key, value in config.flat().items()
            if key not in left_out
        }
        values |= self.write_config(config)
        if not self.is_published(config):
            values["model_type"] = LIBRARY_PREFIX + self.name
        elif config.encoder_attention == "lsg":
            values |= lsg_layout.published_entries(
                self.name, values["architectures"][0]
            )
        return {
            key: value for key, value in values.items() if value is not None
        }

    def generation_config(
        self, config: ModelConfig, stored: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the content of generation_config.json.

        Args:
            config: config whose token ids are defaults.
            stored: options that override the defaults; None counts as absent.
                ``max_new_tokens`` replaces the default ``max_length``, which is
                never more than the decoder can read.
        """
        if (
            not isinstance(config, EncoderDecoderConfig)
            or config.head != "language_model"
        ):
            return {}
        ids = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
        defaults = {name: getattr(config, name) for name in ids}
        defaults |= self.generation
        if config.max_target_length is not None:
            longest = 1 + config.max_target_length
            defaults["max_length"] = min(defaults["max_length"], longest)
        stored = {
            key: value for key, value in stored.items() if value is not None
        }
        if "max_new_tokens" in stored:
            del defaults["max_length"]
        return defaults | stored

    def weight_map(self, config: ModelConfig) -> WeightMap:
        """Returns the names of all parameters in state dicts.

        Parameters without a counterpart in transformers keep their path, with
        dots for slashes.
        """
        published = self.published_weight_map(config)
        rows = {row.path: row for row in published.rows}
        paths = self.parameter_shapes(config)
        if self.is_published(config) and rows.keys() == paths.keys():
            return published
        return published._replace(
            rows=[_weight_row(path, rows) for path in paths]
        )

    def unpublished_parameters(self, config: ModelConfig) -> set[str]:
        """Returns the paths of the parameters without a counterpart in the published class."""
        published = {row.path for row in self.published_weight_map(config).rows}
        paths = self.parameter_shapes(config)
        return {
            path
            for path in paths
            if _path_in_equal_stack(path)[0] not in published
        }

    def is_published(self, config: ModelConfig) -> bool:
        """Returns True if the class in transformers supports the model of this config."""
        names = [config.encoder_attention]
        if self.mixes_attentions and is_hybrid(config.encoder_attention):
            names = [name for name, _ in parse_hybrid(config.encoder_attention)]
        if (
            not set(names) <= set(self.published_attentions(config))
            or config.head == "extraction"
        ):
            return False
        if not isinstance(config, EncoderDecoderConfig):
            return True
        full = config.cross_attention == "full"
        return full and not config.pages.page_length and not config.has_memory

    def published_attentions(self, config: ModelConfig) -> tuple[str, ...]:
        """Returns ``attentions``; a family may override it if they depend on the config."""
        return self.attentions

    def parameter_shapes(
        self, config: ModelConfig
    ) -> dict[str, tuple[int, ...]]:
        """Returns the shape of every parameter by its path ("a/b/kernel"), without creating any."""
        parameters = _parameters(self.module_class, config, self._num_inputs)
        return {path: leaf.value.shape for path, leaf in parameters.items()}

    def parameter_axes(
        self, config: ModelConfig
    ) -> dict[str, tuple[str | None, ...]]:
        """Returns the logical names of every parameter's axes by its path."""
        parameters = _parameters(self.module_class, config, self._num_inputs)
        return {path: leaf.names for path, leaf in parameters.items()}

    def init_params(self, config: ModelConfig) -> Callable[[jax.Array], Any]:
        """Returns a function from a PRNG key to parameters boxed with their logical axis names."""
        return _init_fn(self.module_class, config, self._num_inputs)

    @property
    def _num_inputs(self) -> int:
        """Number of arrays that the module is called with: ids, mask, and ids of the decoder."""
        return 3 if self.is_encoder_decoder else 2


# Tracing a model takes a second, and loading, saving and training repeatedly
# need the same shapes. A jitted function is traced once for all callers.
@functools.lru_cache(maxsize=64)
def _init_fn(
    module_class: Callable[[Any], nn.Module],
    config: ModelConfig,
    num_inputs: int,
) -> Callable[[jax.Array], Any]:
    module = module_class(config)

    @jax.jit
    def init(rng: jax.Array) -> Any:
        inputs = [jnp.zeros((1, 2), jnp.int32)] * num_inputs
        return module.init(rng, *inputs)["params"]

    return init


@functools.lru_cache(maxsize=64)
def _parameters(
    module_class: Callable[[Any], nn.Module],
    config: ModelConfig,
    num_inputs: int,
) -> Mapping[str, nn.LogicallyPartitioned]:
    """Returns the shape of every parameter, boxed with the names of its axes, by its path."""
    tree = jax.eval_shape(
        _init_fn(module_class, config, num_inputs), jax.random.key(0)
    )
    return flax.traverse_util.flatten_dict(tree, sep="/")


def _path_in_equal_stack(path: str) -> tuple[str, int]:
    """Returns the path in a stack of equal layers ("layers"), and the index of the first layer."""
    return parse_layer_path(path) or (path, 0)


def _weight_row(path: str, rows: Mapping[str, WeightRow]) -> WeightRow:
    """Returns the row of a parameter: from ``rows``, or with a name specific to this library."""
    stacked_path, first = _path_in_equal_stack(path)
    row = rows.get(stacked_path)
    if row is None:
        key = stacked_path.replace("/layers/", "/layers/{i}/").replace("/", ".")
        row = WeightRow(stacked_path, key)
    return row._replace(path=path, first=first)


def _unused_keys(config: ModelConfig) -> set[str]:
    """Returns keys that config.json lacks because they say how to compute, or nothing."""
    unused = {"attention_backend", "ssm_backend", *dict(config.unused_options)}
    if not isinstance(config, EncoderDecoderConfig):
        return unused
    if config.cross_attention == "full":
        unused.add("cross_attention")
    if not config.pages.page_length:
        unused.update(option_names(PageOptions))
    if not config.has_memory:
        unused.update(option_names(MemoryOptions))
    return unused


@contextlib.contextmanager
def _errors_at(where: str) -> Iterator[None]:
    """Prefixes every InputError with ``where``, unless it already begins with it."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(where):
            raise
        raise InputError(f"{where}: {error}") from None
