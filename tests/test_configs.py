"""Every file of configs/ in every mode; the tiny ones train."""

import importlib.util
import sys
from pathlib import Path

import pytest

from longsum_jax import train
from longsum_jax.config_files import read_config
from longsum_jax.experiment import Experiment
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


@pytest.mark.parametrize("path", sorted({path for path, _ in ALL}), ids=lambda path: path.stem)
def test_tiny_modes_train(path, tmp_path):
    overrides = (*SMALLER, "training.steps=2", "evaluation.examples=0")
    assert train.main([f"--config={path}:{','.join(('tiny', *overrides))}", f"--workdir={tmp_path / 'run'}"]) == 0
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "run" / "checkpoints" / "2").is_dir()
