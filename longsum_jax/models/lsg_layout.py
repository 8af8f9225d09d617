"""How published LSG checkpoints name themselves: BERT, RoBERTa, DistilBERT, BART and PEGASUS with
LSG attention.

They keep the model_type of the model they were made from; ``base_model_prefix`` is "lsg", and the
architecture begins with "LSG". Their code is not part of a checkpoint of ours: ``auto_map`` only
says under which names to put it.
"""

from collections.abc import Mapping
from typing import Any

MARK = "lsg"
# What the published code assumes where a config.json has no such key.
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
    task: f"For{task}" for task in ("MaskedLM", "MultipleChoice", *_TASKS, "TokenClassification")
}
_DECODER_TASKS = {
    "CausalLM": "ForCausalLM",
    **{task: f"For{task}" for task in _TASKS},
    "Seq2SeqLM": "ForConditionalGeneration",
}
# model_type -> name in classes, and end of transformers' automatic class -> end of the published
# one.
_CLASSES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "bert": (
        "Bert",
        {"CausalLM": "LMHeadModel", "PreTraining": "ForPreTraining", **_ENCODER_TASKS},
    ),
    "roberta": ("Roberta", {"CausalLM": "ForCausalLM", **_ENCODER_TASKS}),
    "distilbert": ("DistilBert", _ENCODER_TASKS),
    "bart": ("Bart", _DECODER_TASKS),
    "pegasus": ("Pegasus", {name: _DECODER_TASKS[name] for name in ("CausalLM", "Seq2SeqLM")}),
}


def normalize_config(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """A config.json whose keys are our fields, where ``raw`` is one of an LSG model; any other one
    as it is."""
    named = any(str(name).startswith("LSG") for name in raw.get("architectures") or ())
    if raw.get("base_model_prefix") != MARK and not named:
        return raw
    values = {**DEFAULTS, **raw, "encoder_attention": "lsg"}
    if values["sparsity_type"] is None:
        values["sparsity_type"] = "none"
    values["num_global_tokens"] = max(1, values["num_global_tokens"])  # as the published code does
    return values


def plain_architecture(name: str) -> str:
    """The architecture without the mark of LSG."""
    return name.removeprefix("LSG")


def published_entries(model_type: str, architecture: str) -> dict[str, Any]:
    """Entries of config.json by which the published code knows its models."""
    name, tasks = _CLASSES[model_type]
    ends = {"AutoModel": "Model", **{f"AutoModelFor{task}": end for task, end in tasks.items()}}
    return {
        "architectures": ["LSG" + architecture],
        "base_model_prefix": MARK,
        "auto_map": {
            auto: f"modeling_lsg_{model_type}.LSG{name}{end}" for auto, end in ends.items()
        },
    }
