"""The model that a training run starts from: a directory or workdir that may lack a head or what we
add to a family."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax

from longsum_jax.errors import InputError
from longsum_jax.inference.loading import load
from longsum_jax.layers.layer_groups import regroup
from longsum_jax.models.family import Family
from longsum_jax.schema import compare_trees
from longsum_jax.typing import Params

HEAD = "head/"  # parameters below it belong to a task; all others are what pre-training is for


class WarmStart:
    """What ``init_from`` names.

    Args:
        path: a model directory, a training workdir, or a name on the Hub.
        family, config: the model to be trained.
        seed: of the parameters that ``path`` does not have.

    Attributes:
        tokenizer: None when there is none at ``path``.
        generation_config, summarization: as there.
        fresh: paths of the parameters that are new: the head's, and those that the family's
            published class has no counterpart of (an attention's own, memories).

    Raises:
        InputError: nothing that can be loaded, another family, or other parameters that differ.
    """

    def __init__(self, path: str, family: Family, config: Any, seed: int = 0) -> None:
        self._path, self._family, self._config, self._seed = path, family, config, seed
        self._model = load(path)
        self.tokenizer, self.generation_config = (
            self._model.tokenizer,
            self._model.generation_config,
        )
        self.summarization = self._model.summarization
        self.fresh = self._compare()

    def _compare(self) -> list[str]:
        wanted, own = (
            self._family.parameter_shapes(self._config),
            self._family.unpublished_parameters(self._config),
        )
        found = {name: x.shape for name, x in jax.eval_shape(self._there).items()}
        difference = compare_trees(wanted, found)
        differing = sorted(name for names in difference for name in names)
        foreign = [
            name
            for name in differing
            if not name.startswith(HEAD) and (name in found or name not in own)
        ]
        if self._model.family is not self._family or foreign:
            first = foreign[0] if foreign else "its family"
            raise InputError(
                f"config.init_from: {self._path} is another model than config.model, differing in {first} "
                f"({found.get(first)} there, {wanted.get(first)} here) and {max(len(foreign) - 1, 0)} more"
            )
        if self._model.config.head == self._config.head:
            return [name for name in differing if name in wanted]
        # Layers of another head may bear the same names.
        return [name for name in wanted if name.startswith(HEAD) or name in differing]

    def _there(self) -> dict[str, Any]:
        """Flat path to array of what was loaded, its layers in the groups of the model to be
        trained."""
        flat = flax.traverse_util.flatten_dict(_plain(self._model.params), sep="/")
        return regroup(flat, self._family.parameter_shapes(self._config))

    @cached_property
    def params(self) -> Params:
        """The parameters, those of a fresh head drawn anew."""
        names = self._family.parameter_shapes(self._config)
        there = self._there()
        drawn = self._drawn() if self.fresh else {}
        flat = {name: drawn[name] if name in drawn else there[name] for name in names}
        return flax.traverse_util.unflatten_dict(flat, sep="/")

    def _drawn(self) -> dict[str, Any]:
        """Random values of the fresh parameters alone; what the others would be is never
        computed."""
        init = self._family.init_params(self._config)

        def draw(key: jax.Array) -> dict[str, Any]:
            flat = flax.traverse_util.flatten_dict(_plain(nn.meta.unbox(init(key))), sep="/")
            return {name: flat[name] for name in self.fresh}

        return jax.jit(draw)(jax.random.key(self._seed))


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _plain(value) if isinstance(value, Mapping) else value for key, value in params.items()
    }
