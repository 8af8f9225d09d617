"""Every file of configs/ in every mode; the tiny ones train."""

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from longsum_jax.commands import train
from longsum_jax.data.prepared import write_prepared
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config
from longsum_jax.experiment.experiment import check_run, initial_params, prepare
from longsum_jax.inference.loading import load
from longsum_jax.tokenizers.loading import load_tokenizer
from longsum_jax.training.optimizers import make_optimizer

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
    run = run_config(read_config(f"{path}:{mode}", {}))
    check_run(run)
    assert run.family.parameter_shapes(run.model)
    make_optimizer(run.optimizer)
    assert run.data.batch_size % run.training.accumulation == 0


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


def distinct():
    """Modes that still differ, made small, in more than the data set and the evaluation: the first
    of each kind.

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
    return seen.values()


# What a mode sets of optimizer, precision, remat and accumulation stays as it is.
@pytest.mark.slow
@pytest.mark.parametrize(("path", "mode"), distinct(), ids=lambda x: getattr(x, "stem", x))
def test_every_mode_steps_with_a_small_model(path, mode, rows, tmp_path):
    overrides = [*SMALL, f"task.source=json:{rows}"]
    if mode == "prepared":
        task = get_task("c4", source=f"json:{rows}", max_source_length=64, max_target_length=16)
        write_prepared(
            tmp_path / "shards",
            task,
            load_tokenizer("bytes", vocab_size=300),
            "train",
            1,
            progress=False,
        )
        overrides.append(f"data.prepared={tmp_path / 'shards'}")
    flags = [f"--config.{override}" for override in (*overrides, *smaller(path, mode))]
    assert train.main([f"--config={path}:{mode}", f"--workdir={tmp_path / 'run'}", *flags]) == 0
    (line,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["loss"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted({path for path, _ in ALL}), ids=lambda path: path.stem)
def test_tiny_modes_train(path, tmp_path):
    overrides = (*smaller(path, "tiny"), *SHORT, "training.steps=2", "evaluation.examples=0")
    assert (
        train.main(
            [f"--config={path}:{','.join(('tiny', *overrides))}", f"--workdir={tmp_path / 'run'}"]
        )
        == 0
    )
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "run" / "checkpoints" / "2").is_dir()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("locost_finetune:govreport", "epoch"),
        ("locost_hepos:arxiv", "epoch"),
        ("awesome:booksum", "epoch"),
        ("awesome:govreport", 500),
        ("locost_finetune:govreport,training.eval_every=50", 50),
        ("finetune:training.eval_every=epoch", "epoch"),
    ],
)
def test_evaluations_once_an_epoch_or_every_so_many_steps(spec, expected):
    name, _, rest = spec.partition(":")
    run = run_config(read_config(f"{CONFIGS / name}.py:{rest}", {}))
    assert run.training.eval_every == expected


@pytest.mark.parametrize("name", ["lsg_summarize", "lsg_classify"])
def test_global_tokens_may_be_trained_alone(name):
    path = CONFIGS / f"{name}.py"
    run = run_config(read_config(f"{path}:arxiv,train=globals", {}))
    names = run.family.parameter_shapes(run.model)
    found = [path for path in names if re.search(run.optimizer.trainable, path)]
    assert [path for path in found if not path.startswith("head/")] == [
        "encoder/attention/global_embeddings"
    ]
    with pytest.raises(InputError, match='train "global" is unknown; did you mean "globals"'):
        read_config(f"{path}:arxiv,train=global", {})


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
def test_any_encoder_decoder_is_fine_tuned(small_model, rows, tmp_path, capsys):
    config = json.loads((small_model / "config.json").read_text())
    config["task_specific_params"] = {"summarization": {"prefix": "summarize: "}}
    shutil.copytree(small_model, tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    path, run = CONFIGS / "finetune.py", tmp_path / "run"
    short = ("task.max_source_length=64", "task.max_target_length=16", "task.query_key=none")
    assert fine_tune(path, tmp_path / "model", rows, run, *short, "evaluation.examples=2") == 0
    out, err = capsys.readouterr()
    assert "documents held out for evaluation, " in err
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
    assert f"not in {tmp_path / 'mlm'}, so new: head/" in err
    described = json.loads((tmp_path / "labels" / "model" / "config.json").read_text())
    assert described["id2label"] == {"0": "0", "1": "1"}
    # Resumed, it needs no checkpoint to start from any more.
    shutil.move(tmp_path / "mlm", tmp_path / "away")
    run = json.loads((tmp_path / "labels" / "run.json").read_text())
    again = prepare(run_config(run), tmp_path / "labels")
    assert initial_params(again) is None
    assert len(again.setup.tokenizer.encode(again.setup.task.prefix)) == 1


ENCODER_RUN = (
    "training.steps=1",
    "data.batch_size=4",
    "task.max_source_length=32",
    "evaluation.examples=2",
)


@pytest.mark.slow
def test_the_attention_study_goes_on_from_a_checkpoint(rows, tmp_path, capsys):
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
    assert (
        train.main(
            [f"--config={path}:{','.join((f'data={rows}', *short, *new))}", f"--workdir={start}"]
        )
        == 0
    )
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
        f"not in {start}, so new: decoder/layers/cross_attention/length_projection"
        in capsys.readouterr().err
    )
    model = json.loads((cell / "run.json").read_text())["model"]
    assert (
        model["encoder_attention"],
        model["lsh_chunk_length"],
        model["max_position_embeddings"],
    ) == ("lsh", 4, 64)


def test_the_attention_study_has_equal_cost_at_every_length():
    """Section 4.3 of the Hepos paper at 1,024 tokens; shorter sources are read with fewer keys in
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
