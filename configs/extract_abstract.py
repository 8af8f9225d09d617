"""Extract, then abstract: a summarizer that reads only the important sentences (a baseline in
AWESOME's tables).

It is trained on the sentences that a greedy search by ROUGE selects for the reference, and tested
on the sentences that an extractor trained by configs/extractor.py predicts:

    longsum corpus govreport gov-report reports  # the authors' release, as in the paper
    longsum extract --oracle --data=reports/train.jsonl --out=short/train.jsonl
    for split in validation test; do
        longsum extract --model=runs/extractor --data=reports/$split.jsonl --out=short/$split.jsonl
    done
    python -m longsum_jax.train \
        --config=configs/extract_abstract.py:model=bart-large,data='short/{split}.jsonl' \
        --workdir=runs/abstractor
    longsum evaluate --model=runs/abstractor --data=short/test.jsonl --out=results

`model` is a checkpoint of any encoder-decoder, `data` the output of `longsum extract`. Published:
1,024 tokens of source, learning rate, passes, warm-up and 8 documents per step as for AWESOME; the
defaults are GovReport's (`data_set=` selects the values for qmsum, summscreen, arxiv or booksum).
The optimizer, its linear schedule and the generation options are not published; they are the same
as in configs/awesome.py. Without `model`, a small LOCOST is trained from scratch. `tiny` runs in
seconds on a CPU.
"""

from longsum_jax.configs.awesome import train_as_published
from longsum_jax.configs.common import base, checkpoint, own_data, shrink

ARGUMENTS = ("model", "data_set", "data")
MODES = ("default", "tiny")


def get_config(mode="default", model="", data_set="govreport", data="data/{split}.jsonl"):
    task = own_data("summaries", data, max_source_length=1024, max_target_length=1024)
    config = checkpoint(model, task) if model else base("locost", "small", task)
    train_as_published(config, data_set)
    config.training.update(eval_every="epoch", checkpoint_every=250)
    return shrink(config) if mode == "tiny" else config
