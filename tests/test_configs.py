"""Every file of configs/ in every mode; the tiny ones train."""

import ast
import dataclasses
import functools
import importlib.util
import inspect
import itertools
import json
import operator
import re
import runpy
import shutil
import sys
from pathlib import Path
from pydoc_data.topics import topics
from types import SimpleNamespace

import jax
import pytest
from longsum_jax.configs.awesome import VARIANTS
from longsum_jax.configs.long_baselines import BASELINES
from ml_collections import ConfigDict

from longsum_jax import checksums
from longsum_jax.commands import convert, train
from longsum_jax.data.preparation import write_prepared
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config
from longsum_jax.experiment.experiment import (
    check_run,
    initial_params,
    make_batches,
    make_experiment,
    make_loss,
    make_store,
    with_run_length,
    write_model_directory,
)
from longsum_jax.layers.memory import memory_layers
from longsum_jax.models.registry import flat_section, model_config
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.model import Model
from longsum_jax.tokenizers.loading import load_tokenizer
from longsum_jax.training.mesh import activate, make_mesh, put_batch
from longsum_jax.training.optimizers import make_optimizer
from longsum_jax.training.state import plan_state, shardings_of
from longsum_jax.training.step import make_train_step

CONFIGS = Path(__file__).parents[1] / "configs"
SHORT = ("task.max_source_length=64", "task.max_target_length=16")


