"""How each table of the papers is made here: commands, needs, training runs, and our own numbers.

No number of a paper or of ours is repeated in this module.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Row = dict[str, Any]


class Run(NamedTuple):
    """A training run, for an estimate of its hours.

    Attributes:
        case: case of ``benchmarks/results/config_plans.json``, "FILE:MODE" of a config.
        documents: paper, table and row of the published number of training documents; None for a
            run whose config has the steps.
        held_out: share of these documents that ranks checkpoints and is not trained on.
    """

    case: str
    documents: tuple[str, str, str] | None = None
    held_out: float = 0.0


class Recipe(NamedTuple):
    """How a table is made.

    Attributes:
        commands: lines for a shell.
        needs: data sets, checkpoints and devices.
        runs: training runs among the commands.
        here: what was measured here, with links.
    """

    commands: tuple[str, ...]
    needs: str
    runs: tuple[Run, ...] = ()
    here: str = ""


class OwnColumn(NamedTuple):
    """Our numbers of a quantity that a table has, at the same model size.

    Attributes:
        heading: heading of the column.
        file: name of a file of ``benchmarks/results``.
        systems: model of that file -> row of the published table.
        value: the number of a row of the file.
    """

    heading: str
    file: str
    systems: Mapping[str, str]
    value: Callable[[Row], float]


NONE_NEEDED = "nothing"
SMALL = "another model size"


def paper(name: str) -> str:
    """Returns the command of a table of ``studies/paper.py`` at the size of the paper."""
    return f"python studies/paper.py {name} --scale=paper"


def train(spec: str, workdir: str, start: str = "") -> str:
    """Returns the command that trains a config."""
    parts = ["python -m longsum_jax.train", f"--config=configs/{spec}", f"--workdir={workdir}"]
    parts += [f"--config.init_from={start}"] if start else []
    return " ".join(parts)


def evaluate(workdir: str, task: str, *flags: str) -> str:
    """Returns the command that writes and scores summaries of the test split."""
    parts = [f"longsum evaluate --model={workdir}", f"--task={task}", "--split=test"]
    return " ".join([*parts, *flags, f"--out={workdir}/test"])


def score(workdir: str, choice: str, *flags: str) -> str:
    """Returns the command that compares predictions with the rows of a paper."""
    return " ".join(
        [f"longsum score {workdir}/test/predictions.jsonl", *flags, f"--published={choice}"]
    )


LOCOST_START = "longsum convert flbbb/locost-gsg-pretrained locost-base --tokenizer=spiece.model"
LOCOST_NEEDS = "`flbbb/locost-gsg-pretrained` and LongT5's `spiece.model`"
LSG_BASE = (
    "longsum convert facebook/bart-base lsg-bart --encoder_attention=lsg --max_source_length=4096 "
    "--block_size=256 --sparsity_type=none --num_global_tokens=1"
)


def locost(*modes: str) -> tuple[Run, ...]:
    """Returns the runs of LOCOST's fine-tuning."""
    rows = {
        "arxiv": "arXiv",
        "pubmed": "PubMed",
        "govreport": "GovReport",
        "summscreenfd": "SummScreenFD",
        "booksum_chapter": "BookSum-Chapter",
        "booksum_book": "BookSum-Book",
    }
    return tuple(Run(f"locost_finetune:{mode}", ("locost", "9", rows[mode])) for mode in modes)


def lsg_summaries(mode: str, row: str, number: str, *flags: str) -> Recipe:
    """Returns the recipe of one of LSG's tables of summaries."""
    short, long = f"runs/{mode}-4096", f"runs/{mode}-16384"
    widen = f"longsum convert {short} lsg-bart-16384 --max_source_length=16384"
    return Recipe(
        (
            LSG_BASE,
            train(f"lsg_summarize.py:{mode},model=lsg-bart", short),
            f"{widen} --num_global_tokens=64",
            train(f"lsg_summarize.py:{mode},model=lsg-bart-16384,train=globals", long),
            evaluate(long, mode, "--stemmer", *flags),
            score(long, f"lsg:table{number}", "--stemmer", *flags),
        ),
        f"{row}, `facebook/bart-base`; or, without training, the released model of that data set "
        "([names](../guide/checkpoints.md))",
        (Run(f"lsg_summarize:{mode}", ("lsg", "15", row)),),
        "not trained; the hours are those at 4,096 tokens, of the pass at 16,384 there is no plan",
    )


