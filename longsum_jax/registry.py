"""What can be built: model families by name, each with its config, module, presets and names in checkpoints."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.cross_attention import CROSS_ATTENTIONS
from longsum_jax.layers.encoder_attention import get_encoder_attention
from longsum_jax.layers.groups import layers_of_path
from longsum_jax.layers.stack import CrossAttentionOptions, EncoderAttentionOptions, MemoryOptions, PageOptions
from longsum_jax.models import bart, bert, locost, lsg, t5
from longsum_jax.models.naming import NameRow, NameTable
from longsum_jax.options import from_dict

OWN_TYPE = "longsum_jax/"  # before the family's name in model_type, for models that exist here alone


@dataclass(frozen=True)
class Family:
    """A model family.

    Attributes:
        name: as in ``model_type`` of config.json.
        architecture: class name in ``architectures`` of config.json.
        kind: "encoder" for families without a decoder.
        attentions: encoder attentions that the class in transformers, or a published one made from it, has. A model
            with another one, or with another cross-attention than the full one, is saved under a model_type of ours,
            so that no other library reads it as what it is not.
        config_class: frozen dataclass whose fields have Hugging Face names.
        module_class: the Flax module, built from a config.
        presets: named configs.
        runtime_fields: config fields that say how to compute and are not written to checkpoints.
        read_config: config.json content -> config fields; raises InputError for what is not supported.
        names: config -> names in state dicts of transformers, see ``models.naming``.
        generation: defaults of generation_config.json for checkpoints that have none.
        extra_config: config -> further entries of config.json that the published code reads.
        refine_config: (config, tensors by key as stored) -> config, for what only the tensors tell: whether the
            output weights are tied, which head there is. A tensor has shape and dtype, and ``np.asarray`` reads it.
    """

    name: str
    architecture: str
    config_class: type
    module_class: type[nn.Module]
    presets: Mapping[str, Any]
    runtime_fields: tuple[str, ...]
    read_config: Callable[[Mapping[str, Any]], dict[str, Any]]
    names: Callable[[Any], NameTable]
    generation: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"max_new_tokens": 256})
    extra_config: Callable[[Any], dict[str, Any]] = lambda config: {}
    kind: Literal["encoder_decoder", "encoder"] = "encoder_decoder"
    attentions: tuple[str, ...] = ("full",)
    refine_config: Callable[[Any, Mapping[str, Any]], Any] = lambda config, tensors: config

    def config(self, values: Mapping[str, Any], where: str = "model") -> Any:
        """Config from plain values; unknown keys and bad values are InputErrors that say where."""
        with _at(where):
            return from_dict(self.config_class, values, where)

    def config_of_json(self, raw: Mapping[str, Any], where: str, **runtime: Any) -> Any:
        """Config from the content of a config.json; ``runtime`` sets fields that are not written there."""
        with _at(where):
            return self.config(self.read_config(lsg.understood(raw)) | runtime, where)

    def generation_config(self, config: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """``given`` over the family's defaults; token ids are the config's, a given max_length is the length limit."""
        if self.kind == "encoder":
            return {}
        ids = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
        defaults = {name: getattr(config, name) for name in ids} | dict(self.generation)
        given = {key: value for key, value in given.items() if value is not None}
        if "max_length" in given:
            defaults.pop("max_new_tokens", None)
        return defaults | given

    def config_json(self, config: Any) -> dict[str, Any]:
        """Content of config.json: what transformers reads, and the options of the attentions in use."""
        left_out = {*self.runtime_fields, *_attention_fields()} - _read_options(config)
        values = {key: value for key, value in vars(config).items() if key not in left_out}
        fixed = {"model_type": self.name, "architectures": [self.architecture], "is_encoder_decoder": True}
        values = fixed | values | self.extra_config(config)
        if not self.is_published(config):
            values["model_type"] = OWN_TYPE + self.name
        elif config.encoder_attention == "lsg":
            values |= lsg.published_entries(self.name, values["architectures"][0])
        return {key: value for key, value in values.items() if value is not None}

    def name_table(self, config: Any) -> NameTable:
        """Names of all parameters in state dicts; those that transformers does not have are called as they are here."""
        table = self.names(config)
        if self.is_published(config):
            return table
        rows = {row.path: row for row in table.rows}
        return table._replace(rows=[_name_row(path, rows) for path in self.parameter_shapes(config)])

    def own_parameters(self, config: Any) -> set[str]:
        """Paths of the parameters that the published class has no counterpart of, whatever attention it has."""
        rows = {row.path for row in self.names(config).rows}
        paths = self.parameter_shapes(config)
        return {path for path in paths if (layers_of_path(path) or (path, 0))[0] not in rows}

    def is_published(self, config: Any) -> bool:
        """Whether the class in transformers computes what this config says."""
        full = getattr(config, "cross_attention", "full") == "full"
        own = _has_memory(config) or getattr(config, "page_length", 0) or getattr(config, "head", None) == "extraction"
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


def _name_row(path: str, rows: Mapping[str, NameRow]) -> NameRow:
    """The row of ``rows`` for a parameter of some layers of a stack or, where there is none, one of our own."""
    whole, first = layers_of_path(path) or (path, 0)
    row = rows.get(whole) or NameRow(whole, whole.replace("/layers/", "/layers/{i}/").replace("/", "."))
    return row._replace(path=path, first=first)


def _attention_fields() -> set[str]:
    """Config fields that only some attentions read."""
    kinds = EncoderAttentionOptions, CrossAttentionOptions, MemoryOptions, PageOptions
    return {field.name for kind in kinds for field in dataclasses.fields(kind)} - {"encoder_attention"}


def _read_options(config: Any) -> set[str]:
    """Those of ``_attention_fields`` that ``config`` makes use of; full cross-attention is not worth a word."""
    read = set(get_encoder_attention(config).options)
    if (name := getattr(config, "cross_attention", "full")) != "full":
        read |= {"cross_attention", *CROSS_ATTENTIONS[name].options}
    if getattr(config, "page_length", 0):
        read |= {field.name for field in dataclasses.fields(PageOptions)}
    return read | {field.name for field in dataclasses.fields(MemoryOptions)} if _has_memory(config) else read


def _has_memory(config: Any) -> bool:
    """Whether something goes from segment to segment of a document."""
    return isinstance(config, MemoryOptions) and (config.memory != "none" or config.salient_vectors > 0)


@contextlib.contextmanager
def _at(where: str) -> Iterator[None]:
    """Puts ``where`` before the message of an InputError that does not say it."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(where):
            raise
        raise InputError(f"{where}: {error}") from None


