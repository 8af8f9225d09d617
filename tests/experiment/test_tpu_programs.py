"""Training steps of the shipped configs, compiled for four chips of TPU v5e that are not there."""

import dataclasses
import importlib
import json
import math
import pkgutil
from pathlib import Path
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from longsum_jax import configs
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.experiment.config import RunConfig, run_config
from longsum_jax.experiment.config_files import read_config
from longsum_jax.experiment.programs import run_programs
from longsum_jax.inference.abstract import parameter_shapes, summary_programs
from longsum_jax.models.locost import PRESETS
from longsum_jax.models.registry import get_family
from longsum_jax.training.mesh import BATCH_AXES, MeshOptions, activate, make_mesh
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.state import plan_state, shardings_of
from longsum_jax.training.step import make_train_step
from longsum_plan import devices
from longsum_plan.plan import plan_program
from longsum_plan.program_text import Instruction, parse
from longsum_plan.program_work import Work, program_work

pytestmark = [pytest.mark.slow, pytest.mark.tpu_compiler]

ROOT = Path(__file__).parents[2]
# What scatters write: gradients of embeddings, which have a row for every token that was read, and
# of biases, which have one for every distance.
EMBEDDINGS = ("embed", "shared", "relative_attention_bias", "position")
SORTED = {
    "hepos": "keys of LSH, by their hashes",
    "long_baselines": "scores of Unlimiformer, to find the nearest keys",
}


COMPILED = {}  # what tells programs apart -> program


class Step(NamedTuple):
    """A compiled training step."""

    run: RunConfig
    instructions: list[Instruction]
    work: Work
    temporary: int  # bytes


def compiled_step(spec, **overrides):
    run = run_config(read_config(str(ROOT / "configs" / spec), overrides))
    train = next(run_programs(run, devices.find_target("v5e:2x2").devices))
    # Several configs have one tiny model, and differ in rates that programs do not depend on.
    key = run.model, run.task.objective, run.optimizer.name, run.mesh
    if key not in COMPILED:
        COMPILED[key] = train.lower().compile()
    compiled = COMPILED[key]
    text = compiled.as_text()
    computations, _ = parse(text)
    result = [x for each in computations.values() for x in each.instructions.values()]
    return Step(run, result, program_work(text), compiled.memory_analysis().temp_size_in_bytes)


# Configs whose programs hold nothing that another config's program does not hold.
COVERED = {
    "answer": "classify",
    "apes": "classify",
    "attention_study": "finetune, long_baselines",
    "extract_abstract": "finetune",
    "factcc": "classify",
}


def tiny_configs():
    names = [module.name for module in pkgutil.iter_modules(configs.__path__)]
    modules = {name: importlib.import_module(f"{configs.__name__}.{name}") for name in names}
    tiny = [name for name, module in modules.items() if "tiny" in getattr(module, "MODES", ())]
    return [name for name in tiny if name not in COVERED]