def modes():
    """(file, mode) of every config file."""
    sys.path.insert(0, str(CONFIGS))
    try:
        for path in sorted(CONFIGS.glob("*.py")):
            spec = importlib.util.spec_from_file_location(f"config_{path.stem}", path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            if hasattr(module, "get_config"):
                yield from ((path, mode) for mode in module.MODES)
    finally:
        sys.path.remove(str(CONFIGS))
        sys.modules.pop("common", None)


ALL = list(modes())


def test_there_are_configs_and_each_has_a_tiny_mode():
    assert {path.stem for path, _ in ALL} >= {"quickstart", "locost_c4", "locost_finetune"}
    assert {path for path, _ in ALL} == {path for path, mode in ALL if mode == "tiny"}


@pytest.mark.parametrize(("path", "mode"), ALL, ids=lambda value: getattr(value, "stem", value))
def test_every_mode_builds(path, mode):
    """Checkpoints are ranked on the validation split; the test split is other documents."""
    run = run_config(read_config(f"{path}:{mode}", {}))
    check_run(run)
    assert run.family.parameter_shapes(run.model)
    make_optimizer(run.optimizer.for_run(run.training.steps))
    assert run.data.batch_size % run.training.accumulation == 0
    assert run.evaluation.split == "validation"
    assert run.data.split == "train"
    names = [run.task.splits[split] for split in ("train", "validation")]
    if "test" in run.task.splits:
        names.append(run.task.source_split("test"))
    assert len(set(names)) == len(names)
    assert not run.task.is_undivided


def reads_own_files(path):
    return "data" in inspect.signature(runpy.run_path(path)["get_config"]).parameters


@pytest.mark.parametrize(
    "path",
    [path for path, mode in ALL if mode == "tiny" and reads_own_files(path)],
    ids=lambda path: path.stem,
)
@pytest.mark.parametrize(
    ("data", "source", "held_out"),
    [
        ("rows.jsonl", "json:rows.jsonl", 0.1),
        ("reports/{split}.parquet", "parquet:reports/{split}.parquet", 0.0),
        ("seqio:tasks:reports", "seqio:tasks:reports", 0.0),
    ],
)
def test_tiny_keeps_files_of_ones_own(path, data, source, held_out):
    task = run_config(read_config(f"{path}:tiny,data={data}", {})).task
    assert (task.source, task.held_out) == (source, held_out)
    assert task.max_source_length <= 256
    if held_out:  # what ranks checkpoints is not a test split
        with pytest.raises(InputError, match=r'json:rows\.jsonl has no split "test"'):
            task.source_split("test")
    assert run_config(read_config(f"{path}:tiny", {})).task.source == "embedded"


def test_tiny_keeps_files_at_the_default_path(tmp_path, monkeypatch):
    path = next(path for path, _ in ALL if path.stem == "finetune").resolve()
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/train.jsonl").touch()
    task = run_config(read_config(f"{path}:tiny,data=data/{{split}}.jsonl", {})).task
    assert task.source == "json:data/{split}.jsonl"


@pytest.mark.parametrize("path", sorted({path for path, _ in ALL}), ids=lambda path: path.stem)
def test_files_are_those_of_ml_collections(path):
    """``ml_collections.config_flags`` calls ``get_config`` without a mode for ``--config=FILE``."""
    names = runpy.run_path(str(path))
    assert isinstance(names["get_config"](), ConfigDict)
    parameter = inspect.signature(names["get_config"]).parameters["mode"]
    assert parameter.default == names["MODES"][0]


SMALL_MODELS = {
    "locost": {"d_model": 16, "d_state": 4, "d_kv": 8, "d_ff": 16, "num_heads": 4, "num_layers": 1}
    | {"num_decoder_layers": 1},
    "bart": {
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16,
    }
    | {"encoder_attention_heads": 4, "decoder_attention_heads": 4},
    "longt5": {
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 16,
        "num_heads": 4,
        "num_layers": 1,
        "num_decoder_layers": 1,
    },
    "bert": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    },
}
SMALL_MODELS["pegasus"] = SMALL_MODELS["bart"]
SMALL_MODELS["led"] = SMALL_MODELS["bart"]
SMALL = (
    *("model.vocab_size=300", "tokenizer.path=bytes", "init_from="),
    *("task.max_source_length=64", "task.max_target_length=16", "task.piece_words=None"),
    *("data.source_lengths=(64,)", "data.batch_size=16", "data.shuffle_block=8", "data.prefetch=1"),
    *("training.steps=1", "evaluation.examples=0"),
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A data file with the fields of every objective."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    text = (
        "The first sentence says this. Another one follows here. A third is told. And a fourth. "
        "Then the last one."
    )
    rows = (
        {
            "id": str(i),
            "text": f"{text} {i}.",
            "document": text,
            "summary": f"A third is number {i}.",
            "label": i % 2,
            "question": "What?",
            "context": "The first sentence says this.",
            "answer": "sentence",
            "choices": ["this", "another"],
            "rejected": f"Nothing is number {i}.",
        }
        for i in range(20)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def smaller(path, mode):
    """Overrides that make the model of a config small, and the segments of its documents."""
    config = read_config(f"{path}:{mode}", {})
    overrides = [
        f"model.{key}={value}" for key, value in SMALL_MODELS[config["model"]["family"]].items()
    ]
    # More parts than the 16 rows of SMALL would be empty.
    overrides.append(f"training.accumulation={min(config['training']['accumulation'], 16)}")
    if "segments" not in config["task"]:
        return overrides
    memory = [
        f"model.memory_size={min(config['model']['memory_size'], 16)}",
        "model.memory_layers=all",
    ]
    return [
        *overrides,
        *memory,
        "task.max_parts=4",
        "task.segments.min_tokens=16",
        "task.segments.max_tokens=24",
    ]


# What modes set by the size of their data set, and numbers that change no program.
LENGTHS_OF_RUNS = [("optimizer", "warmup_steps"), ("optimizer", "total_steps"), ("data", "epochs")]
LENGTHS_OF_RUNS += [("training", f"{event}_every") for event in ("eval", "checkpoint", "log")]
LENGTHS_OF_RUNS += [("training", "best_metric"), ("optimizer", "learning_rate")]


@functools.cache
def distinct():
    """Modes, by file, that still differ, made small, in more than the data set and the evaluation:
    the first of each kind.

    The tiny ones train below.
    """
    seen = {}
    for path, mode in ALL:
        if mode != "tiny":
            config = read_config(
                f"{path}:{mode}", dict(x.split("=", 1) for x in (*SMALL, *smaller(path, mode)))
            )
            sections = {name: config[name] for name in config if name not in ("task", "evaluation")}
            for section, key in LENGTHS_OF_RUNS:
                sections[section].pop(key)
            seen.setdefault((repr(sections), config["task"]["prefix"]), (path, mode))
    return [*seen.values()]


# What a mode sets of optimizer, precision, remat and accumulation stays as it is.
@pytest.mark.slow
@pytest.mark.parametrize("path", sorted({path for path, _ in ALL}), ids=lambda path: path.stem)
def test_every_mode_has_a_step_for_a_small_model(path, rows, tmp_path):
    for mode in (mode for other, mode in distinct() if other == path):
        overrides = [*SMALL, f"task.source=json:{rows}", *smaller(path, mode)]
        if mode == "prepared":
            lengths = {"max_source_length": 64, "max_target_length": 16}
            task = get_task("c4", source=f"json:{rows}", **lengths)
            shards = tmp_path / "shards"
            tokenizer = load_tokenizer("bytes", vocab_size=300)
            write_prepared(shards, task, tokenizer, "train", 1, progress=False)
            overrides.append(f"data.prepared={shards}")
        run = run_config(read_config(f"{path}:{mode}", dict(x.split("=", 1) for x in overrides)))
        state, (new_state, metrics) = step_shapes(run, tmp_path / mode)
        # The next step takes what this one gives, without another compilation.
        assert jax.tree.map(kind, new_state) == jax.tree.map(kind, state), mode
        assert kind(metrics["loss"]) == ((), "float32"), mode


def step_shapes(run, workdir):
    """The state of a run, and what its step makes of it and of the first batch, as shapes: made
    in full but for compiling it, which the tiny modes do."""
    experiment = make_experiment(run, workdir)
    batches = make_batches(experiment, make_store(experiment))
    config = experiment.setup.config
    optimizer = make_optimizer(
        with_run_length(run, batches).optimizer, run.family.parameter_axes(config)
    )
    mesh, rules = make_mesh(run.mesh), run.mesh.rules
    init = run.family.init_params(config)
    state, _ = plan_state(init, optimizer, mesh, rules, jax.random.key(0))
    step = make_train_step(
        make_loss(experiment),
        optimizer,
        accumulation=run.training.accumulation,
        shardings=shardings_of(state),
    )
    with activate(mesh, rules):
        batch = put_batch(next(batches), mesh, run.training.accumulation)
        return state, step.trace(state, batch).out_info


def kind(array):
    return array.shape, array.dtype


# Config files whose models and objectives other tests train; here their data are read. LOCOST's
# differ from quickstart in rates, clipping and schedule.
TRAINED = {
    "quickstart": "the fixture `trained`",
    "extract_abstract": "as quickstart",
    "locost_finetune": "as quickstart",
    "locost_small": "as quickstart",
    "finetune": "test_any_encoder_decoder_is_fine_tuned",
    "answer": "test_heads_are_loaded_trained_saved_and_converted",
    "classify": "test_an_encoder_goes_from_masked_tokens_to_labels",
    "mlm": "test_an_encoder_goes_from_masked_tokens_to_labels",
    "attention_study": "test_the_attention_study_goes_on_from_a_checkpoint",
    "awesome": "tests/experiment/test_segment_training.py",
    "extractor": "tests/commands/test_commands.py",
}
# The others train weekly but for these, whose attentions no other test trains by command: their
# steps are traced above, and tests/experiment trains their objectives.
EVERY_DAY = ("hepos", "long_baselines")
PATHS = sorted({path for path, _ in ALL})


@pytest.fixture
def tiny(monkeypatch):
    """Returns a function that makes the tiny mode of a file even smaller, over few documents."""

    def spec(path):
        if path.stem != "apes":  # which finds few questions in the documents
            few = dict(itertools.islice(topics.items(), 30))
            monkeypatch.setattr("pydoc_data.topics.topics", few)
        overrides = (*smaller(path, "tiny"), *SHORT, "training.steps=2", "evaluation.examples=0")
        return f"{path}:{','.join(('tiny', *overrides))}"

    return spec


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_start")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_tiny_modes_read_their_data(path, tiny, tmp_path):
    run = run_config(read_config(tiny(path), {}))
    experiment = make_experiment(run, tmp_path)
    batch = next(make_batches(experiment, make_store(experiment)))
    assert len(batch["input_ids"]) == run.data.batch_size


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_start")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem in EVERY_DAY else pytest.mark.weekly)
        for path in PATHS
        if path.stem not in TRAINED
    ],
)
def test_tiny_modes_train(path, tiny, tmp_path):
    spec = tiny(path)
    assert train.main([f"--config={spec}", f"--workdir={tmp_path / 'run'}"]) == 0
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "run" / "checkpoints" / "2").is_dir()


