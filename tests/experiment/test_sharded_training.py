"""A small LOCOST on eight devices, parameters and batch cut three ways, learns what it learns on
one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from longsum_jax.commands import train
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config
from longsum_jax.summarization.model import Model
from longsum_jax.tokenizers.loading import load_tokenizer

ROOT = Path(__file__).parents[2]


def lines(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def on_devices(count):
    """The environment of a process that sees so many devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    return os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}


RUN_SCRIPTS = """
import json, sys, traceback
problems = {}
for name, script in json.load(sys.stdin).items():
    try:
        exec(script, {})
    except Exception:
        problems[name] = traceback.format_exc()
print(json.dumps(problems))
"""


@pytest.fixture(scope="module")
def problems(request):
    """Tracebacks of the selected `SCRIPTS` that fail; one process with two devices runs all."""
    asked = {
        item.callspec.params.get("script")
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    }
    scripts = {name: SCRIPTS[name] for name in SCRIPTS if name in asked}
    command = [sys.executable, "-c", RUN_SCRIPTS]
    pipes = {"input": json.dumps(scripts), "capture_output": True, "text": True}
    done = subprocess.run(command, env=on_devices(2), cwd=ROOT, **pipes)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def config(tiny_run, draw_params, tmp_path_factory):
    """A run that starts from a model: initialization is a third of what its processes compile."""
    path, run = tmp_path_factory.mktemp("start"), run_config(read_config(tiny_run, {}))
    params = draw_params(run.family.init_params(run.model))
    tokenizer = load_tokenizer("bytes", vocab_size=run.model.vocab_size)
    Model(run.family, run.model, params, tokenizer).save(path / "model")
    return f"{tiny_run},data.batch_size=8,init_from={path / 'model'}"


@pytest.fixture(scope="module")
def one_device(config, tmp_path_factory):
    """The metrics of `config` on one device."""
    workdir = tmp_path_factory.mktemp("one") / "run"
    assert train.main([f"--config={config}", f"--workdir={workdir}"]) == 0
    return lines(workdir)


def start(config, workdir, devices, *flags):
    command = [sys.executable, "-W", "error", "-m", "longsum_jax.train", f"--config={config}"]
    command += [f"--workdir={workdir}", *flags]
    return subprocess.Popen(
        command, env=on_devices(devices), cwd=ROOT, stderr=subprocess.PIPE, text=True
    )


def end(process):
    """Returns what a process wrote to standard error."""
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return errors


def assert_equal_metrics(found, wanted):
    assert [line["step"] for line in wanted] == [line["step"] for line in found] == [1, 2, 2, 3, 3]
    for a, b in zip(wanted, found, strict=True):
        for name in ("loss", "grad_norm", "weight", "tokens", "right_tokens"):
            if name in a:
                at = f"{name} at step {a['step']}"
                np.testing.assert_allclose(b[name], a[name], rtol=2e-5, err_msg=at)
        assert a.get("eval") == b.get("eval")


@pytest.mark.slow
def test_eight_devices_give_the_losses_of_one(config, one_device, tmp_path):
    mesh = "mesh.preset=fsdp+tensor,mesh.batch=2,mesh.fsdp=2,mesh.tensor=2"
    other = "training.accumulation=2,model.remat=True"
    errors = end(start(f"{config},{mesh},{other}", tmp_path / "eight", 8))
    assert "(-, -, fsdp, tensor)" in errors or "(-, fsdp, tensor)" in errors  # the sharding table
    assert_equal_metrics(lines(tmp_path / "eight"), one_device)


@pytest.mark.weekly  # tests/training has several hosts, tests/models documents that are cut
def test_documents_may_be_cut_over_hosts(config, one_device, tmp_path, free_port):
    """Two processes with two devices each, a fourth of every document on a device."""
    mesh = "mesh.preset=fsdp+sequence,mesh.batch=1,mesh.sequence=4"
    cluster = f"--coordinator=127.0.0.1:{free_port()}", "--num_processes=2"
    workdir, processes = tmp_path / "two", []
    for index in range(2):
        processes.append(start(f"{config},{mesh}", workdir, 2, *cluster, f"--process_id={index}"))
    for process in processes:
        end(process)
    assert_equal_metrics(lines(workdir), one_device)