def _t5_family(name: str, architecture: str, **fields: Any) -> Family:
    return Family(
        **{
            "name": name,
            "architecture": architecture,
            "module_class": t5.T5,
            "runtime_fields": t5.RUNTIME_FIELDS,
            "names": t5.name_table,
            "refine_config": t5.refine_config,
            "extra_config": t5.write_config,
        }
        | fields
    )


def _bart_family(
    name: str, architecture: str, config_class: type[bart.BartConfig], *attentions: str, **tiny: Any
) -> Family:
    return Family(
        name=name,
        architecture=f"{architecture}ForConditionalGeneration",
        config_class=config_class,
        module_class=bart.Bart,
        presets=bart.presets(config_class, **tiny),
        runtime_fields=bart.RUNTIME_FIELDS,
        read_config=partial(bart.read_config, config_class=config_class),
        names=bart.name_table,
        attentions=attentions,
        extra_config=bart.write_config,
    )


def _bert_family(name: str, architecture: str, config_class: type[bert.BertConfig]) -> Family:
    return Family(
        name=name,
        kind="encoder",
        architecture=f"{architecture}ForMaskedLM",
        config_class=config_class,
        module_class=bert.Bert,
        presets=bert.presets(config_class),
        runtime_fields=bert.RUNTIME_FIELDS,
        read_config=partial(bert.read_config, config_class=config_class),
        names=bert.name_table,
        attentions=("full", "lsg"),
        refine_config=bert.refine_config,
        extra_config=bert.write_config,
    )


