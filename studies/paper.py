"""Tables and figures of the four papers, one command each: rows as JSON, a table, and a picture.

    python studies/paper.py --list
    python studies/paper.py lsg_table_8 [--scale=paper] [--workdir=runs/paper] [--dry_run]
    python studies/paper.py awesome_figure_3 --scale=tiny
    python studies/paper.py lsg_table_1 --model=roberta-base --documents=FILE[,FILE]

A table is a script of this folder or of benchmarks/ with flags: --scale=here takes minutes to hours
on a few processor cores, --scale=paper has the sizes of the paper and needs a GPU, and --scale=tiny
takes seconds and shows only that everything works. --workdir/SCALE contains TABLE.json, TABLE.md
and, if rows are points of a curve, TABLE.png. Started again, it measures only missing rows. Flags
that are not listed here go to the script and replace its own (--model=DIR), as do all flags after
"--".
"""

import argparse
import json
import runpy
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks_path import BENCHMARKS
from common import markdown_table

from longsum_jax.analysis import figures

FOLDERS = (Path(__file__).resolve().parent, BENCHMARKS)
SCALES = ("here", "paper", "tiny")


class Curves(NamedTuple):
    """A picture of rows: a line for every value of ``by``, on logarithmic axes or plain ones."""

    x: str
    y: str
    by: str
    scale: str = "log"


class Table(NamedTuple):
    """A table or figure.

    Attributes:
        title: what it is in its paper.
        script: name of a script of this folder or of benchmarks/, without ".py".
        flags: of all scales.
        scales: further flags by scale.
        curves: its picture, None for a table alone.
    """

    title: str
    script: str
    flags: str
    scales: dict[str, str]
    curves: Curves | None = None

    @property
    def path(self) -> Path:
        """The path of the script."""
        paths = (folder / f"{self.script}.py" for folder in FOLDERS)
        return next(path for path in paths if path.exists())

    def command(self, scale: str) -> list[str]:
        """The path of the script from the root of the repository, and its flags."""
        script = f"{self.path.parent.name}/{self.path.name}"
        return [script, *shlex.split(f"{self.flags} {self.scales[scale]}")]