def awesome(mode: str, row: str, number: str, task: str, needs: str = "") -> Recipe:
    """Returns the recipe of one of AWESOME's tables of summaries.

    Args:
        mode: mode of ``configs/awesome.py``.
        row: row of the published sizes of data sets.
        number: number of the table.
        task: task of the evaluation.
        needs: name of the data set if it is not that of the row.
    """
    run = f"runs/{mode}"
    # Of BookSum the paper has only the model with a memory, which needs no extractor.
    extractor, flag, further = (), "", ""
    if mode != "booksum":
        spec = f"extractor.py:model=roberta-base,data_set={mode}"
        extractor = (train(spec, f"runs/{mode}-extractor"),)
        flag = f" --config.task.segments.extractor=runs/{mode}-extractor"
        further = ", `roberta-base`"
    return Recipe(
        (
            *extractor,
            train(f"awesome.py:{mode}", run, "facebook/bart-large") + flag,
            train(f"awesome.py:{mode},variant=se3", f"{run}-se3", "facebook/bart-large"),
            evaluate(run, task, "--stemmer"),
            score(run, f"awesome:table{number}", "--stemmer"),
        ),
        f"{needs or row}, `facebook/bart-large`{further}; baselines by `configs/long_baselines.py` "
        "and `configs/extract_abstract.py`",
        (Run(f"awesome:{mode}", ("awesome", "2", row)),),
        f"{SMALL}: [small models](../results/studies.md#segments-and-memories)",
    )


LOCOST: dict[str, Recipe] = {
    "1": Recipe(
        ("python benchmarks/ssm.py --out=ssm.json",),
        NONE_NEEDED,
        here="[state-space operation](../results/speed.md#state-space-operation), on CPUs",
    ),
    "2": Recipe(
        (
            LOCOST_START,
            *(
                train(f"locost_finetune.py:{mode}", f"runs/{mode}", "locost-base")
                for mode in ("arxiv", "pubmed", "booksum_chapter")
            ),
            evaluate("runs/arxiv", "arxiv", "--metrics=rouge,bertscore,blanc")
            + " --metric_option=bertscore.model=roberta-large"
            + " --metric_option=blanc.model=bert-base-uncased",
        ),
        f"arXiv, PubMed, BookSum, {LOCOST_NEEDS}, an encoder and a masked language model",
        locost("arxiv", "pubmed", "booksum_chapter"),
        "not trained",
    ),
    "3": Recipe(
        (
            LOCOST_START,
            train("locost_finetune.py:govreport", "runs/govreport", "locost-base"),
            train("locost_finetune.py:summscreenfd", "runs/summscreenfd", "locost-base"),
            "longsum score test --scrolls=all --references=releases --split=test "
            "--submission=scrolls.csv",
            paper("locost_figure_4"),
            paper("locost_figure_4_inference"),
        ),
        f"SCROLLS' GovReport and SummScreenFD, {LOCOST_NEEDS}; nothing for memory",
        locost("govreport", "summscreenfd"),
        "memory by this protocol, compiled for an H200: "
        "[LOCOST](../results/memory.md#locost-by-the-protocol-of-its-paper)",
    ),
    "4": Recipe(
        (
            paper("locost_table_4_training"),
            paper("locost_table_4_inference"),
            paper("locost_table_4_generation"),
        ),
        "a GPU",
        here="on CPUs: [encoders](../results/speed.md#encoders), "
        "[training steps](../results/speed.md#training-steps), "
        "[decoding](../results/speed.md#decoding)",
    ),
    "5": Recipe(
        (
            "longsum judge prompts runs/pubmed/test/predictions.jsonl --references=test.jsonl "
            "--model=gpt-3.5-turbo-16k --out=chat",
            "longsum judge answers chat/key.json answers.jsonl",
        ),
        "PubMed, the model of table 2, access to GPT-3.5",
        locost("pubmed"),
        "not run",
    ),
    "6": Recipe(
        (paper("locost_table_6"),),
        "arXiv, the model of table 2",
        locost("arxiv"),
        f"{SMALL}: see [LOCOST](locost.md)",
    ),
    "7": Recipe(
        (
            train("locost_finetune.py:booksum_book", "runs/booksum_book", "locost-base"),
            paper("locost_table_7"),
        ),
        f"BookSum, {LOCOST_NEEDS}",
        locost("booksum_book"),
        f"{SMALL}: see [LOCOST](locost.md)",
    ),
    "8": Recipe((), "nothing; `tests/test_configs.py` compares the config with the published code"),
    "9": Recipe(
        (
            "longsum corpus export --task=arxiv --out=arxiv",
            "longsum corpus statistics 'arxiv/*.jsonl' arxiv/train.jsonl arxiv/validation.jsonl "
            "arxiv/test.jsonl --tokenizer=spiece.model",
        ),
        "the data sets, LongT5's `spiece.model`; commands for arXiv, the others likewise",
        here="not run",
    ),
    "section 8": Recipe(
        (train("locost_c4.py", "runs/locost"),),
        "C4 (`c4/en` of TensorFlow Datasets), T5's `spiece.model`",
        (Run("locost_c4:base"),),
        "not trained; [plans](../results/accelerators.md#plans-for-tpus-and-gpus) have more "
        "devices",
    ),
}