# The papers' hyper-parameters. A line has values of one section of a run; "generation" stands for
# the options that its evaluation decodes with.


def run_of(spec, **overrides):
    name, _, rest = spec.partition(":")
    return run_config(read_config(f"{CONFIGS / name}.py:{rest}", overrides))


EVALUATIONS = {
    "locost_finetune:govreport": "epoch",
    "locost_hepos:arxiv": "epoch",
    "awesome:booksum": "epoch",
    "awesome:govreport": 500,
    "locost_finetune:govreport,training.eval_every=50": 50,
    "finetune:training.eval_every=epoch": "epoch",
}
BEAMS = "generation: num_beams=4 length_penalty=2.0 no_repeat_ngram_size=3"
# AWESOME, section 3, appendices C.1 and D; the rest are settings of Hepos' scripts.
AWESOME = f"""{BEAMS}
evaluation: stemmer=True
optimizer: name=adamw learning_rate=5e-5 clip_norm=0.1 weight_decay=0.01 schedule=linear
data: batch_size=8
training: accumulation=8
loss: label_smoothing=0.1
task.segments: min_tokens=512 max_tokens=768 train_tokens=51200
task.segments: target_metric=precision target_stemmer=True
task: max_source_length=1024
model: memory_size=1024"""
AWESOME_PASSES = {  # over a data set, and steps of warm-up
    "govreport": (3, 300),
    "qmsum": (9, 100),
    "summscreen": (6, 300),
    "arxiv": (2, 1000),
    "booksum": (10, 40),
    "json": (3, 300),
}
BOOKSUM = "data: epochs=10\noptimizer: warmup_steps=40"
BASELINE = "optimizer: schedule=linear total_steps=None"
CACHED = """model: page_length=1024 page_context=0 page_recompute=True cross_attention=full
optimizer: weight_decay=0.0 clip_norm=1.0 schedule=linear warmup_steps=300
data: batch_size=8 source_lengths=(1024,2048,4096,8192,16384,32768,65536)
training: accumulation=8
loss: label_smoothing=0.0"""
LSG_BLOCKS = "model: block_size=128 sparse_block_size=128"
LSG_LABELS = f"""{LSG_BLOCKS} sparsity_factor=4 hidden_dropout_prob=0.1
data: batch_size=32
optimizer: schedule=linear warmup_steps=0 weight_decay=0.0
task: max_source_length=4096"""
LSG_PASSES = {
    "imdb": (3, 2e-5),
    "arxiv": (3, 5e-5),
    "patent": (3, 2e-5),
    "scotus": (7, 1e-4),
    "ecthr_a": (5, 1e-4),
    "ecthr_b": (5, 1e-4),
}
LOCOST = """data: batch_size=128
optimizer: learning_rate=5e-4 schedule=constant
model: dropout_rate=0.1"""
LOCOST_LENGTHS = {  # of sources and targets, passes, what evaluation reads (LOCOST, figure 5)
    "arxiv": (4096, 512, 60, None),
    "pubmed": (4096, 512, 60, None),
    "booksum_chapter": (8192, 512, 60, None),
    "govreport": (16384, 1024, 60, None),
    "summscreenfd": (16384, 512, 60, None),
    "booksum_book": (32768, 1024, 100, 0),
    "booksum_book,length=1024": (1024, 1024, 100, 0),
    "booksum_book,length=2048": (2048, 1024, 100, 0),
}
LOCOST_C4 = """task: source=tfds:c4/en max_source_length=4096 max_target_length=910
task.gap_sentences: ratio=0.2 mask_token=None
data: batch_size=256
training: steps=1000000
optimizer: name=adamw learning_rate=0.02 schedule=t5 warmup_steps=10000 weight_decay=0 clip_norm=1
model: dropout_rate=0 d_state=512 num_layers=12 d_model=768
loss: label_smoothing=0"""
# Hepos, table 4 and the published scripts; the accumulation is that of docs/papers/hepos.md.
HEPOS = f"""{BEAMS} max_new_tokens=1024
evaluation: stemmer=True max_new_tokens=1024
task: source=govreport:gov-report max_target_length=1024
model: hepos_stride=4 dropout=0.1 attention_dropout=0.1
optimizer: name=adafactor learning_rate=1e-4 schedule=linear warmup_steps=10000 total_steps=20000
optimizer: clip_norm=0.1 weight_decay=0.01
training: steps=20000 accumulation=16
data: batch_size=64
loss: label_smoothing=0.1"""
HEPOS_ROWS = {
    ("lsh", "hepos"): 7168,
    ("sinkhorn", "hepos"): 10240,
    ("stride", "full"): 4096,
    ("linformer", "full"): 3072,
    ("lsh", "full"): 4096,
    ("sinkhorn", "full"): 5120,
}
HEPOS_ENCODERS = {  # of lsh as many buckets as the published code makes for this length
    "lsh": "lsh_num_buckets=128 lsh_num_hashes=4 lsh_chunk_length=64",
    "sinkhorn": "block_size=64 sinkhorn_iterations=7 sinkhorn_temperature=0.7",
    "stride": "attention_window=(256,) attention_stride=32",
    "linformer": "linformer_size=256 linformer_max_length=3072",
}
RUNS = {
    "awesome:summscreen": "task: source=tfds:summscreen/tms",
    "awesome:booksum": "model: memory=attentive memory_layers=all\ntask.segments: salient=none",
    "awesome:json,variant=compressive": "model: memory_compression=5",
    "awesome:json,variant=kv": "model: salient_vectors=1024",
    "long_baselines:pagesum,data_set=arxiv": (
        f"{BASELINE}\ntask: source=tfds:scientific_papers/arxiv"
    ),
    "long_baselines:block_attention,data_set=summscreen": (
        f"{BASELINE}\ntask: source=tfds:summscreen/tms"
    ),
    "long_baselines:unlimiformer,data_set=booksum": (
        f"{BASELINE}\n{BOOKSUM}\ntask: source=parquet:booksum-fullbooks/data/{{split}}-*.parquet"
    ),
    "long_baselines:led": (
        f"{BASELINE}\ntask: source=json:data/{{split}}.jsonl max_source_length=8192"
    ),
    "extract_abstract:default,data_set=booksum": (
        f"{BASELINE}\n{BOOKSUM}\ntask: source=json:data/{{split}}.jsonl max_source_length=1024"
    ),
    "extract_abstract:default": "task: max_source_length=1024 max_target_length=1024\n"
    "evaluation: max_new_tokens=1024\noptimizer: learning_rate=5e-5",
    # AWESOME, appendix D.
    "long_baselines:longt5": "model: encoder_attention=local local_radius=127",
    "long_baselines:cached,data_set=govreport": CACHED,  # its published code
    "long_baselines:cached,data_set=qmsum": "optimizer: schedule=constant warmup_steps=0",
    "lsg_classify:ecthr_a,data=cases/{split}.parquet": (
        "task: source=parquet:cases/{split}.parquet label_key=labels"
    ),
    "lsg_classify:ecthr_a,data=cases.jsonl": (
        "task: source=json:cases.jsonl held_out=0.1 label_key=label"
    ),
    "locost_c4:base": LOCOST_C4,
    "locost_finetune:json,length=3000": "data: source_lengths=(1024,2048,3000)",
    # 17,457, 972 and 973 reports (LOCOST, table 9).
    "locost_finetune:govreport": "task: source=tfds:scrolls/gov_report",
    "locost_hepos:govreport": "task: source=tfds:scrolls/gov_report",
    "locost_finetune:qmsum": "task: source=tfds:scrolls/qmsum",
    "hepos:govreport,encoder=full,cross=full": "task: source=govreport:gov-report",
    # configs/training/optim/pref_llama.yaml of SCOPE's published code.
    "prefer:default": """loss: beta=0.1 label_smoothing=0.0
data: epochs=1
optimizer: name=adamw learning_rate=1e-6 schedule=linear total_steps=None
model: dropout_rate=0.0
task: name=preferences objective=prefer""",
}