_TINY_SWEEP = "--size=tiny --lengths=64 --repeats=1 --peers=none"
_LENGTHS = "1024,2048,4096,8192,16384,32768,65536,131072,262144,524288"
# Models of LOCOST's figure 4, and BART, which table 3 has besides.
_MEMORY = "--models=t5,bart,led,longt5,locost --compiled_only"
_MEMORY_SCALES = {
    "here": f"--size=small --lengths={_LENGTHS}",
    "paper": f"--target=1024 --lengths={_LENGTHS}",
    "tiny": "--size=tiny --lengths=64 --target=8 --models=locost",
}
_ONE_STEP = "--config.training.steps=1 --config.evaluation.examples=2"
_AWESOME = (
    "'configs/awesome.py:{},variant={{variant}},decoder_memory={{decoder_memory}},data={{data}}'"
)
# Small models that are trained where they are read, on a file of which a tenth is held out.
_TRAIN = "--config.data.reader=memory --config.training.eval_every=0"
_SMALL_LOCOST = (
    "--config=configs/locost_small.py:scratch --workdir=runs/paper/small_locost "
    f"--config.task.source=json:train.jsonl --config.task.held_out=0.1 {_TRAIN}"
)
_TINY_LOCOST = (
    f"{_SMALL_LOCOST} --workdir=runs/paper/tiny_locost --config.model.vocab_size=512 {_ONE_STEP}"
)
_LOCOST_LENGTHS = (
    "--config='configs/locost_small.py:scratch,task.max_source_length={tokens},"
    "data.source_lengths={tokens}' --config.task.source=json:train.jsonl "
    "--config.task.held_out=0.1 --config.evaluation.max_source_length=0 "
    "--config.evaluation.batch_size=1"
)
_SMALL_LSG = (
    "--config=configs/attention_study.py:data=train.jsonl --workdir=runs/paper/small_lsg "
    "--config.model.encoder_attention=lsg --config.model.block_size=64 "
    "--config.model.sparse_block_size=64 --config.model.sparsity_factor=4 "
    "--config.model.sparsity_type=norm --config.model.num_global_tokens=1 "
    "--config.training.steps=400"
)
_TINY_LSG = (
    "--workdir=runs/paper/tiny_lsg --config.training.steps=1 --examples=2 "
    "--config.task.max_source_length=64 --config.model.vocab_size=512"
)
_SELECTIONS = ("norm", "pooling", "stride", "block_stride", "bos_pooling", "lsh")
_LSG_HERE = ",".join(
    ["trained", "32/none", "64/none", "128/none", "32/4 norm", "128/4 norm", "64/2 norm"]
    + [f"64/4 {kind}" for kind in _SELECTIONS[1:]]
)
# The rows on the cards of the published models, which were trained with 256/none, and bos_pooling.
_LSG_PAPER = ",".join(
    ["trained", "128/none", "64/none", "32/none"]
    + [f"{size}/4 {kind}" for size in (128, 32) for kind in _SELECTIONS]
)
# The rows of tables 1 and 8, in their order.
_LSG_TABLE_1 = ",".join(
    ["full", "linear", "efficient", "performer", "linformer", "reformer", "longformer", "bigbird"]
    + [f"128/2 {kind}" for kind in ("norm", "stride", "block_stride", "pooling", "lsh")]
)
_LSG_TABLE_8 = "roberta,longformer,bigbird,256/none,128/4 norm,32/4 norm"
TABLES: dict[str, Table] = {
    "locost_figure_4": Table(
        "LOCOST, figures 1 and 4, table 3: memory of training as published, forward and backward "
        "pass of one document, no optimizer, no checkpointing",
        "train_step",
        f"--program=gradient {_MEMORY}",
        _MEMORY_SCALES,
        Curves("length", "gib", "model"),
    ),
    "locost_figure_4_inference": Table(
        "LOCOST, figures 1 and 4, table 3: memory of inference as published, forward pass of "
        "encoder and decoder over one document",
        "train_step",
        f"--program=forward {_MEMORY}",
        _MEMORY_SCALES,
        Curves("length", "gib", "model"),
    ),
    "locost_figure_4_step": Table(
        "LOCOST, figure 4 in practice: memory of training steps with AdamW and checkpointing",
        "train_step",
        f"--program=step --remat {_MEMORY}",
        _MEMORY_SCALES,
        Curves("length", "gib", "model"),
    ),
    "locost_figure_4_encoder": Table(
        "LOCOST, figure 4, encoders only: memory of their forward pass",
        "encode",
        "--models=t5,led,longt5,locost --compiled_only",
        {
            "here": f"--size=small --lengths={_LENGTHS}",
            "paper": f"--lengths={_LENGTHS}",
            "tiny": "--size=tiny --lengths=64",
        },
        Curves("length", "gib", "model"),
    ),
    "locost_table_4_training": Table(
        "LOCOST, table 4: training throughput at 4K and 16K tokens",
        "train_step",
        "--models=locost,longt5,led --peers=none",
        {
            "here": "--size=small --lengths=1024,4096 --repeats=1",
            "paper": "--lengths=4096,16384 --batch=4",
            "tiny": f"{_TINY_SWEEP} --target=8",
        },
        Curves("length", "tokens_per_second", "model"),
    ),
    "locost_table_4_inference": Table(
        "LOCOST, table 4: throughput of the encoder at 4K and 16K tokens",
        "encode",
        "--models=locost,longt5,led --peers=none",
        {
            "here": "--size=small --lengths=4096,16384 --repeats=1",
            "paper": "--lengths=4096,16384 --batch=4",
            "tiny": _TINY_SWEEP,
        },
        Curves("length", "tokens_per_second", "model"),
    ),
    "locost_table_4_generation": Table(
        "LOCOST, table 4: throughput of whole summaries at 4K and 16K tokens, greedy",
        "decode",
        "--models=locost,longt5,led --beams=1 --peers=none",
        {
            "here": "--size=small --lengths=1024,4096 --batches=4 --repeats=1",
            "paper": "--lengths=4096,16384 --batches=4 --new_tokens=512",
            "tiny": "--size=tiny --lengths=64 --batches=2 --new_tokens=8 --repeats=1 --models=led",
        },
        Curves("length", "tokens_per_second", "model"),
    ),
    "locost_figure_5": Table(
        "LOCOST, figure 5: tokens read in training, tested on whole books",
        "study",
        "",
        {
            "here": f"{_LOCOST_LENGTHS} --workdir=runs/paper/small_locost_lengths "
            "--cells=256,1024,4096",
            "paper": "--workdir=runs/paper/locost_figure_5 "
            "--cells=1024,2048,4096,8192,16384,32768 "
            "--config='configs/locost_finetune.py:booksum_book,length={tokens}' "
            "--config.init_from=locost",
            "tiny": f"{_LOCOST_LENGTHS} --workdir=runs/paper/tiny_locost_lengths --cells=32,64 "
            f"--config.model.vocab_size=512 --config.evaluation.max_new_tokens=4 {_ONE_STEP}",
        },
        Curves("tokens", "mean_rouge", "seed", "linear"),
    ),
    "locost_table_6": Table(
        "LOCOST, table 6: trained at 4K tokens, read at 4K and 8K",
        "reread",
        "--documents=test.jsonl",
        {
            "here": f"{_SMALL_LOCOST} --lengths=512,1024,2048 --examples=50 --stemmer",
            "paper": "--model=runs/arxiv --lengths=4096,8192",
            "tiny": f"{_TINY_LOCOST} --lengths=32,64 --examples=2",
        },
    ),
    "locost_table_7": Table(
        "LOCOST, table 7: whole books, beside the beginnings that training reads",
        "reread",
        "--documents=books.jsonl --batch=1",
        {
            "here": f"{_SMALL_LOCOST} --lengths=512,16384,0",
            "paper": "--model=runs/booksum_book --lengths=16384,32768,0",
            "tiny": f"{_TINY_LOCOST} --lengths=32,0 --examples=2",
        },
    ),
    "lsg_table_1": Table(
        "LSG, table 1: a masked language model with other attentions, untrained, at 512 and 4,096 "
        "tokens; give --model and --documents",
        "lsg_study",
        f"masked_lm --variants='{_LSG_TABLE_1}' --steps=0 --fine_tuning_steps=0",
        {
            "here": "--lengths=512,4096 --count=6",
            "paper": "--lengths=512,4096 --count=100",
            "tiny": "--lengths=512,1024 --count=1",
        },
    ),
    "lsg_table_8": Table(
        "LSG, table 8: seconds and memory of a classifier's step, with and without dropout of "
        "attention",
        "lsg",
        f"--classifier --kinds='{_LSG_TABLE_8}'",
        {
            "here": "--size=small --batch=1 --lengths=4096 --repeats=1",
            "paper": "--size=base --batch=4 --lengths=4096",
            "tiny": "--size=tiny --batch=1 --lengths=64 --repeats=1 --kinds='roberta,32/4 norm'",
        },
    ),
    "lsg_table_11": Table(
        "LSG, tables 11 and 12: other blocks and selections after training",
        "reread",
        "--documents=test.jsonl --stemmer",
        {
            "here": f"{_SMALL_LSG} --attentions='{_LSG_HERE}' --lengths=1024 --examples=50",
            "paper": f"--model=runs/arxiv-4096 --attentions='{_LSG_PAPER}' --lengths=4096",
            "tiny": f"{_SMALL_LSG} {_TINY_LSG} --attentions='trained,16/2 norm' --lengths=64",
        },
    ),
    "lsg_figure_5": Table(
        "LSG, figure 5: seconds and memory of a layer by length",
        "lsg",
        "--kinds='128/4 norm,256/none,longformer,bigbird,linear,efficient,performer,full'",
        {
            "here": "--lengths=512,1024,2048,4096,8192 --repeats=1 --train_limit=2048",
            "paper": "--layers=12 --ffn=3072 --lengths=512,1024,2048,4096,8192,16384",
            "tiny": "--lengths=64 --repeats=1 --kinds=linear,full",
        },
        Curves("length", "forward_seconds", "kind"),
    ),
    "hepos_table_1": Table(
        "Hepos, table 1: cost of encoder attentions by length",
        "encoder_attentions",
        "",
        {
            "here": "--lengths=1024,4096 --repeats=1",
            "paper": "--lengths=1024,2048,4096,8192,16384,32768",
            "tiny": "--lengths=64 --repeats=1 --kinds=window",
        },
        Curves("length", "forward_seconds", "kind"),
    ),
    "hepos_table_2": Table(
        "Hepos, table 2: documents, words, compression and density of data sets",
        "corpora",
        "statistics",
        {
            "here": "--data=validation.jsonl",
            "paper": "--data=govreport/train.jsonl,pubmed/train.jsonl,arxiv/train.jsonl,"
            "billsum/train.jsonl,bigpatent/train.jsonl",
            "tiny": "--data=validation.jsonl --examples=2",
        },
    ),
    "hepos_figure_2": Table(
        "Hepos, figure 2: where in documents bigrams and unigrams of summaries first stand",
        "corpora",
        "ngrams --ngrams=2,1",
        {
            "here": "--data=validation.jsonl",
            "paper": "--data=govreport/train.jsonl,pubmed/train.jsonl,arxiv/train.jsonl,"
            "billsum/train.jsonl,bigpatent/train.jsonl",
            "tiny": "--data=validation.jsonl --examples=2",
        },
        Curves("read", "seen", "data", "linear"),
    ),
    "hepos_table_3": Table(
        "Hepos, table 3: encoder attentions and cross-attentions at equal cost, trained",
        "study",
        "--workdir=runs/paper/hepos_table_3 --data='reports/{split}.jsonl'",
        {
            "here": "--cells=full/full,full/hepos,lsh/hepos --length=256",
            "paper": "--model=bart-large",
            "tiny": f"--cells=full/hepos --length=64 {_ONE_STEP}",
        },
    ),
    "hepos_table_4": Table(
        "Hepos, table 4: the longest inputs, by memory of training steps",
        "fit_length",
        "--batch=2 --models=full/full,full/hepos,stride/full,linformer/full,lsh/full,lsh/hepos,"
        "sinkhorn/full,sinkhorn/hepos",
        {
            "here": "--size=small --lengths=1024,4096",
            "paper": "--size=large --budget_gib=48 --device=a100-80",
            "tiny": "--size=tiny --lengths=256 --models=full/full,lsh/hepos",
        },
    ),
    "awesome_table_2": Table(
        "AWESOME, table 2: documents and lengths of data sets",
        "corpora",
        "statistics",
        {
            "here": "--data=validation.jsonl",
            "paper": "--data=govreport/train.jsonl,qmsum/train.jsonl,summscreentms/train.jsonl,"
            "arxiv/train.jsonl,booksum_fullbooks/train.jsonl",
            "tiny": "--data=validation.jsonl --examples=2",
        },
    ),
    "awesome_table_10": Table(
        "AWESOME, table 10: with the decoder's memory, without it, and without any",
        "study",
        "--data='reports/{split}.jsonl' --cells=attentive/true,attentive/false,se3/false",
        {
            "here": f"--workdir=runs/paper/awesome_table_10 --config={_AWESOME.format('small')}",
            "paper": "--workdir=runs/paper/awesome_table_10_large "
            f"--config={_AWESOME.format('json')} --config.init_from=bart-large",
            "tiny": "--workdir=runs/paper/awesome_table_10_tiny --cells=attentive/false "
            f"--config={_AWESOME.format('small')} {_ONE_STEP}",
        },
    ),
    "awesome_table_14": Table(
        "AWESOME, table 14: the longest documents, by memory of training steps",
        "fit_length",
        "",
        {
            "here": "--size=small --budget_gib=3",
            "paper": "--size=large --budget_gib=27 --device=a100-40",
            "tiny": "--size=tiny --lengths=64 --models=pagesum,attentive",
        },
    ),
    "awesome_figure_3": Table(
        "AWESOME, figure 3: batches a second at 16,384 tokens; se3 and attentive, padded to 1,024 "
        "tokens, are Txt and Attn+Txt",
        "fit_length",
        "--run --models='se3 768,compressive 768,attentive 768,kv 768,se3,attentive,"
        "extract_abstract,block_attention,led,longt5,unlimiformer,pagesum'",
        {
            "here": "--size=small --lengths=4096 --repeats=1",
            "paper": "--size=large --lengths=16384",
            "tiny": "--size=tiny --lengths=64 --repeats=1 --models=pagesum,se3",
        },
    ),
}