_FAMILIES = (
    _t5_family(
        "locost",
        "LOCOSTForConditionalGeneration",
        config_class=locost.LocostConfig,
        presets=locost.PRESETS,
        read_config=locost.read_config,
        names=locost.name_table,
        attentions=("s4d",),
        # The published evaluation generates greedily up to 512 tokens.
        generation={"max_new_tokens": 512},
        extra_config=locost.write_config,
    ),
    _t5_family(
        "t5",
        "T5ForConditionalGeneration",
        config_class=t5.T5Config,
        presets=t5.PRESETS,
        read_config=t5.read_config,
    ),
    _t5_family(
        "longt5",
        "LongT5ForConditionalGeneration",
        config_class=t5.LongT5Config,
        presets=t5.LONGT5_PRESETS,
        read_config=t5.read_longt5_config,
        attentions=("local", "transient_global"),
    ),
    _bart_family("bart", "Bart", bart.BartConfig, "full", "lsg", max_position_embeddings=512),
    _bart_family("pegasus", "Pegasus", bart.PegasusConfig, "full", "lsg", max_position_embeddings=512),
    _bart_family("pegasus_x", "PegasusX", bart.PegasusXConfig, "block_staggered", block_size=32, num_global_tokens=8),
    _bart_family(
        "led",
        "LED",
        bart.LedConfig,
        "longformer",
        attention_window=(32,),
        max_encoder_position_embeddings=1024,
        max_decoder_position_embeddings=512,
    ),
    _bart_family(
        "bigbird_pegasus",
        "BigBirdPegasus",
        bart.BigBirdPegasusConfig,
        "bigbird",
        "full",
        block_size=16,
        max_position_embeddings=1024,
    ),
    _bert_family("bert", "Bert", bert.BertConfig),
    _bert_family("roberta", "Roberta", bert.RobertaConfig),
    _bert_family("distilbert", "DistilBert", bert.DistilBertConfig),
)

FAMILIES: dict[str, Family] = {family.name: family for family in _FAMILIES}


def get_family(name: str) -> Family:
    """The family called ``name``, or an InputError that lists the known ones."""
    if name not in FAMILIES:
        raise InputError(f'unknown model family "{name}"; {did_you_mean(name, FAMILIES)}')
    return FAMILIES[name]


def family_of(raw: Mapping[str, Any], where: str) -> Family:
    """The family that a config.json describes: by model_type, by architecture, or by its keys."""
    model_type = (raw.get("model_type") or "").removeprefix(OWN_TYPE)
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    for family in FAMILIES.values():
        if family.architecture in map(lsg.plain_architecture, raw.get("architectures") or []):
            return family
    if not model_type and {"d_state", "num_ssm_heads"} <= raw.keys():
        return FAMILIES["locost"]  # the published LOCOST config names neither
    raise InputError(f'{where}: model_type "{model_type}" is not supported; {did_you_mean(model_type, FAMILIES)}')


def model_config(values: Mapping[str, Any], where: str = "model") -> tuple[Family, Any]:
    """Family and config of a run's "model" section: ``family`` beside the family's own keys."""
    family = get_family(values.get("family", ""))
    return family, family.config({k: v for k, v in values.items() if k != "family"}, where)


def longest_source(config: Any) -> int | None:
    """Tokens that a model reads at most: its positions, and what its attentions have weights for; None without end."""
    kinds = [get_encoder_attention(config)]
    if hasattr(config, "cross_attention"):
        kinds.append(CROSS_ATTENTIONS[config.cross_attention])
    limits = [getattr(config, kind.limit) for kind in kinds if kind.limit] + [config.max_source_length]
    return min((limit for limit in limits if limit is not None), default=None)


def preset(family: str, name: str, **overrides: Any) -> dict[str, Any]:
    """A "model" section for configs: the named preset with some keys replaced."""
    known = get_family(family).presets
    if name not in known:
        raise InputError(f'unknown {family} preset "{name}"; {did_you_mean(name, known)}')
    return {"family": family, **dataclasses.asdict(known[name]), **overrides}