@pytest.fixture(scope="module", autouse=True)
def labelled_documents(tmp_path_factory):
    """Data of configs that count the labels of their data: two of them."""
    folder = tmp_path_factory.mktemp("documents")
    text = "Anna brought 14 ships to Hamburg."
    document = {"text": text, "document": text, "claim": "She brought ships."}
    (folder / "data").mkdir()
    for split in ("train", "validation", "test"):
        rows = [document | {"id": name, "label": name} for name in ("CORRECT", "INCORRECT")]
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / "data" / f"{split}.jsonl").write_text("".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


@pytest.mark.weekly  # a program takes 40 seconds; the one with sharded texts is compiled every day
@pytest.mark.parametrize("config", tiny_configs())
def test_steps_exchange_gradients_alone_and_sort_nothing(config):
    """Every device has some documents of a batch: gradients are summed, each parameter once.

    But T5's table, as input and as output, and its biases, before they are summed into buckets.
    """
    step = compiled_step(f"{config}.py:tiny")
    shapes = step.run.family.parameter_shapes(step.run.model).values()
    num_bytes = 4 * sum(map(math.prod, shapes))
    assert set(step.work.collectives) == {"all-reduce"}
    sums = step.work.collectives["all-reduce"].num_bytes
    most = 1.25 if step.run.family.name == "locost" else 1.17
    assert 0.7 * num_bytes < sums < most * num_bytes
    assert step.temporary < 20e6
    sorts = [x for x in step.instructions if x.opcode == "sort"]
    assert bool(sorts) == (config in SORTED)
    scattered = [x.attributes for x in step.instructions if x.opcode == "scatter"]
    of_others = [x for x in scattered if not any(name in x for name in EMBEDDINGS)]
    assert bool(of_others) == (config in SORTED)


def test_a_sharded_text_is_never_gathered():
    """Pre-training LOCOST, texts of 256 tokens over two chips: no all-gather has their length,
    nothing is sorted, and what is scattered are gradients of embeddings."""
    mesh = {"preset": "fsdp+sequence", "batch": "1", "fsdp": "2", "sequence": "2"}
    overrides = {f"mesh.{key}": value for key, value in mesh.items()}
    step = compiled_step("locost_c4.py:tiny", **overrides)
    gathered = [x for x in step.instructions if x.opcode == "all-gather"]
    assert gathered
    assert not any(256 in x.arrays[0].shape for x in gathered)
    assert step.work.collectives["all-to-all"].count > 0  # positions for channels
    assert not any(x.opcode == "sort" for x in step.instructions)


@pytest.mark.weekly  # tests/ops has kernels and windows of shards
def test_kernels_compute_windows_of_a_sharded_text():
    """A window and global tokens, texts of 256 tokens over two chips, which exchange halos."""
    window = {"encoder_attention": "window+global", "attention_window": "32", "dtype": "bfloat16",
              "attention_dropout": "0.0", "cross_attention": "full"}  # fmt: skip
    mesh = {"preset": "fsdp+sequence", "batch": "1", "fsdp": "2", "sequence": "2"}
    overrides = {f"model.{key}": value for key, value in window.items()}
    overrides |= {f"mesh.{key}": value for key, value in mesh.items()}
    step = compiled_step("hepos.py:tiny", **overrides)
    kernels = [x for x in step.instructions if x.target == "tpu_custom_call"]
    assert kernels
    assert step.work.collectives["collective-permute"].count > 0
    gathered = [x for x in step.instructions if x.opcode.startswith("all-gather")]
    assert not any(256 in x.arrays[0].shape for x in gathered)


@pytest.mark.weekly
def test_the_base_model_reads_16384_tokens():
    """A program of full size: LOCOST in bfloat16, on one chip of 16 GB."""
    config = dataclasses.replace(PRESETS["base"], dtype="bfloat16")
    family = get_family("locost")
    shapes = parameter_shapes(family, config)
    options = GenerationOptions(max_new_tokens=1, decoder_start_token_id=0)
    target = devices.find_target("v5e")
    with jax.default_device(target.devices[0]):
        read, _ = summary_programs(
            family.module_class(config), shapes, batch_size=1, length=16384, options=options
        )
        planned = plan_program(read, target)
    assert planned.fits
    assert planned.memory["temporary"] < 2.5e8  # 12 layers, states of 25 MB
    # Products of the state-space kernels and of the dense maps; 4 x as many in full attention.
    assert 3e12 < planned.work.operations < 4.5e12
    assert not planned.work.collectives


@pytest.mark.weekly
def test_weights_are_gathered_before_products():
    """Sixteen rows of 4,096 states on every chip: no part of a product waits for a shard."""

    def init(key):
        kernel = jax.random.normal(key, (768, 2048))
        return {"kernel": nn.LogicallyPartitioned(kernel, ("embed", "mlp"))}

    def loss_fn(params, batch, rng):
        out = batch["x"] @ params["kernel"].astype(jnp.bfloat16)
        return jnp.sum(out, dtype=jnp.float32), jnp.float32(1), {}

    options = MeshOptions("fsdp", batch=1, fsdp=4)
    mesh = make_mesh(options, devices.find_target("v5e:2x2").devices)
    optimizer = make_optimizer(OptimizerOptions())
    state, _ = plan_state(init, optimizer, mesh, options.rules, jax.random.key(0))
    step = make_train_step(loss_fn, optimizer, shardings=shardings_of(state))
    x = jax.ShapeDtypeStruct(
        (64, 4096, 768), jnp.bfloat16, sharding=NamedSharding(mesh, P(BATCH_AXES))
    )
    with activate(mesh, options.rules):
        text = step.lower(state, {"x": x}).compile().as_text()
    assert "all-gather" in text
    assert "collective-permute" not in text


@pytest.mark.weekly
def test_devices_decode_their_own_documents():
    """Weights are sharded over the devices that share eight documents: each has keys of two.

    Weights are gathered once. In the loop, devices only sum the number of finished documents.
    """
    mesh = {"mesh.preset": "fsdp", "mesh.batch": "1", "mesh.fsdp": "4"}
    evaluation = {"evaluation.batch_size": "8", "evaluation.max_new_tokens": "48"}
    run = run_config(read_config(str(ROOT / "configs/locost_c4.py:tiny"), mesh | evaluation))
    *_, search = run_programs(run, devices.find_target("v5e:2x2").devices)
    text = search.lower().compile().as_text()
    computations, _ = parse(text)
    instructions = [x for each in computations.values() for x in each.instructions.values()]
    shapes = {array.shape for x in instructions for array in x.arrays}
    keys = {shape for shape in shapes if len(shape) == 4 and 48 in shape}
    assert keys
    assert not any(shape[0] == 8 for shape in keys)
    work, with_one_step = (program_work(text, trips=trips).collectives for trips in (48, 1))
    assert set(work) == {"all-gather", "all-reduce"}
    assert work["all-gather"] == with_one_step["all-gather"]
    assert work["all-reduce"].count - with_one_step["all-reduce"].count == 47
    assert work["all-reduce"].num_bytes - with_one_step["all-reduce"].num_bytes == 47 * 4