def values_of_the_papers():
    """Yields a spec and the values of its run."""
    yield from RUNS.items()
    for spec, every in EVALUATIONS.items():
        yield spec, f"training: eval_every={every}"
    for name, (epochs, warmup) in AWESOME_PASSES.items():
        passes = f"data: epochs={epochs}\noptimizer: warmup_steps={warmup}"
        yield f"awesome:{name}", f"{AWESOME}\n{passes}"
    for mode, (epochs, rate) in LSG_PASSES.items():
        key = "labels" if mode.startswith("ecthr") else "label"
        passes = f"task: label_key={key}\ndata: epochs={epochs}\noptimizer: learning_rate={rate}"
        yield f"lsg_classify:{mode}", f"{LSG_LABELS}\n{passes}"
    for config in ("finetune", "classify", "hepos"):
        yield f"{config}:model.encoder_attention=lsg", f"{LSG_BLOCKS} num_global_tokens=1"
    for mode, (source, target, epochs, read) in LOCOST_LENGTHS.items():
        lengths = f"task: max_source_length={source} max_target_length={target}"
        lengths += f"\nevaluation: max_new_tokens={target} max_source_length={read}"
        buckets = tuple(1024 * 2**i for i in range(6) if 1024 * 2**i <= source)
        buckets = str(buckets).replace(" ", "")
        passes = f"data: epochs={epochs} source_lengths={buckets}"
        yield f"locost_finetune:{mode}", f"{LOCOST}\n{lengths}\n{passes}"
    for (encoder, cross), length in HEPOS_ROWS.items():
        attention = f"model: cross_attention={cross} max_source_length={length}"
        text = f"{HEPOS}\n{attention} {HEPOS_ENCODERS[encoder]}\ntask: max_source_length={length}"
        yield f"hepos:govreport,encoder={encoder},cross={cross}", text
    for mode in ("govreport", "json", "pubmed", "arxiv"):
        longest, shortest = (800, 100) if mode in ("pubmed", "arxiv") else (1024, 0)
        yield f"hepos:{mode}", f"{BEAMS} max_new_tokens={longest} min_new_tokens={shortest}"
    # AWESOME, appendix C.1.
    releases = {"govreport": "govreport:gov-report", "qmsum": "qmsum:QMSum"}
    for name, source in releases.items():
        yield f"extractor:default,data_set={name}", f"task: source={source}"
        for variant in VARIANTS:
            yield f"awesome:{name},variant={variant}", f"task: source={source}"
        for mode in BASELINES:
            yield f"long_baselines:{mode},data_set={name}", f"task: source={source}"