LSG_CLASSES = Recipe(
    (
        "longsum convert roberta-base lsg-roberta --encoder_attention=lsg --max_source_length=4096 "
        "--block_size=128 --sparse_block_size=128 --sparsity_type=norm --sparsity_factor=4",
        train("lsg_classify.py:imdb,model=lsg-roberta", "runs/imdb"),
        train("lsg_classify.py:arxiv,model=lsg-roberta", "runs/arxiv_labels"),
        train("lsg_classify.py:patent,model=lsg-roberta", "runs/patent"),
        train("lsg_classify.py:scotus,model=lsg-roberta", "runs/scotus"),
        train("lsg_classify.py:ecthr_a,model=lsg-roberta", "runs/ecthr_a"),
        train("lsg_classify.py:ecthr_b,model=lsg-roberta", "runs/ecthr_b"),
        evaluate("runs/scotus", "scotus"),
    ),
    "IMDb, clones of ccdv/arxiv-classification, ccdv/patent-classification and "
    "coastalcph/lex_glue, "
    "`roberta-base`",
    (Run("lsg_classify:imdb", ("lsg", "15", "IMDb"), held_out=0.1),),
    "not trained; there is no plan of the other data sets",
)

LSG: dict[str, Recipe] = {
    "1": Recipe(
        (
            paper("lsg_table_1")
            + " --model=roberta-base --documents=wikipedia.jsonl,books.jsonl,news.jsonl",
        ),
        "`roberta-base`, documents",
        here=f"{SMALL}: [MiniLM](lsg.md#converted-masked-language-models)",
    ),
    "2": LSG_CLASSES,
    "3": Recipe(
        (train("lsg_summarize.py:arxiv", "runs/arxiv-4096"),),
        NONE_NEEDED,
        here="the same number of millions: [LSG](lsg.md)",
    ),
    "4": lsg_summaries("arxiv", "arXiv", "4"),
    "5": lsg_summaries("pubmed", "PubMed", "5"),
    "6": lsg_summaries(
        "multinews",
        "MultiNews",
        "6",
        """--metric_option='rouge.types=["rouge1","rouge2","rougeL"]'""",
    ),
    "7": lsg_summaries("mediasum", "MediaSum", "7"),
    "8": Recipe(
        (paper("lsg_table_8"),),
        "a GPU",
        here=f"{SMALL}, memory: [compiled for a CPU](lsg.md#classifiers)",
    ),
    "9": Recipe((), "nothing; `tests/test_configs.py` compares the configs with the table"),
    "10": LSG_CLASSES._replace(
        commands=(
            "longsum convert roberta-base lsg-roberta --encoder_attention=lsg "
            "--max_source_length=4096 --block_size=32 --sparse_block_size=32 "
            "--sparsity_type=stride --sparsity_factor=4",
            train("lsg_classify.py:scotus,model=lsg-roberta", "runs/scotus"),
            evaluate("runs/scotus", "scotus"),
        )
    ),
    "11": Recipe(
        (paper("lsg_table_11"),),
        "arXiv, the model of table 4 or `ccdv/lsg-bart-base-4096-arxiv`",
        here=f"{SMALL}: see [LSG](lsg.md)",
    ),
    "12": Recipe(
        (paper("lsg_table_11") + " -- --documents=pubmed/test.jsonl --model=runs/pubmed-4096",),
        "PubMed, the model of table 5 or `ccdv/lsg-bart-base-4096-pubmed`",
        here="not run",
    ),
    "13": Recipe((), "nothing"),
    "14": Recipe((), "nothing; [names](../guide/checkpoints.md)"),
    "15": Recipe(
        (
            "longsum corpus export --task=arxiv --out=arxiv",
            "longsum corpus statistics 'arxiv/*.jsonl' arxiv/train.jsonl arxiv/validation.jsonl "
            "arxiv/test.jsonl --tokenizer=whitespace",
            "longsum corpus export --task=scotus --out=scotus",
            "longsum corpus statistics 'scotus/*.jsonl' --tokenizer=whitespace --document_key=text "
            "--summary_key=",
        ),
        "the data sets; commands for arXiv and SCOTUS, the others likewise",
        here="not run",
    ),
}

