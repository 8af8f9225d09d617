"""Question answering with BERT, RoBERTa, DistilBERT or BART: the span of a text that answers a
question, or the correct one of several choices.

    python -m longsum_jax.train --config=configs/answer.py:model=DIR,data=FILE \
        --workdir=runs/answers

`model` is a directory in Hugging Face layout, a training workdir, or a name on the Hub; without it,
a small BERT is trained from scratch, with a tokenizer trained on the data. `data` are JSON lines
{"context": ..., "question": ..., "answer": ...}, `questions/{split}.jsonl` or one file, of which a
tenth is held out. An answer occurs verbatim in its context; a list contains several correct ones.
Cloze questions, with a placeholder for the answer, are treated like other questions. The evaluation
prints exact match and F1 as defined for SQuAD. The mode `choices` learns which of several texts is
correct, {"context": ..., "question": ..., "choices": [...], "label": 2}, where a label is the index
of a choice, from 0, or its text; the argument `choices` is the maximum number of choices. It prints
the accuracy and, for comparison, the accuracy of guessing, and is for encoders. `tiny` runs in
seconds on a CPU.

BERT's settings for SQuAD (Devlin et al. 2019, section 4.2): AdamW with learning rate 5e-5 (3e-4
from scratch) and batches of 32; the 100 steps of warm-up and the total of 1,000 steps are our
choices.
"""

from longsum_jax.configs.common import encoder, own_data, shrink

from longsum_jax.errors import InputError

ARGUMENTS = ("model", "data", "choices")
MODES = ("default", "choices", "tiny")


def get_config(mode="default", model="", data="data/{split}.jsonl", choices="4"):
    if mode == "choices":
        if not choices.isdecimal() or int(choices) < 2:
            raise InputError(f"choices is {choices}; give how many there are at most, 2 or more")
        task = own_data("choices", data, max_source_length=512, max_parts=int(choices))
    else:
        task = own_data("answers", data, max_source_length=512)
    config = encoder(model, task)
    config.data.batch_size = 32
    config.optimizer.update(
        learning_rate=5e-5 if model else 3e-4, schedule="constant", warmup_steps=100
    )
    config.training.update(
        steps=1000, log_every=10, eval_every=250, checkpoint_every=250, best_metric="answer_f1"
    )
    config.evaluation.update(examples=1000, batch_size=32)
    if mode == "choices":  # each as long as a document
        config.training.update(accumulation=4, best_metric="accuracy")
        config.evaluation.batch_size = 8
    return shrink(config) if mode == "tiny" else config
