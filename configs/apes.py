"""The question-answering model of APES: cloze questions about summaries, answered from documents.

    python -m longsum_jax.train --config=configs/apes.py:model=DIR,data=FILE --workdir=runs/apes
    longsum score FILE --references=FILE --metrics=apes --metric_option=apes.model=runs/apes

`model` is a directory in Hugging Face layout, a training workdir (for example of
configs/answer.py), or a name on the Hub; without it, a small BERT is trained from scratch, with a
tokenizer trained on the data. `data` are JSON lines {"document": ..., "summary": ...},
`reports/{split}.jsonl` or one file, of which a tenth is held out. Each name, date and number of a
summary becomes a question: its sentence, with a placeholder. The model looks for the answer in the
sentences of the document that have the best ROUGE-2 recall of the summary; questions whose answer
is not in these sentences are left out (Huang et al. 2021, section 5; `task.cloze` has the options).
The evaluation prints exact match and F1. `tiny` runs in seconds on a CPU, on gap sentences.

BERT's settings for SQuAD (Devlin et al. 2019, section 4.2): AdamW with learning rate 5e-5 (3e-4
from scratch) and batches of 32; the 100 steps of warm-up and the total of 1,000 steps are our
choices.
"""

from longsum_jax.configs.common import encoder, own_data, shrink

ARGUMENTS = ("model", "data")
MODES = ("default", "tiny")


def get_config(mode="default", model="", data="data/{split}.jsonl"):
    task = own_data("cloze", data, max_source_length=512)
    config = encoder(model, task)
    config.data.batch_size = 32
    config.optimizer.update(
        learning_rate=5e-5 if model else 3e-4, schedule="constant", warmup_steps=100
    )
    config.training.update(
        steps=1000, log_every=10, eval_every=250, checkpoint_every=250, best_metric="answer_f1"
    )
    config.evaluation.update(examples=1000, batch_size=32)
    return shrink(config) if mode == "tiny" else config
