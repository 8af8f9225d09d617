"""The model from which a training run is initialized.

It is a directory or workdir that may lack a head, or this library's additions
to a family.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax

from longsum_jax.errors import InputError
from longsum_jax.inference.loading import load_model
from longsum_jax.inference.model import LoadedModel
from longsum_jax.layers.layer_groups import regroup
from longsum_jax.models.family import Family
from longsum_jax.schema import compare_trees
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.typing import Params

# Paths of task-specific parameters; all others can be pre-trained.
HEAD = ("head/", "final_logits_bias")
# Paths of the encoder's attention, for ``config.init_fresh``.
ENCODER_ATTENTION = (
    "encoder/layers/self_attention/",
    "encoder/attention/",
    "encoder/relative_attention_bias/",
)
# Config fields that do not affect parameter shapes, except the fields of
# attentions.
_COMPUTATION = (
    "activation_function",
    "feed_forward_proj",
    "hidden_act",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "relative_attention_max_distance",
    "rescale_embeddings",
    "scale_embedding",
    "scales_outputs",
)


class WarmStart:
    """The model of ``init_from``, whose parameters initialize a run.

    Args:
        path: model directory, training workdir, or name on the Hub.
        family: family of the model to train.
        config: config of the model to train.
        seed: random seed of the parameters that are missing in ``path``.
        draws_attention: True to reinitialize the encoder's attention even if
            ``path`` has one; its family may then be another one whose other
            layers are the same.

    Attributes:
        generation_config: generation options of the start model, from its
            directory.
        summarization: summarization settings of the start model, from its
            config.json.
        auxiliary: auxiliary models of the start model, for reading segments.
        fresh: paths of new parameters: of the head, of additions to the
            family's published class (attention or memories), or of the whole
            encoder attention.

    Raises:
        InputError: the model cannot be loaded, is of another family, has other
            parameters that differ, or uses them in another computation.
    """

    def __init__(
        self,
        path: str,
        family: Family,
        config: Any,
        seed: int = 0,
        *,
        draws_attention: bool = False,
    ) -> None:
        self._path, self._family, self._config, self._seed = (
            path,
            family,
            config,
            seed,
        )
        self._drawn = ENCODER_ATTENTION if draws_attention else ()
        self._model = load_model(LoadedModel, path)
        self._shapes = family.parameter_shapes(config)
        self.generation_config = self._model.generation_config
        self.summarization = self._model.summarization
        self.auxiliary = self._model.auxiliary
        self.fresh = self._compare(path)
        self._check_computation(path)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; InputError if the start model has none."""
        if not self._model.has_tokenizer:
            raise InputError(
                f"config.tokenizer.path is empty and {self._path} holds no tokenizer; give one"
            )
        return self._model.tokenizer

    @property
    def fingerprint(self) -> str:
        """A short hash of the start model's weights."""
        return self._model.fingerprint

    @cached_property
    def params(self) -> Params:
        """The parameters, with the parameters in ``fresh`` reinitialized."""
        loaded = self._loaded_params()
        drawn = self._draw_fresh() if self.fresh else {}
        flat = {
            name: drawn[name] if name in drawn else loaded[name]
            for name in self._shapes
        }
        return flax.traverse_util.unflatten_dict(flat, sep="/")

    def _compare(self, path: str) -> list[str]:
        """Returns the names of fresh parameters; InputError if any other parameter differs."""
        expected = self._shapes
        unpublished = self._family.unpublished_parameters(self._config)
        shapes = {
            name: x.shape
            for name, x in jax.eval_shape(self._loaded_params).items()
        }
        difference = compare_trees(expected, shapes)
        differing = sorted(name for names in difference for name in names)
        foreign = [
            name
            for name in differing
            if not name.startswith((*HEAD, *self._drawn))
            and (name in shapes or name not in unpublished)
        ]
        if foreign and all(
            name.startswith(ENCODER_ATTENTION) for name in foreign
        ):
            raise InputError(
                f"config.init_from: the encoder of {path} has another attention than config.model "
                f"({foreign[0]} is only in one of them); give the same, or initialize it by "
                "config.init_fresh=encoder_attention"
            )
        is_other_family = (
            self._model.family is not self._family and not self._drawn
        )
        if is_other_family or foreign:
            first = foreign[0] if foreign else "its family"
            raise InputError(
                f"config.init_from: {path} differs from config.model in "
                f"{first} ({shapes.get(first)} there, {expected.get(first)} here) and "
                f"{max(len(foreign) - 1, 0)} more"
            )
        new = self._drawn
        if (
            self._model.config.head != self._config.head
            or self._has_other_labels()
        ):
            # other heads and labels may share the names of parameters
            new = (*new, *HEAD)
        return [
            name
            for name in expected
            if name.startswith(new) or name in differing
        ]

    def _has_other_labels(self) -> bool:
        """Returns True if the head's rows are for other labels, or for another order of labels."""
        there, here = (
            getattr(c, "id2label", ())
            for c in (self._model.config, self._config)
        )
        return bool(there and here) and tuple(there) != tuple(here)

    def _check_computation(self, path: str) -> None:
        """Raises InputError for a field that changes the computation with the parameters."""
        for name in _COMPUTATION:
            there, here = (
                getattr(c, name, None)
                for c in (self._model.config, self._config)
            )
            if there != here:
                raise InputError(
                    f"config.init_from: {path} computes with {name}={there!r}, config.model with "
                    f"{here!r}; give the same"
                )

    def _loaded_params(self) -> dict[str, Any]:
        """Returns arrays by flat path, with layers grouped as in the model to train."""
        flat = flax.traverse_util.flatten_dict(
            _to_dict(self._model.params), sep="/"
        )
        return regroup(flat, self._shapes)

    def _draw_fresh(self) -> dict[str, Any]:
        """Returns random values of the fresh parameters, without computing the others."""
        init = self._family.init_params(self._config)

        def draw(key: jax.Array) -> dict[str, Any]:
            params = nn.meta.unbox(init(key))
            flat = flax.traverse_util.flatten_dict(_to_dict(params), sep="/")
            return {name: flat[name] for name in self.fresh}

        return jax.jit(draw)(jax.random.key(self._seed))


def fingerprint(path: str) -> str:
    """Returns a short hash of a model's weights, as ``WarmStart.fingerprint`` does."""
    return load_model(LoadedModel, path).fingerprint


def _to_dict(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested mappings as nested dictionaries."""
    return {
        name: _to_dict(value) if isinstance(value, Mapping) else value
        for name, value in params.items()
    }