COUNTS_OF_MASKED_TOKENS = """
import flax.linen as nn
import jax
import numpy as np
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config
from longsum_jax.experiment.experiment import make_experiment
from longsum_jax.training.mesh import activate, make_mesh, put_batch

run = run_config(read_config("configs/mlm.py:tiny", {"tokenizer.path": "bytes"}))
objective = make_experiment(run, "no/workdir").objective
init = run.family.init_params(objective.setup.config)
shapes = nn.meta.unbox(jax.eval_shape(init, jax.random.key(0)))
params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
mesh = make_mesh(run.mesh)
with activate(mesh, run.mesh.rules):
    names = ("numbers", "ids", "mask")
    batch = put_batch(dict(zip(names, next(objective._batches()), strict=True)), mesh)
    counts = objective._guess(params, *batch.values())
assert counts.shape == (4, 2) and len(counts.sharding.device_set) == 2
assert counts.is_fully_replicated
"""


SEGMENTS = """
import re
import flax.linen as nn
import jax
import numpy as np
import optax
from longsum_jax.experiment.objectives.segments import segment_loss_fn
from longsum_jax.models.registry import get_family
from longsum_jax.training.mesh import MeshOptions, activate, make_mesh, put_batch
from longsum_jax.training.state import create_state, init_state, plan_state, shardings_of
from longsum_jax.training.step import make_train_step

family = get_family("bart")
sizes = dict(vocab_size=40, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16)
sizes |= dict(decoder_ffn_dim=16, encoder_attention_heads=2, decoder_attention_heads=2)
sizes |= dict(max_position_embeddings=12, dropout=0.0, memory="attentive", memory_size=4)
config = family.config(sizes | {"memory_layers": "all"})
loss = segment_loss_fn(family.module_class(config), config)
rng = np.random.default_rng(0)
counts = np.array([3, 1, 4, 2])  # segments of each document
there = np.arange(4) < counts[:, None]
ids = rng.integers(3, 40, (4, 4, 12))
batch = {
    "input_ids": ids.astype(np.int32),
    "attention_mask": np.broadcast_to(there[..., None], ids.shape),
    "labels": np.where(there[..., None], ids[..., :5], -100).astype(np.int32),
}
optimizer, init = optax.sgd(1.0), family.init_params(config)
options = MeshOptions(**MESH)
mesh = make_mesh(options)
abstract, _ = plan_state(init, optimizer, mesh, options.rules, jax.random.key(0))
draw = lambda x: 0.3 * rng.normal(size=x.shape).astype(x.dtype)
whole = jax.tree.map(draw, nn.meta.unbox(jax.eval_shape(init, jax.random.key(0))))
state = create_state(abstract, init, optimizer, jax.random.key(0), whole)
alone = init_state(whole, optimizer)
step = make_train_step(loss, optimizer, accumulation=ACCUMULATION, shardings=shardings_of(abstract))
with activate(mesh, options.rules):
    rows = put_batch(batch, mesh, ACCUMULATION)
    compiled = step.lower(state, rows).compile()
    state, metrics = compiled(state, rows)
program = compiled.as_text()
wanted_state, wanted = make_train_step(loss, optimizer)(alone, batch)
for name in ("loss", "grad_norm", "weight", "tokens", "segments"):
    np.testing.assert_allclose(metrics[name], wanted[name], rtol=2e-5, err_msg=name)
for found, other in zip(*map(jax.tree.leaves, (state.params, wanted_state.params)), strict=True):
    np.testing.assert_allclose(found, other, atol=2e-5)
"""


SEGMENTS_ON_EIGHT_DEVICES = f"""
MESH, ACCUMULATION = dict(preset="fsdp+tensor", batch=2, fsdp=2, tensor=2), 1
{SEGMENTS}
"""