def parsed(text):
    """The values of lines, by their paths in a run."""
    values = {}
    for line in text.splitlines():
        section, _, pairs = line.partition(": ")
        for name, _, value in (pair.partition("=") for pair in pairs.split()):
            try:
                values[f"{section}.{name}"] = ast.literal_eval(value)
            except (SyntaxError, ValueError):
                values[f"{section}.{name}"] = value
    return values


def value_of(run, path):
    section, _, name = path.partition(".")
    if section == "generation":
        return run.evaluation.generation()[name]
    if section == "model" and name in (values := flat_section(run.model)):
        return values[name]
    return operator.attrgetter(path)(run)


def test_runs_have_the_values_of_the_papers():
    for spec, text in values_of_the_papers():
        run = run_of(spec)
        check_run(run)
        values = parsed(text)
        assert {path: value_of(run, path) for path in values} == values, spec


def test_settings_that_further_rows_share():
    """Memory in the layers of the paper; the same schedule and data as the rows that are tested."""
    for mode in AWESOME_PASSES:
        layers = memory_layers(run_of(f"awesome:{mode}").model.encoder_stack.memory, 12)
        assert layers == (set(range(12)) if mode == "booksum" else {9, 10, 11})
    compressive = run_of("awesome:json,variant=compressive").model.encoder_stack.memory
    assert memory_layers(compressive, 12) == {0, 1, 2}
    for mode in LSG_PASSES:
        run = run_of(f"lsg_classify:{mode}")
        assert run.task.source.startswith("tfds:imdb_reviews" if mode == "imdb" else "parquet:")
        assert max(run.data.source_lengths) == 4096
    # It has no validation split, and its test split ranks no checkpoint.
    splits = {"train": "train[:90%]", "validation": "train[90%:]", "test": "test"}
    assert run_of("lsg_classify:imdb").task.splits == splits
    for mode in ("govreport", "arxiv", "json"):
        hepos, locost = run_of(f"locost_hepos:{mode}"), run_of(f"locost_finetune:{mode}")
        assert hepos.task.max_source_length == locost.task.max_source_length
        assert hepos.data.source_lengths == locost.data.source_lengths
    for encoder, cross in HEPOS_ROWS:
        model = run_of(f"hepos:govreport,encoder={encoder},cross={cross}").model
        assert encoder in model.encoder_attention


def test_values_that_no_run_has():
    for spec, problem in (
        (
            "long_baselines:led,data_set=bookum",
            'data_set "bookum" is unknown; did you mean "booksum"',
        ),
        ("locost_finetune:govreport,length=8K", "length is 8K; give a number of tokens, 4096 for"),
        (
            "hepos:encoder=stride,cross=hepos",
            "encoder=stride,cross=hepos is no row of table 4; there are lsh,hepos; sinkhorn,hepos",
        ),
    ):
        with pytest.raises(InputError, match=problem):
            run_of(spec)


def test_baselines_of_awesome_read_what_table_14_says():
    """Thousands of tokens in the table's order of columns; None for cells without a number."""
    columns = ("govreport", "arxiv", "qmsum", "summscreen", "booksum")
    thousands = {
        "block_attention": (6, 6, 8, 6, 6),
        "led": (8, 8, 8, 8, 8),
        "longt5": (6, 6, 6, 6, 6),
        "unlimiformer": (2, 2, 2, 2, 2),
        "pagesum": (3, 5, 2, None, None),
        "cached": (64, 64, 64, 64, 512),
    }
    for baseline, row in thousands.items():
        for data_set, count in zip(columns, row, strict=True):
            run = run_of(f"long_baselines:{baseline},data_set={data_set}")
            expected = 1024 * (count or row[0])  # GovReport's in empty cells
            assert run.task.max_source_length == expected, (baseline, data_set)
        assert run.task.max_target_length == run.evaluation.max_new_tokens == 1024
        assert run.optimizer.learning_rate == (1e-4 if baseline == "longt5" else 5e-5)


def test_a_checkpoint_of_cached_has_recomputed_pages(tmp_path, draw_params):
    """The tiny model, with the pages of CachED in place of Unlimiformer's."""
    pages = ("page_length=32", "page_context=0", "page_recompute=True", "cross_attention=full")
    path = CONFIGS / "long_baselines.py"
    overrides = (*smaller(path, "tiny"), *SHORT, *(f"model.{option}" for option in pages))
    overrides += ("tokenizer.path=bytes", "model.vocab_size=300")
    run = run_config(read_config(f"{path}:{','.join(('tiny', *overrides))}", {}))
    experiment = make_experiment(run, tmp_path / "run")
    write_model_directory(experiment)
    params = draw_params(run.family.init_params(run.model))
    Model(run.family, run.model, params, experiment.setup.tokenizer).save(tmp_path / "model")
    for folder in (tmp_path / "run" / "model", tmp_path / "model"):
        raw = json.loads((folder / "config.json").read_text())
        assert (raw["page_length"], raw["page_recompute"]) == (32, True)
    assert load(tmp_path / "model").config == run.model