HEPOS_MODEL = "longsum convert facebook/bart-large bart-7168 --max_source_length=7168"
HEPOS: dict[str, Recipe] = {
    "1": Recipe(
        (paper("hepos_table_1"),),
        NONE_NEEDED,
        here="cost and new parameters of a layer: "
        "[on CPUs](../results/speed.md#one-layer-of-each-attention)",
    ),
    "2": Recipe(
        (paper("hepos_table_2"),),
        "GovReport's release, PubMed, arXiv, BillSum, BigPatent",
        here="[other data sets](../results/quality.md#data-sets)",
    ),
    "3": Recipe(
        (paper("hepos_table_3") + " -- --model=facebook/bart-large",),
        "GovReport's release, PubMed, `facebook/bart-large`",
        here=f"{SMALL}: [small models](../results/studies.md#attentions-on-real-text)",
    ),
    "4": Recipe(
        (
            HEPOS_MODEL + " --position_extension=random",
            train("hepos.py:govreport,encoder=lsh,cross=hepos", "runs/govreport", "bart-7168"),
            train("hepos.py:pubmed,encoder=lsh,cross=hepos", "runs/pubmed", "bart-7168"),
            evaluate("runs/govreport", "govreport", "--stemmer"),
            evaluate("runs/pubmed", "pubmed", "--stemmer"),
            score("runs/pubmed", "hepos:table4", "--stemmer"),
            paper("hepos_table_4"),
        ),
        "GovReport's release, PubMed, `facebook/bart-large`",
        (Run("hepos:govreport"), Run("hepos:pubmed")),
        "not trained; the longest inputs within 48 GB at the paper's size, from programs compiled "
        "for an A100 ([page](hepos.md#longest-sources-in-training)), are below",
    ),
    "5": Recipe(
        (
            HEPOS_MODEL + " --position_extension=random",
            train("hepos.py:arxiv,encoder=lsh,cross=hepos", "runs/arxiv", "bart-7168"),
            evaluate("runs/arxiv", "arxiv", "--stemmer"),
            score("runs/arxiv", "hepos:table5", "--stemmer"),
        ),
        "arXiv, `facebook/bart-large`",
        (Run("hepos:arxiv"),),
        "not trained",
    ),
    "6": Recipe(
        (
            "longsum judge sheets system.jsonl --references=test.jsonl --protocol=hepos "
            "--out=people",
        ),
        "the models of table 4, judges",
        here="not run",
    ),
    "7": Recipe(
        (
            train("factcc.py:data=reports.jsonl", "runs/factcc"),
            train("apes.py:data=reports.jsonl", "runs/apes"),
            "longsum score system.jsonl --references=test.jsonl --metrics=factcc,apes "
            "--metric_option=factcc.model=runs/factcc --metric_option=apes.model=runs/apes",
        ),
        "the models of table 4",
        here="not run",
    ),
    "8": Recipe(
        (
            "longsum judge aggregate people/key.json judge-1-filled.csv judge-2-filled.csv "
            "--scores=scores/scores.jsonl",
        ),
        "the judgements of table 6",
        here="not run",
    ),
    "section 4": Recipe(
        ("longsum corpus govreport gov-report reports",), "GovReport's release", here="not run"
    ),
    "footnote 1": Recipe(
        ("python benchmarks/hepos.py --model=bart --lengths=10240 --strides=1,4 --summary=1024",),
        NONE_NEEDED,
        here="counted: see [Hepos](hepos.md)",
    ),
}