SEGMENTS_ON_TWO_DEVICES = f"""
MESH, ACCUMULATION = dict(), 2
{SEGMENTS}
"""
SEGMENTS_ON_TWO_DEVICES += """
# What goes between the devices, inside of loops and outside, in numbers of floats.
computations = dict(re.findall(r"(?m)^(?:ENTRY )?%?([\\w.-]+) [^\\n]*{\\n(.*?)^}", program, re.S))
inside, waiting = set(), re.findall(r"body=%?([\\w.-]+)", program)
while waiting:
    name = waiting.pop()
    if name not in inside:
        inside.add(name)
        waiting += re.findall(r"(?:body|calls|to_apply)=%?([\\w.-]+)", computations[name])
def reduced(names):
    lines = [x for name in names for x in computations[name].splitlines() if "all-reduce(" in x]
    heads = [line.split("all-reduce(")[0] for line in lines]
    shapes = [shape for head in heads for shape in re.findall(r"f32\\[([\\d,]*)\\]", head)]
    return sum(int(np.prod([int(n) for n in shape.split(",") if n])) for shape in shapes)
size = sum(leaf.size for leaf in jax.tree.leaves(state.params))
assert inside
assert reduced(inside) < 64, reduced(inside)
# All gradients but those of the logits' bias, which has none.
assert abs(reduced(computations.keys() - inside) - size) < 64
"""


DROPOUT_ON_TWO_DEVICES = """
import flax.linen as nn
import jax
import numpy as np
import optax
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config
from longsum_jax.experiment.experiment import make_experiment, make_loss
from longsum_jax.layers.chunking import CPU_ROWS
from longsum_jax.training.mesh import MeshOptions, activate, make_mesh, put_batch
from longsum_jax.training.state import create_state, plan_state

length = 2 * CPU_ROWS + 16  # which one device reads in pieces
sizes = {"d_model": "16", "d_ff": "16", "d_state": "8", "num_layers": "1", "num_heads": "2"}
sizes |= {"d_kv": "8", "num_decoder_layers": "1", "vocab_size": "384", "dropout_rate": "0.3"}
changes = {f"model.{name}": size for name, size in sizes.items()}
changes |= {"tokenizer.path": "bytes", "task.max_source_length": str(length)}
run = run_config(read_config("configs/quickstart.py:tiny", changes))
experiment = make_experiment(run, "no/workdir")
loss = make_loss(experiment)
init = run.family.init_params(experiment.setup.config)
params = nn.meta.unbox(jax.jit(init)(jax.random.key(0)))
options, optimizer = MeshOptions("fsdp", batch=1, fsdp=2), optax.identity()
mesh, rng = make_mesh(options), jax.random.key(0)
abstract, _ = plan_state(init, optimizer, mesh, options.rules, rng)
state = create_state(abstract, init, optimizer, rng)
assert any(len(x.sharding.spec) for x in jax.tree.leaves(state.params))
for found, wanted in zip(*map(jax.tree.leaves, (state.params, params)), strict=True):
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
ids = np.random.default_rng(0).integers(3, 259, (2, length)).astype(np.int32)
batch = {"input_ids": ids, "attention_mask": ids > 0, "labels": ids[:, :8]}
losses = []
for seed, count in ((1, 1), (1, 2), (2, 1)):
    mesh = make_mesh(run.mesh, jax.devices()[:count])
    with activate(mesh, run.mesh.rules):
        out = jax.jit(loss)(params, put_batch(batch, mesh), jax.random.key(seed))
    losses.append(float(out.loss_sum / out.weight))
one, two, other = losses
assert abs(one - other) > 1e-3, losses  # something is dropped
assert abs(one - two) <= 1e-6 * one, losses
"""