@pytest.mark.parametrize("name", ["lsg_summarize", "lsg_classify"])
def test_global_tokens_may_be_trained_alone(name):
    path = CONFIGS / f"{name}.py"
    run = run_config(read_config(f"{path}:arxiv,train=globals", {}))
    names = run.family.parameter_shapes(run.model)
    result = [path for path in names if re.search(run.training.trained, path)]
    assert [path for path in result if not path.startswith("head/")] == [
        "encoder/attention/global_embeddings"
    ]


def test_a_classifier_with_512_positions_reads_512_tokens(tmp_path):
    """The rows RoBERTa and Legal-BERT (512-length) of tables 2 and 10 of the LSG paper."""
    values = {"family": "bert", "vocab_size": 300, "max_position_embeddings": 512}
    family, config = model_config(values | SMALL_MODELS["bert"])
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(family.config_json(config)))
    run = run_of(f"lsg_classify:scotus,model={tmp_path}")
    assert run.model.encoder_attention == "full"
    assert run.task.max_source_length == max(run.data.source_lengths) == 512


@pytest.mark.parametrize(
    ("mode", "documents", "epochs", "longest", "shortest"),
    [
        ("arxiv", 203_037, 6, 320, {}),
        ("pubmed", 119_924, 8, 512, {"min_new_tokens": 127}),
        ("multinews", 44_972, 12, 320, {}),
        ("mediasum", 443_596, 6, 128, {"min_new_tokens": 2}),
    ],
)
def test_lsg_summarization_is_table_9(mode, documents, epochs, longest, shortest, small_bart):
    run, long_run = (
        run_of(f"lsg_summarize:{mode}"),
        run_of(f"lsg_summarize:{mode},model={small_bart}"),
    )
    for result, passes in ((run, epochs), (long_run, 1)):
        steps, optimizer = passes * documents // 32, result.optimizer
        assert (result.data.batch_size, result.data.epochs) == (32, passes)
        assert (optimizer.learning_rate, optimizer.schedule) == (8e-5, "linear")
        assert optimizer.warmup_steps == steps // 10
        assert result.model.dropout == 0.1
        expected = {"num_beams": 5, "length_penalty": 2.0, "max_new_tokens": longest} | shortest
        expected |= {"early_stopping": True, "no_repeat_ngram_size": 0}
        assert result.evaluation.generation() == expected
        assert result.evaluation.stemmer
        # Table 6 has ROUGE-L of whole texts, tables 4, 5 and 7 of sentences.
        rouge_l = "rougeL" if mode == "multinews" else "rougeLsum"
        assert result.evaluation.rouge_types == ("rouge1", "rouge2", rouge_l)
        check_run(result)
        # The published scripts' (of arXiv), with transformers' defaults.
        assert (result.task.max_target_length, optimizer.clip_norm) == (512, 1.0)
        assert (optimizer.weight_decay, optimizer.eps) == (0.0, 1e-8)
    assert run.task.max_source_length == run.model.max_source_length == 4096
    assert long_run.task.max_source_length == 16384


@pytest.mark.parametrize(
    "spec",
    [
        "lsg_classify:json",
        "lsg_classify:scotus,data=cases.jsonl",
        "lsg_summarize:json",
        "awesome:qmsum",
        "awesome:json",
        "long_baselines:longt5,data_set=booksum",
        "extract_abstract:default",
    ],
)
def test_runs_are_as_long_as_the_passes_over_the_documents(spec):
    run = with_run_length(run_of(spec), SimpleNamespace(batches_per_epoch=1000))
    assert run.training.steps == run.optimizer.total_steps == 1000 * run.data.epochs


@pytest.fixture(scope="module")
def small_bart(tmp_path_factory):
    """A training workdir of a small BART with positions for 16,384 tokens."""
    return write_small_bart(tmp_path_factory.mktemp("bart"), 16384)


def write_small_bart(workdir, positions):
    values = {"family": "bart", "vocab_size": 300, "dropout": 0.0}
    values |= {"max_position_embeddings": positions} | SMALL_MODELS["bart"]
    family, config = model_config(values)
    (workdir / "model").mkdir(parents=True)
    (workdir / "model" / "config.json").write_text(json.dumps(family.config_json(config)))
    return workdir


def test_lsg_replaces_the_attention_of_a_checkpoint(small_bart):
    overrides = {"model.encoder_attention": "lsg"}
    lsg = run_of(f"finetune:model={small_bart}", **overrides).model.attention
    assert (lsg.block_size, lsg.num_global_tokens) == (128, 1)


def test_an_abstractor_writes_no_more_than_it_has_positions_for(tmp_path):
    run = run_of(f"extract_abstract:default,model={write_small_bart(tmp_path, 256)}")
    assert run.evaluation.max_new_tokens == run.task.max_target_length == 256


@pytest.mark.parametrize("mode", ["classify:default", "answer:default"])
def test_models_with_a_decoder_label_and_answer(mode, tmp_path):
    """They read as much as they have positions for."""
    run = run_of(f"{mode},model={write_small_bart(tmp_path, 256)},data=rows.jsonl")
    check_run(run)
    assert run.family.name == "bart"
    assert run.task.max_source_length == run.task.max_target_length == 256


def test_tokens_are_predicted_from_those_before_them():
    run = run_of("mlm:causal,model.encoder_attention=lsg")
    check_run(run)
    assert run.task.objective == "lm"
    assert run.task.document_key == "text|document"


def test_the_attention_study_trains_a_checkpoint_as_the_paper_does(small_bart):
    run, paper = run_of(f"attention_study:model={small_bart}"), run_of("hepos:govreport")
    assert (run.optimizer, run.loss) == (paper.optimizer, paper.loss)
    assert run.data.batch_size == 64
    assert run.training.steps == 20_000
    assert run.evaluation.generation() == paper.evaluation.generation()


