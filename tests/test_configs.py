"""Every file of configs/ in every mode; the tiny ones train."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from longsum_jax import train
from longsum_jax.config_files import read_config
from longsum_jax.data.prepared import write_prepared
from longsum_jax.data.tasks import get_task
from longsum_jax.experiment import Experiment
from longsum_jax.text.tokenizers import load_tokenizer
from longsum_jax.training.optimizers import make_optimizer

CONFIGS = Path(__file__).parents[1] / "configs"
SMALLER = ("model.num_layers=1", "model.num_decoder_layers=1", "task.max_source_length=64", "task.max_target_length=16")

pytestmark = pytest.mark.usefixtures("fast_compilation")


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
def test_every_mode_builds(path, mode, tmp_path):
    experiment = Experiment(read_config(f"{path}:{mode}", {}), tmp_path)
    assert experiment.family.parameter_shapes(experiment.config)
    make_optimizer(experiment.optimizer)
    assert experiment.data.batch_size % experiment.training.accumulation == 0
    assert not any(tmp_path.iterdir())


SMALL_MODEL = {"vocab_size": 300, "d_model": 16, "d_state": 4, "d_kv": 8, "d_ff": 16, "num_heads": 2}
SMALL = (
    *(f"model.{key}={value}" for key, value in SMALL_MODEL.items()),
    *("model.num_layers=1", "model.num_decoder_layers=1", "tokenizer.path=bytes", "init_from="),
    *("task.max_source_length=64", "task.max_target_length=16", "task.piece_words=None"),
    *("data.source_lengths=(64,)", "data.batch_size=16", "data.shuffle_block=8", "data.prefetch=1"),
    *("training.steps=1", "evaluation.examples=0"),
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A data file with the fields of every objective."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    text = "The first sentence says this. Another one follows here. A third is told. And a fourth. Then the last one."
    rows = ({"id": str(i), "text": f"{text} {i}.", "document": text, "summary": f"Number {i}."} for i in range(20))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# The tiny modes train below; what a mode sets of optimizer, precision, remat and accumulation stays as it is.
@pytest.mark.parametrize(("path", "mode"), [x for x in ALL if x[1] != "tiny"], ids=lambda x: getattr(x, "stem", x))
def test_every_mode_steps_with_a_small_model(path, mode, rows, tmp_path):
    overrides = [*SMALL, f"task.source=json:{rows}"]
    if mode == "prepared":
        task = get_task("c4", source=f"json:{rows}", max_source_length=64, max_target_length=16)
        write_prepared(tmp_path / "shards", task, load_tokenizer("bytes", vocab_size=300), "train", 1, progress=False)
        overrides.append(f"data.prepared={tmp_path / 'shards'}")
    flags = [f"--config.{override}" for override in overrides]
    assert train.main([f"--config={path}:{mode}", f"--workdir={tmp_path / 'run'}", *flags]) == 0
    (line,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["loss"] > 0


@pytest.mark.parametrize("path", sorted({path for path, _ in ALL}), ids=lambda path: path.stem)
def test_tiny_modes_train(path, tmp_path):
    overrides = (*SMALLER, "training.steps=2", "evaluation.examples=0")
    assert train.main([f"--config={path}:{','.join(('tiny', *overrides))}", f"--workdir={tmp_path / 'run'}"]) == 0
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "run" / "checkpoints" / "2").is_dir()