def measure(command: Sequence[str], out: Path) -> None:
    """Runs a script in this process, so that it writes ``out``."""
    before = sys.argv
    sys.argv = [str(BENCHMARKS.parent / command[0]), *command[1:], f"--out={out}"]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.argv = before


def draw(table: Table, out: Path) -> list[Path]:
    """Writes table and picture of a report beside it."""
    rows = json.loads(out.read_text())["rows"]
    text = out.with_suffix(".md")
    text.write_text(f"# {table.title}\n\n{markdown_table(rows)}")
    if table.curves is None:
        return [text]
    ours = [row for row in rows if row.get("by", "longsum_jax") == "longsum_jax"]
    x = table.curves.x
    # Values of cells of a study are words.
    points = [row | {x: float(row[x])} for row in ours if row.get(table.curves.y) is not None]
    picture = out.with_suffix(".png")
    figure = figures.lines_figure(points, **table.curves._asdict(), size=(5.0, 3.2))
    figures.save(figure, picture, 200)
    return [text, picture]


def main(argv: Sequence[str]) -> None:
    own, more = list(argv), []
    if "--" in own:
        own, more = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("table", nargs="?", choices=TABLES, metavar="TABLE", help="see --list")
    parser.add_argument("--list", action="store_true", help="prints all tables")
    parser.add_argument("--scale", choices=SCALES, default="here")
    parser.add_argument("--workdir", type=Path, default=Path("runs/paper"))
    parser.add_argument("--dry_run", action="store_true", help="prints the command alone")
    args, flags_of_script = parser.parse_known_args(own)
    more = flags_of_script + more
    if args.list:
        for name, table in TABLES.items():
            print(f"{name:26} {table.title}")
        return
    if args.table is None:
        parser.error("name a table; --list prints them")
    table = TABLES[args.table]
    command = [*table.command(args.scale), *more]
    print(shlex.join(["python", *command]))
    if args.dry_run:
        return
    figures.require_matplotlib()
    directory = args.workdir / args.scale
    directory.mkdir(parents=True, exist_ok=True)
    out = directory / f"{args.table}.json"
    measure(command, out)
    for path in draw(table, out):
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
