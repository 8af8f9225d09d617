"""Tiny runs of every objective, for studies/reliability.py; a file for `longsum train --config`.

    longsum train --config=studies/reliability_config.py:summaries,rows=rows.jsonl --workdir=run

Ten steps over two passes of the data, with dropout and the tokenizer of bytes; a checkpoint after
every step, evaluations after steps 4 and 8. Modes are the objectives and further ways of training.
"""

from longsum_jax.configs.common import set_dropout
from ml_collections import ConfigDict

from longsum_jax.experiment.config import default_sections
from longsum_jax.models.registry import preset

ARGUMENTS = ("rows",)
_SEQ2SEQ = {"d_model": 16, "vocab_size": 384}
_BART = _SEQ2SEQ | {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
}
_T5 = _SEQ2SEQ | {"d_kv": 8, "d_ff": 16, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
_BERT = {
    "vocab_size": 384,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
_SEGMENTS = {
    "objective": "summarize_segments",
    "segments": {"min_tokens": 24, "max_tokens": 32},
    "max_parts": 4,
}
_GAP_SENTENCES = {"objective": "gap_sentences", "gap_sentences": {"short_documents": "one"}}
# Mode -> family, its sizes, the task, and what ranks checkpoints.
_OBJECTIVES = {
    "gap_sentences": ("locost", _T5 | {"d_state": 8}, _GAP_SENTENCES, "mean_rouge"),
    "summaries": ("t5", _T5, {}, "mean_rouge"),
    "segments": ("pegasus", _BART | {"memory": "attentive"}, _SEGMENTS, "mean_rouge"),
    "classification": ("bert", _BERT, {"name": "labels"}, "accuracy"),
    "extraction": ("bert", _BERT, {"name": "extracts", "max_parts": 8}, "f1"),
    "masked_lm": ("bert", _BERT, {"name": "masked_tokens", "prefix": "<extra_id_1>"}, "accuracy"),
}
MODES = tuple(_OBJECTIVES)


def get_config(mode, rows="rows.jsonl"):
    family, sizes, task, best_metric = _OBJECTIVES[mode]
    lengths = {"max_source_length": 64, "max_target_length": 24}
    own = {"name": "summaries", "source": f"json:{rows}", **lengths, "prefix": None}
    config = default_sections() | {
        "model": preset(family, "tiny", **sizes),
        "task": own | {"objective": None, "max_parts": None, "segments": None} | task,
    }
    config = ConfigDict(config, type_safe=False)
    set_dropout(config, 0.1)
    config.tokenizer.path = "bytes"
    config.data.batch_size = 4
    config.optimizer.update(learning_rate=1e-2, schedule="linear", warmup_steps=2)
    config.training.update(
        steps=10,
        log_every=1,
        eval_every=4,
        checkpoint_every=1,
        keep_latest=2,
        best_metric=best_metric,
        progress=False,
    )
    config.evaluation.update(split="train", examples=3, batch_size=2, max_new_tokens=4)
    return config