@pytest.mark.parametrize("mode", ["govreport", "json", "small", "tiny"])
def test_important_sentences_have_room_beside_a_segment(mode):
    """The same in all variants: segments end by it, and targets with them."""
    task = run_of(f"awesome:{mode},variant=txt").task
    assert task.max_source_length >= task.segments.max_tokens * 4 / 3
    assert run_of(f"awesome:{mode},variant=se3").task.max_source_length == task.max_source_length


def test_any_checkpoint_gets_a_memory(small_bart, tmp_path):
    for mode, dtype, rate in (("json", "bfloat16", 5e-5), ("small", "float32", 1e-3)):
        run = run_of(f"awesome:{mode},variant=attn+txt,model={small_bart},data=rows.jsonl")
        plain = run_of(f"awesome:{mode},variant=se3,model={small_bart},data=rows.jsonl").model
        assert (run.model.memory.memory, plain.memory.memory) == ("attentive", "none")
        assert run.task.segments.salient == "text"
        assert (run.model.vocab_size, run.model.dtype) == (300, dtype)  # not BART large
        assert run.optimizer.learning_rate == rate
        assert run.init_from == str(small_bart)
    for mode in ("json", "small"):
        short = write_small_bart(tmp_path / mode, 256)
        task = run_of(f"awesome:{mode},model={short},data=rows.jsonl").task
        assert task.max_source_length == 256
        assert (task.segments.min_tokens, task.segments.max_tokens) == (128, 192)
    with pytest.raises(InputError, match="model=x: only json and small have it, not booksum"):
        run_of("awesome:booksum,model=x")


# Configs that take a checkpoint and data


