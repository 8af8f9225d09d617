"""BART with a Hepos decoder on long reports and papers (Huang et al., NAACL 2021, section 6.1).

    longsum convert bart-large bart-7168 --max_source_length=7168
    python -m longsum_jax.train --config=configs/hepos.py:govreport --workdir=runs/govreport \
        --config.init_from=bart-7168
    longsum summarize --model=runs/govreport FILE

`encoder` and `cross` name a row of table 4 (`SOURCES`): `cross=hepos`, with which every decoder
head reads every fourth position, with `encoder=lsh` (7,168 tokens, the default) or sinkhorn
(10,240); `cross=full` with stride (4,096, together with a window of 256), linformer (3,072), lsh
(4,096) or sinkhorn (5,120). `encoder=full` reads 1,024 tokens either way. Convert the checkpoint to
the same length.

Published configuration: BART large; Adafactor with learning rate 1e-4 after 10,000 steps of
warm-up, gradient norm clipped at 0.1, batches of 64; beam 4, length penalty 2. From the published
scripts: 20,000 steps, at the end of which the learning rate is 0, label smoothing 0.1, weight decay
0.01, dropout 0.1 of states and attention, no repeated trigrams, summaries of up to 1,024 tokens for
GovReport and of 100 to 800 tokens for PubMed and arXiv, ROUGE with stemming. (Their own learning
rate is 7e-5 after 1,000 steps, or 2e-5 with Adam for the baseline that reads 1,024 tokens with full
attention; the paper's rate is used for all.) A batch consists of 16 micro-batches of 4 documents;
for the paper's micro-batches of 2, set config.training.accumulation=32. The paper initializes
positions beyond BART's 1,024 randomly, and its code repeats the last one; `convert` repeats the
whole table unless --position_extension is random or last_row. One mode per data set; `json` reads
your own files and generates as for GovReport, `tiny` runs in seconds on a CPU. `govreport` reads
the authors' release in the directory gov-report; config.task.source=govreport:DIR sets another
directory.
"""

from longsum_jax.configs.common import base, shrink, task_section

from longsum_jax.errors import InputError

ARGUMENTS = ("encoder", "cross")
MODES = ("govreport", "pubmed", "arxiv", "json", "tiny")
# (encoder, cross) -> tokens of the longest source.
SOURCES = {
    ("lsh", "hepos"): 7168,
    ("sinkhorn", "hepos"): 10240,
    ("stride", "full"): 4096,
    ("linformer", "full"): 3072,
    ("lsh", "full"): 4096,
    ("sinkhorn", "full"): 5120,
    ("full", "hepos"): 1024,
    ("full", "full"): 1024,
}
LSH_CHUNK = 64
PAPERS = ("pubmed", "arxiv")  # modes whose summaries are the abstracts of papers


def get_config(mode="govreport", encoder="lsh", cross="hepos"):
    if (encoder, cross) not in SOURCES:
        rows = "; ".join(map(",".join, SOURCES))
        raise InputError(f"encoder={encoder},cross={cross} is no row of table 4; there are {rows}")
    length = SOURCES[encoder, cross]
    task = task_section(mode if mode in PAPERS else "govreport", max_source_length=length)
    attention = attention_options(encoder, cross, length)
    config = base(
        "bart",
        "large",
        task,
        max_position_embeddings=length,
        remat=True,
        dtype="bfloat16",
        dropout=0.1,
        attention_dropout=0.1,
        **attention,
    )
    if mode == "json":
        config.task.source = "json:data/{split}.jsonl"
    config.data.update(reader="memory", shuffle="all")
    set_published_recipe(config)
    if mode in PAPERS:
        config.evaluation.update(max_new_tokens=800, min_new_tokens=100)
    config.training.update(log_every=10, eval_every=1000, checkpoint_every=500)
    config.evaluation.update(examples=100, batch_size=8)
    if mode != "tiny":
        return config
    config = shrink(config)
    config.model.update(attention)
    return config


def set_published_recipe(config):
    """Sets batches, optimizer, loss, length of training, and generation for GovReport."""
    config.data.batch_size = 64
    config.optimizer.update(
        name="adafactor",
        learning_rate=1e-4,
        schedule="linear",
        warmup_steps=10_000,
        total_steps=20_000,
        clip_norm=0.1,
        weight_decay=0.01,
        decays_all=True,  # fairseq
    )
    config.loss.label_smoothing = 0.1
    config.training.update(steps=20_000, accumulation=16)
    config.evaluation.update(
        num_beams=4,
        length_penalty=2.0,
        max_new_tokens=1024,
        min_new_tokens=0,
        no_repeat_ngram_size=3,
        stemmer=True,
    )


def attention_options(encoder, cross, length):
    """Returns the options of a model that reads ``length`` tokens."""
    # Two buckets for every chunk, rounded down to a power of two.
    buckets = 1 << (2 * length // LSH_CHUNK).bit_length() - 1
    options = {
        "lsh": {
            "lsh_num_hashes": 4,
            "lsh_num_buckets": buckets,
            "lsh_chunk_length": LSH_CHUNK,
        },
        "sinkhorn": {"block_size": 64},
        "linformer": {"linformer_size": 256, "linformer_max_length": length},
        "stride": {"attention_window": (256,), "attention_stride": length // 128},
    }
    name = "window+stride" if encoder == "stride" else encoder
    hepos = {"hepos_stride": 4} if cross == "hepos" else {}
    return {
        "encoder_attention": name,
        "cross_attention": cross,
        **hepos,
        **options.get(encoder, {}),
    }
