"""What can be built: model families by name, each with its config, module, presets and names in checkpoints."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.models import locost
from longsum_jax.models.naming import NameRow
from longsum_jax.options import from_dict


@dataclass(frozen=True)
class Family:
    """A model family.

    Attributes:
        name: as in ``model_type`` of config.json.
        architecture: class name in ``architectures`` of config.json.
        config_class: frozen dataclass whose fields have Hugging Face names.
        module_class: the Flax module, built from a config.
        presets: named configs.
        runtime_fields: config fields that say how to compute and are not written to checkpoints.
        read_config: config.json content -> config fields; raises InputError for what is not supported.
        name_table, tied_keys: see ``models.naming``.
        generation: defaults of generation_config.json for checkpoints that have none.
        extra_config: further entries of config.json that the published code reads.
    """

    name: str
    architecture: str
    config_class: type
    module_class: type[nn.Module]
    presets: Mapping[str, Any]
    runtime_fields: tuple[str, ...]
    read_config: Callable[[Mapping[str, Any]], dict[str, Any]]
    name_table: Callable[[Any], list[NameRow]]
    tied_keys: Callable[[Any], dict[str, str]]
    generation: Mapping[str, Any]
    extra_config: Mapping[str, Any]

    def config(self, values: Mapping[str, Any], where: str = "model") -> Any:
        """Config from plain values; unknown keys and bad values are InputErrors that say where."""
        with _at(where):
            return from_dict(self.config_class, values, where)

    def config_of_json(self, raw: Mapping[str, Any], where: str, **runtime: Any) -> Any:
        """Config from the content of a config.json; ``runtime`` sets fields that are not written there."""
        with _at(where):
            return self.config(self.read_config(raw) | runtime, where)

    def generation_config(self, config: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """``given`` over the family's defaults; token ids are the config's, a given max_length is the length limit."""
        ids = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
        defaults = {name: getattr(config, name) for name in ids} | dict(self.generation)
        given = {key: value for key, value in given.items() if value is not None}
        if "max_length" in given:
            defaults.pop("max_new_tokens", None)
        return defaults | given

    def parameter_shapes(self, config: Any) -> dict[str, tuple[int, ...]]:
        """Flat path to shape of every parameter, without creating any."""
        tree = jax.eval_shape(self.init_params(config), jax.random.key(0))
        flat = flax.traverse_util.flatten_dict(nn.meta.unbox(tree), sep="/")
        return {path: leaf.shape for path, leaf in flat.items()}

    def init_params(self, config: Any) -> Callable[[jax.Array], Any]:
        """PRNG key -> parameters boxed with their logical axis names."""
        module = self.module_class(config)

        def init(rng: jax.Array) -> Any:
            ids = jnp.zeros((1, 2), jnp.int32)
            return module.init(rng, ids, ids, ids)["params"]

        return init


@contextlib.contextmanager
def _at(where: str) -> Iterator[None]:
    """Puts ``where`` before the message of an InputError that does not say it."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(where):
            raise
        raise InputError(f"{where}: {error}") from None


FAMILIES: dict[str, Family] = {
    "locost": Family(
        name="locost",
        architecture="LOCOSTForConditionalGeneration",
        config_class=locost.LocostConfig,
        module_class=locost.Locost,
        presets=locost.PRESETS,
        runtime_fields=locost.RUNTIME_FIELDS,
        read_config=locost.read_config,
        name_table=locost.name_table,
        tied_keys=locost.tied_keys,
        # The published evaluation generates greedily up to 512 tokens.
        generation={"max_new_tokens": 512},
        extra_config={"num_ssm_heads": 1, "use_fast_fft_conv": False},
    ),
}


def get_family(name: str) -> Family:
    """The family called ``name``, or an InputError that lists the known ones."""
    if name not in FAMILIES:
        raise InputError(f'unknown model family "{name}"; {did_you_mean(name, FAMILIES)}')
    return FAMILIES[name]


def family_of(raw: Mapping[str, Any], where: str) -> Family:
    """The family that a config.json describes: by model_type, by architecture, or by its keys."""
    model_type = raw.get("model_type") or ""
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    for family in FAMILIES.values():
        if family.architecture in (raw.get("architectures") or []):
            return family
    if not model_type and {"d_state", "num_ssm_heads"} <= raw.keys():
        return FAMILIES["locost"]  # the published LOCOST config names neither
    raise InputError(f'{where}: model_type "{model_type}" is not supported; {did_you_mean(model_type, FAMILIES)}')


def model_config(values: Mapping[str, Any], where: str = "model") -> tuple[Family, Any]:
    """Family and config of a run's "model" section: ``family`` beside the family's own keys."""
    family = get_family(values.get("family", ""))
    return family, family.config({k: v for k, v in values.items() if k != "family"}, where)


def preset(family: str, name: str, **overrides: Any) -> dict[str, Any]:
    """A "model" section for configs: the named preset with some keys replaced."""
    known = get_family(family).presets
    if name not in known:
        raise InputError(f'unknown {family} preset "{name}"; {did_you_mean(name, known)}')
    return {"family": family, **dataclasses.asdict(known[name]), **overrides}