PREFERENCES_ON_TWO_DEVICES = """
import pydoc_data.topics
import flax.linen as nn
import jax
import numpy as np
import optax
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config
from longsum_jax.experiment.experiment import make_experiment, make_loss, make_store
from longsum_jax.experiment.objectives.preferences import _compute
from longsum_jax.data.padding import pad_batch
from longsum_jax.training.mesh import activate, make_mesh, put_batch
from longsum_jax.training.state import create_state, init_state, plan_state, shardings_of
from longsum_jax.training.step import make_train_step

sizes = {"d_model": "16", "d_ff": "16", "d_state": "8", "num_layers": "1", "num_heads": "2"}
sizes |= {"d_kv": "8", "num_decoder_layers": "1", "vocab_size": "384"}
changes = {f"model.{name}": size for name, size in sizes.items()}
changes |= {"tokenizer.path": "bytes", "training.progress": "False"}
changes |= {"task.max_source_length": "64", "task.max_target_length": "16"}
changes |= {"mesh.preset": "fsdp", "mesh.batch": "1", "mesh.fsdp": "2"}
pydoc_data.topics.topics = dict(list(pydoc_data.topics.topics.items())[:30])
run = run_config(read_config("configs/prefer.py:tiny", changes))
experiment = make_experiment(run, "no/workdir")
store, objective = make_store(experiment), experiment.objective
init, optimizer = run.family.init_params(experiment.setup.config), optax.sgd(0.1)
rng = np.random.default_rng(0)
draw = lambda x: 0.2 * rng.normal(size=x.shape).astype(x.dtype)
whole = jax.tree.map(draw, nn.meta.unbox(jax.eval_shape(init, jax.random.key(0))))
examples, options = [store[i] for i in range(4)], objective.batch_options()
batch = pad_batch(examples, rows=4, source_length=64, **options)

found = _compute(objective, store, whole)
wanted = objective.pair_log_probs(whole, batch)
assert (found < -10).all()
np.testing.assert_allclose(found[:4], wanted, rtol=1e-5)
batch["reference"] = found[:4] - np.float32([1, 2])

mesh, rules, loss = make_mesh(run.mesh), run.mesh.rules, make_loss(experiment)
abstract, _ = plan_state(init, optimizer, mesh, rules, jax.random.key(0))
state = create_state(abstract, init, optimizer, jax.random.key(0), whole)
assert any(len(x.sharding.spec) for x in jax.tree.leaves(state.params))
step = make_train_step(loss, optimizer, accumulation=2, shardings=shardings_of(abstract))
with activate(mesh, rules):
    state, metrics = step(state, put_batch(batch, mesh, 2))
alone, alone_metrics = make_train_step(loss, optimizer)(init_state(whole, optimizer), batch)
for name in ("loss", "grad_norm", "weight", "reward_margin", "right_pairs", "tokens"):
    np.testing.assert_allclose(metrics[name], alone_metrics[name], rtol=2e-5, err_msg=name)
for one, two in zip(*map(jax.tree.leaves, (state.params, alone.params)), strict=True):
    np.testing.assert_allclose(one, two, atol=2e-5)
"""


SCRIPTS = {
    "preferences": PREFERENCES_ON_TWO_DEVICES,
    "counts": COUNTS_OF_MASKED_TOKENS,
    "segments": SEGMENTS_ON_TWO_DEVICES,
    "dropout": DROPOUT_ON_TWO_DEVICES,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "counts",  # every host can read them; they would be spread like the rows of the batch
        "segments",  # gradients are added up over devices once
        pytest.param("dropout", marks=pytest.mark.weekly),  # tests/ops has random masks
        pytest.param("preferences", marks=pytest.mark.weekly),  # shards as in the run above
    ],
)
def test_two_devices_compute_what_one_does(script, problems):
    assert problems.get(script) is None


@pytest.mark.slow
def test_documents_of_any_number_of_segments_are_read_on_three_axes():
    """Their loops end at different times, and no device may wait for one that has ended."""
    command = [sys.executable, "-c", SEGMENTS_ON_EIGHT_DEVICES]
    done = subprocess.run(command, env=on_devices(8), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
