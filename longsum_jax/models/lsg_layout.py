"""The config.json of published LSG checkpoints.

They keep the model_type of the model that they were converted from;
``base_model_prefix`` is "lsg", and the architecture begins with "LSG".
Checkpoints of this library do not contain the published code: ``auto_map`` only
lists the names under which it must be placed.
"""

from collections.abc import Mapping
from typing import Any

MARK = "lsg"
# Defaults of the published code, for keys that a config.json lacks.
DEFAULTS: Mapping[str, Any] = {
    "block_size": 128,
    "sparse_block_size": 128,
    "sparsity_factor": 2,
    "sparsity_type": "norm",
    "num_global_tokens": 1,
}
GLOBALS = "encoder/attention/global_embeddings"  # path of the parameter

_TASKS = ("QuestionAnswering", "SequenceClassification")
_ENCODER_TASKS = {
    task: f"For{task}"
    for task in ("MaskedLM", "MultipleChoice", *_TASKS, "TokenClassification")
}
_DECODER_TASKS = {
    "CausalLM": "ForCausalLM",
    **{task: f"For{task}" for task in _TASKS},
    "Seq2SeqLM": "ForConditionalGeneration",
}
_PRETRAINING = {"PreTraining": "ForPreTraining"}
_CAUSAL = {"CausalLM": "ForCausalLM"}
# model_type to the name in class names, and to a mapping from the suffix of
# transformers' auto class to the suffix of the published class.
_CLASSES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "bert": (
        "Bert",
        {"CausalLM": "LMHeadModel", **_PRETRAINING, **_ENCODER_TASKS},
    ),
    "roberta": ("Roberta", _CAUSAL | _ENCODER_TASKS),
    "xlm-roberta": ("XLMRoberta", _CAUSAL | _ENCODER_TASKS),
    "camembert": ("Camembert", _CAUSAL | _ENCODER_TASKS),
    "electra": ("Electra", _CAUSAL | _PRETRAINING | _ENCODER_TASKS),
    "albert": ("Albert", _PRETRAINING | _ENCODER_TASKS),
    "distilbert": ("DistilBert", _ENCODER_TASKS),
    "bart": ("Bart", _DECODER_TASKS),
    "mbart": ("MBart", _DECODER_TASKS),
    "pegasus": (
        "Pegasus",
        {name: _DECODER_TASKS[name] for name in ("CausalLM", "Seq2SeqLM")},
    ),
}


def normalize_config(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a config.json with the keys of this library's fields.

    Only the config.json of an LSG model changes; any other is returned
    unchanged.
    """
    architectures = raw.get("architectures") or ()
    is_lsg = any(str(name).startswith("LSG") for name in architectures)
    if raw.get("base_model_prefix") != MARK and not is_lsg:
        return raw
    values = {**DEFAULTS, **raw, "encoder_attention": "lsg"}
    if values["sparsity_type"] is None:
        values["sparsity_type"] = "none"
    # as in the published code
    values["num_global_tokens"] = max(1, values["num_global_tokens"])
    return values


def plain_architecture(name: str) -> str:
    """Returns the architecture without the prefix "LSG"."""
    return name.removeprefix("LSG")


def published_entries(model_type: str, architecture: str) -> dict[str, Any]:
    """Returns the entries of config.json by which the published code recognizes its models."""
    name, suffixes = _CLASSES[model_type]
    module = f"modeling_lsg_{model_type.replace('-', '_')}"
    auto_map = {"AutoModel": f"{module}.LSG{name}Model"}
    for task, suffix in suffixes.items():
        auto_map[f"AutoModelFor{task}"] = f"{module}.LSG{name}{suffix}"
    return {
        "architectures": ["LSG" + architecture],
        "base_model_prefix": MARK,
        "auto_map": auto_map,
    }