AWESOME: dict[str, Recipe] = {
    "2": Recipe(
        (paper("awesome_table_2"),),
        "the data sets",
        here="not run",
    ),
    "3": awesome("govreport", "GovReport", "3", "govreport", "GovReport's release"),
    "5": awesome("qmsum", "QMSum", "5", "qmsum", "QMSum's release"),
    "6": awesome("summscreen", "SummScreen", "6", "summscreentms"),
    "7": awesome("arxiv", "arXiv", "7", "arxiv"),
    "8": awesome(
        "booksum",
        "BookSum",
        "8",
        "booksum_fullbooks",
        "Unlimiformer's version of BookSum (abertsch/booksum-fullbooks)",
    ),
    "9": Recipe(
        ("longsum score system.jsonl --metrics=entity_graph --published=awesome:table9",),
        "the models of tables 5, 7 and 8, a tagger",
        here="not run",
    ),
    "10": Recipe(
        (paper("awesome_table_10"),),
        "GovReport's release, `facebook/bart-large`",
        (Run("awesome:govreport", ("awesome", "2", "GovReport")),),
        f"{SMALL}: [small models](../results/studies.md#segments-and-memories); the hours are of "
        "one of the rows",
    ),
    "11": Recipe(
        (
            train("awesome.py:govreport", "runs/govreport-16384", "facebook/bart-large")
            + " --config.task.segments.train_tokens=16384"
            + " --config.task.segments.extractor=runs/govreport-extractor",
        ),
        "GovReport's release, `facebook/bart-large`, the extractor of table 3",
        here="not trained",
    ),
    "12": Recipe(
        (
            "longsum score system.jsonl --references=test.jsonl --metrics=rouge,repetition "
            "--published=awesome:table12",
        ),
        "the models of table 3",
        here="not run",
    ),
    "13": Recipe(
        (
            "longsum score system.jsonl --references=test.jsonl --metrics=rouge,extractiveness "
            "--published=awesome:table13",
        ),
        "the models of table 3",
        here="not run",
    ),
    "14": Recipe(
        (paper("awesome_table_14"),),
        "JAX's CUDA libraries (extra `plan-cuda`), no GPU",
        here="at the paper's size, from programs compiled for an A100 whose attention needs less "
        "memory ([page](../results/memory.md#awesome-longest-documents-in-training)), LongT5 in "
        "the sizes of its base checkpoint; more than 128 was not tried",
    ),
    "figure 2": Recipe(
        (
            "longsum judge sheets system.jsonl other.jsonl --references=test.jsonl "
            "--protocol=awesome --out=people",
        ),
        "the models of table 3, judges",
        here="not run",
    ),
    "section 5": Recipe(
        (train("extractor.py:model=roberta-base,data_set=govreport", "runs/extractor"),),
        "the releases of GovReport and QMSum, `roberta-base`",
        here=f"{SMALL}: see `configs/extractor.py`",
    ),
    "appendix D": Recipe((), "nothing; `tests/test_configs.py` compares the config with the paper"),
}

RECIPES: Mapping[str, Mapping[str, Recipe]] = {
    "locost": LOCOST,
    "lsg": LSG,
    "hepos": HEPOS,
    "awesome": AWESOME,
}

OURS: Mapping[tuple[str, str], OwnColumn] = {
    ("hepos", "4"): OwnColumn(
        "longest input here, tokens",
        "hepos_lengths",
        {
            name: name
            for name in (
                "full/full",
                "full/hepos",
                "stride/full",
                "linformer/full",
                "lsh/full",
                "lsh/hepos",
                "sinkhorn/full",
                "sinkhorn/hepos",
            )
        },
        lambda row: int(row["tokens"]),
    ),
    ("awesome", "14"): OwnColumn(
        "here",
        "awesome_lengths",
        {
            "se3": "Se3",
            "block_attention": "BlockAttn",
            "led": "Longformer",
            "longt5": "LongT5",
            "unlimiformer": "Unlimiformer",
            "pagesum": "PageSum",
            "attentive": "AWESOME",
        },
        lambda row: row["tokens"] // 1024,
    ),
}
