"""Preference training on reference summaries and unfaithful ones: SCOPE (Duong, Le Bronnec,
Allauzen, Guigue, Lumbreras, Soulier and Gallinari, ICLR 2025, arXiv 2502.13674).

A model is fine-tuned on one half of the training data; for the other half, it generates unfaithful
summaries by noisy decoding; then it learns to prefer the references to them:

    longsum train --config=configs/finetune.py:model=DIR,data='reports/{split}.jsonl' \
        --workdir=runs/half --config.task.half=first
    longsum corpus pairs --model=runs/half --unconditional_model=DIR --task=summaries \
        --source='json:reports/{split}.jsonl' --half=second --noise=0.5 --temperature=0.6 \
        --top_p=0.9 --max_source_length=4096 --max_new_tokens=512 --batch_size=8 --out=runs/pairs
    longsum train --config=configs/prefer.py:model=runs/half,data=runs/pairs/train.jsonl \
        --workdir=runs/prefer

`model` is the fine-tuned model, which is both the initial and the frozen reference model; `data`
are JSON lines {"document": ..., "summary": ..., "rejected": ...}, one file, of which a tenth is
held out for evaluation, or `pairs/{split}.jsonl`. The evaluation prints ROUGE of generated
summaries and, for comparison, of the lead baseline. Without `model`, a small LOCOST is trained from
scratch, which only shows that everything works. `tiny` runs in seconds on a CPU.

Beta 0.1, AdamW with learning rate 1e-6 and a linear schedule, one pass over the data, no label
smoothing; noise 0.5, temperature 0.6 and top_p 0.9 of the second command: the settings of the
published code (github.com/sngdng/scope-faithfulness: configs/training/optim/pref_llama.yaml,
configs/generation/generation/llama.yaml, README.md) for models of 7B parameters. There, the warm-up
is a tenth of the steps; here it is 100 steps. There, a step has 4 rows for each GPU; here it has
32. Nothing is published for encoder-decoders, which may need a larger learning rate. Dropout is 0,
as in those models.

Hardware: a step needs as much memory as a summarization step with two targets. The reference model
is not in memory during training: its log-probabilities are computed once before.
`longsum plan --config=configs/prefer.py:model=DIR --device=a100-80` reports the memory that
training needs.
"""

from longsum_jax.configs.common import base, checkpoint, own_data, shrink

ARGUMENTS = ("model", "data")
MODES = ("default", "tiny")


def get_config(mode="default", model="", data="data/{split}.jsonl"):
    task = own_data("preferences", data, max_source_length=4096, max_target_length=512)
    config = checkpoint(model, task) if model else base("locost", "small", task)
    config.model.update({key: 0.0 for key in config.model if "dropout" in key})
    config.loss.beta = 0.1
    config.data.update(batch_size=32, epochs=1)
    config.optimizer.update(
        name="adamw", learning_rate=1e-6, schedule="linear", warmup_steps=100, clip_norm=1.0
    )
    config.training.update(
        steps=1_000_000, log_every=10, eval_every="epoch", checkpoint_every=100, accumulation=8
    )
    config.evaluation.update(examples=100, batch_size=8)
    if model:
        config.evaluation.update(max_new_tokens=None, num_beams=None, no_repeat_ngram_size=None)
    return shrink(config) if mode == "tiny" else config
