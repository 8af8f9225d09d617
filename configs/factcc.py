"""FactCC: does a document support a claim? A classifier of pairs, with generated examples.

    python -m longsum_jax.train --config=configs/factcc.py:model=DIR,data=FILE --workdir=runs/factcc
    longsum score FILE --references=FILE --metrics=factcc --metric_option=factcc.model=runs/factcc

`model` is a directory in Hugging Face layout, a training workdir (for example of configs/mlm.py),
or a name on the Hub; without it, a small BERT is trained from scratch, with a tokenizer trained on
the data. `data` are JSON lines {"document": ...}, `reports/{split}.jsonl` or one file, of which a
tenth is held out. Sentences become claims unchanged (CORRECT) or falsified by rules (INCORRECT):
another name, date, number or pronoun, or a negation, some with noise; `task.claims` has the
options. The mode `pairs` learns from human labels, {"document": ..., "claim": ..., "label": ...};
with task.document_key=premise,task.query_key=hypothesis, it learns from entailment data; the metric
summac needs such a model. `tiny` runs in seconds on a CPU.

Kryscinski et al. (2020) train BERT base with learning rate 2e-5 and batches of 12; without a model,
the rate is 3e-4. The 100 steps of warm-up and the total of 1,000 steps are our choices.
Paraphrases, a third kind of claim in the paper, need a translation model and are left out.
"""

from longsum_jax.configs.common import buckets, encoder, own_data, shrink

ARGUMENTS = ("model", "data")
MODES = ("default", "pairs", "tiny")


def get_config(mode="default", model="", data="data/{split}.jsonl"):
    task = own_data("pairs" if mode == "pairs" else "claims", data, max_source_length=512)
    config = encoder(model, task)
    lengths = buckets(config.task.max_source_length, shortest=128)
    config.data.update(batch_size=12, source_lengths=lengths)
    config.optimizer.update(
        learning_rate=2e-5 if model else 3e-4, schedule="constant", warmup_steps=100
    )
    config.training.update(
        steps=1000, log_every=10, eval_every=250, checkpoint_every=250, best_metric="accuracy"
    )
    config.evaluation.update(examples=1000, batch_size=32)
    return shrink(config) if mode == "tiny" else config