def fine_tune(path, model, data, workdir, *overrides):
    spec = ",".join(
        (
            f"{path}:model={model}",
            f"data={data}",
            "training.steps=2",
            "data.batch_size=4",
            *overrides,
        )
    )
    return train.main([f"--config={spec}", f"--workdir={workdir}"])


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_start")
def test_any_encoder_decoder_is_fine_tuned(small_model, rows, tmp_path, capsys):
    config = json.loads((small_model / "config.json").read_text())
    config["task_specific_params"] = {"summarization": {"prefix": "summarize: "}}
    shutil.copytree(small_model, tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    checksums.write(tmp_path / "model")
    path, run = CONFIGS / "finetune.py", tmp_path / "run"
    short = ("task.max_source_length=64", "task.max_target_length=16", "task.query_key=none")
    assert fine_tune(path, tmp_path / "model", rows, run, *short, "evaluation.examples=2") == 0
    out, err = capsys.readouterr()
    assert re.search("[0-9] documents? held out for evaluation, ", err)
    assert "mean_rouge" in out
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert "mean_rouge" in lines[-1]["eval"]
    described = json.loads((run / "run.json").read_text())
    assert described["task"]["prefix"] == "summarize: "
    assert described["model"]["d_state"] == 8
    trained = load(run)
    assert trained.summarization == {"prefix": "summarize: "}
    assert trained.generation_config["max_new_tokens"] == 6  # the checkpoint's


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_start")
def test_an_encoder_goes_from_masked_tokens_to_labels(rows, tmp_path, capsys):
    small = [
        *(f"model.{key}={value}" for key, value in SMALL_MODELS["bert"].items()),
        "model.vocab_size=400",
    ]
    spec = ",".join((f"{CONFIGS}/mlm.py:data={rows}", *small, *ENCODER_RUN))
    assert train.main([f"--config={spec}", f"--workdir={tmp_path / 'mlm'}"]) == 0
    assert "bits_per_character" in capsys.readouterr().out
    flags = [*ENCODER_RUN, "data.source_lengths=32"]
    command = ",".join((f"{CONFIGS}/classify.py:model={tmp_path / 'mlm'}", f"data={rows}", *flags))
    assert train.main([f"--config={command}", f"--workdir={tmp_path / 'labels'}"]) == 0
    out, err = capsys.readouterr()
    assert "macro_f1" in out
    assert f"new, not from {tmp_path / 'mlm'}: head/" in err
    described = json.loads((tmp_path / "labels" / "model" / "config.json").read_text())
    assert described["id2label"] == {"0": "0", "1": "1"}
    # Resumed, it needs no checkpoint to start from any more.
    shutil.move(tmp_path / "mlm", tmp_path / "away")
    run = json.loads((tmp_path / "labels" / "run.json").read_text())
    again = make_experiment(run_config(run), tmp_path / "labels")
    assert initial_params(again) is None
    assert len(again.setup.tokenizer.encode(again.setup.task.prefix)) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_start")
@pytest.mark.parametrize(
    ("config", "family", "head", "name"),
    [
        ("classify:default", "bart", "language_model", "LSGBartForSequenceClassification"),
        ("answer:choices", "electra", "masked_lm", "LSGElectraForMultipleChoice"),
        *(
            pytest.param(*case, marks=pytest.mark.weekly)
            for case in (
                ("answer:default", "mbart", "question_answering", "LSGMBartForQuestionAnswering"),
                ("mlm:causal", "roberta", "causal_lm", "LSGRobertaForCausalLM"),
                (
                    "classify:words",
                    "albert",
                    "token_classification",
                    "LSGAlbertForTokenClassification",
                ),
            )
        ),
    ],
)
def test_heads_are_loaded_trained_saved_and_converted(
    config, family, head, name, rows, draw_params, tmp_path, capsys
):
    """Each by another family; a head that the checkpoint lacks is new. Objectives and conversions
    have tests of their own."""
    encoder = "bart" if family.endswith("bart") else "bert"
    sizes = SMALL_MODELS[encoder] | {"vocab_size": 300, "max_position_embeddings": 66, "head": head}
    family, values = model_config({"family": family, **sizes})
    params = draw_params(family.init_params(values))
    start, run, lsg = tmp_path / "start", tmp_path / "run", tmp_path / "lsg"
    Model(family, values, params, load_tokenizer("bytes", vocab_size=300)).save(start)
    if config == "classify:words":
        rows = write_words(tmp_path / "words.jsonl")
    spec = ",".join((f"{CONFIGS}/{config.replace(':', '.py:')},model={start}", f"data={rows}"))
    flags = [*ENCODER_RUN, "training.accumulation=1", "evaluation.batch_size=2"]
    assert train.main([f"--config={','.join((spec, *flags))}", f"--workdir={run}"]) == 0
    blocks = ("--block_size=16", "--sparse_block_size=16", "--max_source_length=128")
    convert.main([str(run), str(lsg), "--encoder_attention=lsg", *blocks, "--run_test"])
    assert "outputs for 127 random tokens are finite" in capsys.readouterr().out
    converted = load(lsg)
    assert json.loads((lsg / "config.json").read_text())["architectures"] == [name]
    assert converted.config.head == load(run).config.head
    assert converted.config.max_source_length == 128


def write_words(path):
    """Rows with a label for each word."""
    row = {"text": "Ann sees Rome", "label": ["B-PER", "O", "B-LOC"]}
    path.write_text("".join(json.dumps(row) + "\n" for _ in range(20)))
    return path


ENCODER_RUN = (
    "training.steps=1",
    "data.batch_size=4",
    "task.max_source_length=32",
    "evaluation.examples=2",
)


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_start")
def test_the_attention_study_goes_on_from_a_checkpoint(rows, tmp_path, capsys, draw_params):
    """Cells start from one model; what an attention adds is new, and sources are as long as its
    positions allow."""
    path = CONFIGS / "attention_study.py"
    sizes = [f"model.{key}={value}" for key, value in SMALL_MODELS["bart"].items()]
    short = ("length=64", "task.max_target_length=16", "training.steps=1", "evaluation.examples=0")
    new = (
        "tokenizer.path=bytes",
        "model.vocab_size=300",
        "model.max_position_embeddings=64",
        *sizes,
    )
    start, cell = tmp_path / "start", tmp_path / "cell"
    run = run_config(read_config(f"{path}:{','.join((f'data={rows}', *short, *new))}", {}))
    params = draw_params(run.family.init_params(run.model))
    Model(run.family, run.model, params, load_tokenizer("bytes", vocab_size=300)).save(start)
    given = (
        f"model={start}",
        f"data={rows}",
        "encoder=lsh",
        "cross=linformer",
        "length=4096",
        *short[1:],
    )
    assert train.main([f"--config={path}:{','.join(given)}", f"--workdir={cell}"]) == 0
    assert (
        f"new, not from {start}: decoder/layers/cross_attention/length_projection"
        in capsys.readouterr().err
    )
    model = json.loads((cell / "run.json").read_text())["model"]
    assert (
        model["encoder_attention"],
        model["lsh_chunk_length"],
        model["max_position_embeddings"],
    ) == ("lsh", 4, 64)


def test_the_attention_study_has_equal_cost_at_every_length():
    """Section 6.2 of the Hepos paper at 1,024 tokens; shorter sources are read with fewer keys in
    proportion."""
    path = CONFIGS / "attention_study.py"
    model = read_config(f"{path}:encoder=lsh,cross=hepos", {})["model"]
    assert (model["encoder_attention"], model["cross_attention"]) == ("lsh", "hepos")
    assert model["attention_window"] == (256,)
    assert model["linformer_size"] == model["lsh_num_hashes"] * model["lsh_chunk_length"] == 256
    assert model["linformer_size"] == 2 * model["block_size"]
    assert model["num_global_tokens"] == 1024 // model["attention_stride"] == 128
    assert model["cross_linformer_size"] == 1024 // model["hepos_stride"] == 256
    assert read_config(f"{path}:length=256", {})["model"]["linformer_size"] == 64
    assert read_config(f"{path}:length=4096", {})["model"]["linformer_size"] == 256
    for length in ("100", "0", "1e3"):
        with pytest.raises(InputError, match=f"length is {length}; give a multiple of 64"):
            read_config(f"{path}:length={length}", {})


@pytest.mark.parametrize("spec", ["quickstart", "locost_small:finetune", "awesome:small"])
def test_a_small_model_that_trains_longer_learns_until_the_end(spec):
    run = run_of(spec, **{"training.steps": "2000"})
    assert run.optimizer.for_run(run.training.steps).total_steps == 2000


@pytest.mark.parametrize("size", ["2m", "6m", "10m"])
def test_the_small_locost_learns_to_read_step_by_step(size):
    """Each of its trainings goes on with the model of the one before."""
    modes = ["copy", "mix", "mix,words=280", "finetune"]
    if size != "2m":
        modes.insert(3, "mix,words=600")
    runs = [run_of(f"locost_small:{mode},size={size}") for mode in modes]
    lengths = [run.task.max_source_length for run in runs]
    assert lengths == sorted(lengths)
    sizes = [dataclasses.replace(run.model, dropout_rate=0.0) for run in runs]
    assert sizes == [sizes[0]] * len(runs)
    rows = [run.data.batch_size for run in runs]
    assert rows == sorted(rows, reverse=True)
    for arguments in ("copy,words=60", "mix,words=0", "mix,words=many"):
        with pytest.raises(InputError, match="only mix has it, the words of a piece, such as 280"):
            run_of(f"locost_small:{arguments}")
    with pytest.raises(InputError, match="size=1b: give one of 2m, 6m, 10m"):
        run_of("locost_small:copy,size=1b")
