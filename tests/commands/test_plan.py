import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from longsum_jax.analysis import records
from longsum_jax.commands import console, evaluate, plan, plots, summarize, train
from longsum_jax.errors import InputError
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config, with_changes
from longsum_jax.experiment.memory_changes import (
    evaluation_changes,
    training_changes,
)
from longsum_jax.experiment.objectives.extraction import Extraction
from longsum_jax.experiment.objectives.summarization import Summarization
from longsum_jax.inference.loading import load_shapes
from longsum_jax.models.registry import get_family
from longsum_jax.ops.attention.fused import KernelChoice, note_choice
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.model import Model
from longsum_jax.summarization.summary_options import SummaryOptions
from longsum_plan import devices
from longsum_plan.plan import ProgramPlan
from longsum_plan.program import AbstractProgram
from longsum_plan.trials import Trial

ROOT = Path(__file__).parents[2]
TEXT = "The cat sat on the mat. It slept the whole day long. Then a dog came by and barked."


@pytest.fixture(autouse=True, scope="module")
def environment():
    """The command sets variables for a jax that is here already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_PLATFORMS", "cpu")
        patch.setenv("JAX_NUM_CPU_DEVICES", "1")
        yield


@pytest.fixture(scope="module")
def planned(tiny_run, tmp_path_factory):
    """The file with the plan of the smallest run."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    plan.main([f"--config={tiny_run}", "--device=cpu", f"--out={path}"])
    return path


def test_printed_commands_are_quoted_for_the_shell(monkeypatch, capsys):
    setup = SimpleNamespace(setup=SimpleNamespace(workdir="my runs/a"))
    for objective in (Extraction, Summarization):
        assert " '--model=my runs/a' " in objective.next_step(setup)
    trial = Trial({"data.buckets": (8, 16), "mesh.preset": "fsdp"}, "nothing", None)
    assert trial.flags == "'--config.data.buckets=(8, 16)' --config.mesh.preset=fsdp"
    monkeypatch.setattr(plan, "plan_run", lambda run, target, **options: None)
    plan.main(["--config=configs/quickstart.py", "--device=cpu", "--out=my plan.json"])
    assert "longsum plots plan 'my plan.json' --out=plan.png" in capsys.readouterr().err


def described(spec, **overrides):
    return run_config(read_config(spec, overrides))


@pytest.mark.slow
def test_a_config_is_planned_without_its_documents(planned, tiny_run):
    report = json.loads(planned.read_text())
    programs = {row["program"]: row for row in report["programs"]}
    assert list(programs) == ["train", "loss", "read", "search"]
    model = described(tiny_run).model
    shapes = get_family("locost").parameter_shapes(model).values()
    parameters = 4 * sum(map(math.prod, shapes))
    memory = programs["train"]["memory_bytes"]
    assert memory["parameters"] == parameters
    # AdamW keeps two moments, and counts.
    assert 2 * parameters <= memory["optimizer"] <= 2 * parameters + 1000
    assert memory["parameters"] + memory["optimizer"] < memory["arguments"] <= memory["total"]
    assert programs["loss"]["memory_bytes"]["parameters"] == parameters
    # Adam's state waits while a run is evaluated.
    idle = {name: row["memory_bytes"]["idle"] for name, row in programs.items()}
    assert (idle["train"], idle["loss"]) == (0, memory["optimizer"])
    assert min(idle["read"], idle["search"]) > memory["optimizer"]
    assert all(row["fits"] and row["compile_seconds"] > 0 for row in report["programs"])
    operations = {name: sum(row["operations"].values()) for name, row in programs.items()}
    assert operations["train"] > 2 * operations["loss"] > operations["read"] > 0
    assert programs["search"]["loops_counted_to_their_limit"] == 1
    parts = programs["train"]["parts"]
    assert sum(part["moved_bytes"] for part in parts) == programs["train"]["moved_bytes"]
    result = {(part["module"], part["pass"]) for part in parts}
    layers = {"encoder/layers/self_attention", "decoder/layers/cross_attention"}
    assert {(layer, way) for layer in layers for way in ("forward", "gradient")} <= result
    assert (report["num_devices"], report["trials"]) == (1, {})


def test_a_plan_is_drawn_as_bars_that_add_up(tmp_path):
    whole = {"arguments": 3e9, "parameters": 1e9, "optimizer": 2e9, "results": 5e8}
    whole |= {"temporary": 4e9, "code": 1e6, "idle": 25e7, "total": 7.751e9}
    memory = [whole, {"total": 2e9}]
    rows = [{"program": "train", "memory_bytes": memory[0]}]
    rows += [{"program": "read", "memory_bytes": memory[1], "batch_size": 2, "length": 4096}]
    about = {"num_devices": 4, "title": "TPU v5e", "device_memory_bytes": 16e9}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(about | {"programs": rows}))
    names, parts = records.plan_bars(records.read_plan(path))
    assert names == ["train", "read 2 x 4,096"]
    assert {part: values[0] for part, values in parts.items()} == pytest.approx(
        {
            "parameters": 1,
            "optimizer": 2,
            "temporary": 4,
            "results": 0.5,
            "idle": 0.25,
            "inputs": 0,
            "other": 1e-3,
        }
    )
    assert sum(parts.values()) == pytest.approx([7.751, 2])
    out = tmp_path / "plan.png"
    plots.main(["plan", str(path), f"--out={out}", "--dpi=50"])
    assert out.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    for content in ("{}", "no JSON", '{"programs": []}'):
        (tmp_path / "other.json").write_text(content)
        with pytest.raises(InputError, match=r"other.json: holds no plan"):
            records.read_plan(tmp_path / "other.json")


@pytest.fixture
def uncompiled(monkeypatch):
    """Plans without compiling, of the bytes in a list; the programs' names."""

    def make(*totals, seconds=()):
        sizes, times, names = iter(totals), iter(seconds), []

        def plan_program(program, target):
            names.append(program.name)
            if program.name in ("it", "search"):
                program.lower()
            total = next(sizes)
            result = {"memory": next(times)} if seconds else {}
            return ProgramPlan(program.name, {"total": total}, total <= target.memory, None, result)

        monkeypatch.setattr("longsum_plan.plan.plan_program", plan_program)
        return names

    return make


def test_layers_without_a_kernel_are_named_with_the_reason(uncompiled):
    def note_choices():
        note_choice("encoder.a", KernelChoice(None, "position biases"))
        note_choice("decoder.a", KernelChoice(None, "position biases"))
        note_choice("decoder.b", KernelChoice("splash"))
        note_choice("decoder.c", KernelChoice(None))

    uncompiled(1, 1, 1, 1)
    programs = [AbstractProgram("it", note_choices, {})] * 2
    plans = list(plan._compiled(programs, devices.find_target("cpu")))
    expected = "attention without a fused kernel: encoder.a, decoder.a (position biases)"
    assert plan._attention_line(plans) == expected
    assert plans[0].report()["attention"]["decoder.b"] == {"kernel": "splash", "reason": ""}
    # CPUs have no kernels.
    for target, is_printed in (("cpu", False), ("gpu", True)):
        lines = []
        device = SimpleNamespace(platform=target, device_kind=target)
        plan._print_plans(plans, devices.Target(target, [device], None, 0), 0, lines.append)
        assert any(expected in line for line in lines) == is_printed
    # A search attends from a token at a time, which no kernel would make faster.
    for silent in AbstractProgram("it", lambda: None, {}), programs[0]._replace(name="search"):
        assert plan._attention_line(plan._compiled([silent], devices.find_target("cpu"))) == ""


def test_a_run_that_does_not_fit_is_changed_until_it_does(tiny_run, capsys, uncompiled):
    names = uncompiled(400, 395, 390, 300, 100)
    target = devices.find_target("cpu")._replace(memory=200)
    report = plan.plan_run(described(tiny_run), target, programs=["train"], tries=5)
    trials = report["trials"]["train"]
    hidden, remat, halves, quarters = (
        {"model.remat": "projections"},
        {"model.remat": True},
        {"training.accumulation": 2},
        {"training.accumulation": 4},
    )
    expected = [hidden, remat, remat | halves, remat | quarters]
    assert [trial["changes"] for trial in trials] == expected
    assert [trial["fits"] for trial in trials] == [False, False, False, True]
    assert names == ["train"] * 5
    expected = "to fit train: --config.model.remat=True --config.training.accumulation=4\n"
    assert expected in capsys.readouterr().out


def test_a_run_that_cannot_fit_says_so(tiny_run, capsys, uncompiled):
    uncompiled(*[400] * 9)
    target = devices.find_target("cpu")._replace(memory=200)
    report = plan.plan_run(described(tiny_run), target, programs=["read"], tries=9)
    changes = [trial["changes"] for trial in report["trials"]["read"]]
    hepos = {"model.cross_attention": "hepos", "model.hepos_stride": 4}
    assert changes == [{"evaluation.batch_size": 1}, hepos]
    assert "read fits with none of these; take more devices" in capsys.readouterr().out


def test_a_plan_says_that_whole_documents_may_be_longer(tiny_run, capsys, uncompiled):
    said = "evaluations read whole documents, planned here with 64 tokens; for longer ones give"
    for length, programs, is_said in ("0", "read", True), ("0", "train", False), ("9", "read", 0):
        uncompiled(100)
        run = described(tiny_run, **{"evaluation.max_source_length": length})
        plan.plan_run(run, devices.find_target("cpu"), programs=[programs], tries=0)
        assert (said in capsys.readouterr().out) == is_said


def test_memory_that_is_left_is_used_for_a_faster_step(tiny_run, capsys, uncompiled):
    uncompiled(40, 50, 60, 90, 170, seconds=(8.0, 7.0, 9.0, 6.0, 5.0))
    target = devices.find_target("cpu")._replace(memory=200)
    changes = {"training.accumulation": "8", "data.batch_size": "8", "model.remat": "True"}
    changes["model.length_chunk"] = "0"
    run = described(tiny_run, **changes)
    saved = []
    report = plan.plan_run(run, target, programs=["train"], tries=5, save=saved.append)
    assert [len(each["faster"]) for each in saved] == [0, 4]
    saving = {"model.remat": False}
    fewer = saving | {"training.accumulation": 4}  # half of the memory was taken
    tried = [(trial["changes"], trial["least_seconds"]) for trial in report["faster"]]
    marked, projections = ({"model.remat": name} for name in ("attention", "projections"))
    assert tried == [(marked, 7.0), (projections, 9.0), (saving, 6.0), (fewer, 5.0)]
    assert report["fastest"] == fewer
    flags = "--config.model.remat=False --config.training.accumulation=4"
    lines = capsys.readouterr().out.splitlines()
    assert (
        f"train with {flags}: 0.00 GB, fits, at least 5,000 ms (micro-batches of 2 rows)"
        in lines[-2]
    )
    expected = (
        f"the fastest train that fits: {flags}: at least 5,000 ms in place of 8,000, 38% less"
    )
    assert lines[-1] == f"{expected}, with 0.00 GB in place of 0.00"
    # If the rates of the device are unknown, nothing is tried.
    for fastest in (False, True):
        uncompiled(40)
        report = plan.plan_run(run, target, programs=["train"], tries=5, fastest=fastest)
        assert (report["faster"], report["fastest"]) == ([], {})
        message = "no faster step is searched: the peak rates of cpu are unknown"
        assert (message in capsys.readouterr().out) == fastest


def test_fastest_also_makes_a_step_fit_and_keeps_the_model(tiny_run, capsys, uncompiled):
    changes = {"data.batch_size": "2", "model.length_chunk": "0"}
    names = uncompiled(400, 150, 190, 170, 100, 390, seconds=(8.0, 9.0, 8.5, 8.95, 9.5, 8.0))
    rates = devices.GPUS["h200"]
    target = devices.find_target("cpu")._replace(memory=200, hardware=rates)
    report = plan.plan_run(described(tiny_run, **changes), target, tries=1, fastest=True)
    assert names == ["train"] * 6
    # The second is too close to the device's memory. The third fits, but gains less than 1 % with
    # more memory.
    tried = [trial["fits"] for trial in report["trials"]["train"] + report["faster"]]
    assert tried == [True, False, True, True, False]
    assert report["fastest"] == {"model.remat": "projections"}
    assert capsys.readouterr().out.splitlines()[-1] == "no change makes train faster"
    uncompiled(*[400] * 9, seconds=[8.0] * 9)
    report = plan.plan_run(described(tiny_run, **changes), target, fastest=True)
    assert report["fastest"] == {}
    keys = {key for trial in report["trials"]["train"] for key in trial["changes"]}
    assert keys == {"model.remat", "training.accumulation"}
    with pytest.raises(InputError, match="--fastest has no effect with --model"):
        plan.main(["--model=x", "--fastest"])
    message = "--programs has no effect with --fastest, which plans only train; leave it out"
    with pytest.raises(InputError, match=message):
        plan.main(["--config=x", "--fastest", "--programs=train,loss"])
    args, _ = plan._parse(["--config=x", "--fastest", "--programs=train"])
    assert args.fastest


def test_changes_keep_batches_and_meshes_legal():
    run = described("configs/locost_c4.py", **{"training.accumulation": "1"})
    changes = list(training_changes(run, 8, 4))
    assert all(says for _, says in changes)
    values = [values for values, _ in changes]
    assert values[0] == {
        "mesh.preset": "fsdp",
        "mesh.batch": 1,
        "mesh.fsdp": -1,
        "mesh.tensor": 1,
        "mesh.sequence": 1,
    }
    accumulations = [x["training.accumulation"] for x in values if "training.accumulation" in x]
    assert accumulations == [2, 4, 8, 16, 32]  # 256 rows over 8 devices
    assert [x["mesh.sequence"] for x in values if "mesh.sequence" in x] == [1, 2, 4]
    assert values[-1] == {"model.cross_attention": "hepos", "model.hepos_stride": 4}
    changed = run_config(with_changes(run.description, values[0] | values[-1]))
    assert (changed.mesh.preset, changed.model.cross_attention) == ("fsdp", "hepos")
    assert run.description["mesh"]["preset"] == "replicated"
    # With documents sharded over four of eight devices, two devices share the rows.
    sharded = {"data.batch_size": "8", "mesh.preset": "fsdp+sequence", "mesh.fsdp": "2"}
    sharded |= {"mesh.batch": "1", "mesh.sequence": "-1", "training.accumulation": "1"}
    for rows, expected in ("8", [2, 4]), ("4", [2]):
        run = described("configs/locost_c4.py", **sharded | {"data.batch_size": rows})
        values = [values for values, _ in training_changes(run, 8, 8)]
        counts = [x["training.accumulation"] for x in values if "training.accumulation" in x]
        assert counts == expected
        assert [x["mesh.sequence"] for x in values if "mesh.sequence" in x] == [8]
    sizes = [x.get("evaluation.batch_size") for x, _ in evaluation_changes(run)]
    assert sizes == [8, 4, 2, 1, None]


def test_pages_may_be_encoded_one_after_another():
    change = {"model.page_recompute": True}, "pages are encoded one after another"
    for mode, expected in (("unlimiformer", True), ("cached", False), ("led", False)):
        run = described(f"configs/long_baselines.py:{mode}")
        assert (change in list(training_changes(run, 1, 1))) is expected


def test_summaries_are_planned_from_shapes(small_model, tmp_path, capsys):
    loaded, shapes = load(small_model), load_shapes(Model, small_model)
    assert shapes.config == loaded.config
    assert shapes.num_parameters == loaded.num_parameters
    halves = load_shapes(Model, small_model, param_dtype="bfloat16").params
    loaded = load(small_model, param_dtype="bfloat16").params
    assert jax.tree.map(lambda x: (x.shape, x.dtype), halves) == jax.tree.map(
        lambda x: (x.shape, x.dtype), loaded
    )
    out = tmp_path / "plan.json"
    plan.main([f"--model={small_model}", "--device=cpu", "--input_length=100", "--batch_size=2",
               "--tries=0", f"--out={out}"])  # fmt: skip
    rows = json.loads(out.read_text())["programs"]
    assert [(row["program"], row["length"]) for row in rows] == [("read", 100), ("search", 100)]
    # Both programs are as those of a call: the search takes what reading gives.
    source = rows[0]["memory_bytes"]["results"]
    assert rows[1]["memory_bytes"]["arguments"] > source > 0
    assert "2 x 100 tokens" in capsys.readouterr().out


def test_plans_hold_weights_as_the_model_does(small_model):
    for storage in ("float32", "int8"):
        model = load(small_model, decoder_storage=storage)
        _, search = plan._summary_programs(model, 50, 1, {})
        assert ("xi8>" in search.lower().as_text()) == (storage == "int8")


def test_options_for_segments_are_left_out_of_plans_and_refused_there(small_model):
    model = load(small_model)
    model.generation_config["segments_no_repeat_ngram_size"] = 3
    *_, search = plan._summary_programs(model, 50, 1, {})
    assert "while" in search.lower().as_text()
    with pytest.raises(InputError, match="not for whole documents; give no_repeat_ngram_size"):
        plan._summary_programs(model, 50, 1, {"segments_no_repeat_ngram_size": 2})
    option = "--config.evaluation.segments_no_repeat_ngram_size=2"
    with pytest.raises(InputError, match="not for whole documents; give no_repeat_ngram_size"):
        plan.main(["--config=configs/quickstart.py", "--device=cpu", option])


def test_a_program_that_xla_refuses_is_one_sentence(monkeypatch):
    def refuse(*_):
        raise jax.errors.JaxRuntimeError("INTERNAL: Mosaic failed to compile\nmore")

    monkeypatch.setattr("longsum_plan.plan.plan_program", refuse)
    sentence = (
        r"XLA cannot compile train for v5p \(INTERNAL: Mosaic failed to compile\); if a kernel"
    )
    with pytest.raises(InputError, match=sentence):
        list(plan._compiled([SimpleNamespace(name="train")], SimpleNamespace(name="v5p")))


def test_the_longest_document_that_fits(small_model, monkeypatch):
    compiled = []

    def plan_summaries(model, target, *, length, batch_size, **options):
        compiled.append(length)
        return [SimpleNamespace(total=size) for size in (2 * length * batch_size, 500)]

    monkeypatch.setattr(plan, "plan_summaries", plan_summaries)
    model, target = load_shapes(Model, small_model), devices.find_target("cpu")
    # 3,072 and 3,328 tokens are lengths of padded inputs, one after the other.
    assert plan._longest(model, target._replace(memory=2 * 3327), 1, {}) == 3072
    assert len(compiled) <= 5
    assert len(set(compiled)) == len(compiled)
    assert plan._longest(model, target._replace(memory=2 * 2048), 2, {}) == 1024
    assert plan._longest(model, target._replace(memory=2 * 1023), 1, {}) == 0
    assert plan._longest(model, target._replace(memory=2**40), 1, {}) == 2**20


def test_dry_runs_say_what_programs_take_and_do_nothing_else(
    small_model, tiny_run, tmp_path, capsys, uncompiled
):
    names = uncompiled(*range(1, 9))
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    tokens = load(small_model).read_lengths([TEXT])[0]
    summarize.main([f"--model={small_model}", "--dry_run", str(text)])
    out, err = capsys.readouterr()
    assert "compiling read for this machine" in err
    assert f"1 document of at most {tokens} tokens, 1 at a time" in out
    data, results = tmp_path / "data.jsonl", tmp_path / "results"
    data.write_text(json.dumps({"id": "a", "document": TEXT, "summary": "Cat."}) + "\n")
    evaluate.main(
        [f"--model={small_model}", f"--data={data}", f"--out={results}", "--batch_size=2",
         "--dry_run"]
    )  # fmt: skip
    assert "2 at a time" in capsys.readouterr().out
    workdir = tmp_path / "run"
    train.main([f"--config={tiny_run}", f"--workdir={workdir}", "--dry_run"])
    assert "loss" in capsys.readouterr().out
    assert names == ["read", "search"] * 2 + ["train", "loss", "read", "search"]
    assert not workdir.exists()
    assert not results.exists()


@pytest.mark.parametrize(("fits", "is_printed"), [(True, False), (None, False), (False, True)])
def test_a_remedy_is_printed_if_a_summary_does_not_fit(fits, is_printed, monkeypatch, capsys):
    planned = [ProgramPlan("read", {"total": 1}, fits, None)]
    monkeypatch.setattr(plan, "plan_summaries", lambda *_, **options: planned)
    plan.dry_run_summaries(None, [3], SummaryOptions(batch_size=1))
    assert ("to fit: " in capsys.readouterr().out) == is_printed


def test_documents_that_are_read_have_the_lengths_that_dry_runs_plan(small_model):
    model = load(small_model)
    texts = [TEXT, TEXT[:40]]
    read = [summary.read_tokens for summary in model.summaries(texts, max_new_tokens=1)]
    assert model.read_lengths(texts) == read
    assert model.read_lengths(texts, max_source_length=20) == [20, 20]
    with pytest.raises(InputError, match="more than max_source_length=20"):
        model.read_lengths(texts, max_source_length=20, on_overflow="error")


def test_a_step_that_does_not_fit_is_refused_before_it_runs(monkeypatch):
    import jax
    import numpy as np

    from longsum_jax.ops import device_memory
    from longsum_jax.training.step import CompilationWatch

    compilations = []

    def step(state, batch):
        compilations.append(batch["x"].shape)
        return state + batch["x"], {}

    jitted = jax.jit(step, donate_argnums=0)
    watch = CompilationWatch(jitted, train._check_memory)
    state, batch = jax.numpy.zeros(1000), {"x": jax.numpy.ones(1000)}
    watch.check_program(state, batch)
    watch.check_program(state, batch)
    state, _ = jitted(state, batch)
    assert compilations == [(1000,)]  # the step found the program that was checked
    watch.check(1, batch)
    monkeypatch.setattr(device_memory, "local_memory", lambda: 7999)  # of 8,000 bytes
    watch = CompilationWatch(jitted, train._check_memory)
    with pytest.raises(InputError, match=r"takes 0\.0 GB of a device, .*training\.accumulation"):
        watch.check_program(state, {"x": np.ones(1000, np.float32)})


def test_running_out_of_memory_is_one_sentence(small_model, monkeypatch, capsys):
    import jax

    message = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 25769803776 bytes."
    with pytest.raises(InputError) as caught, console.memory_errors(console.TRAINING_ADVICE):
        raise jax.errors.JaxRuntimeError(message)
    sentence = str(caught.value)
    assert sentence.startswith("the device has too little memory for 25769803776 bytes more; ")
    assert "training.accumulation" in sentence
    assert "--dry_run" in sentence
    with pytest.raises(RuntimeError, match="another"), console.memory_errors(""):
        raise RuntimeError("another error")

    def exhausted(*args, **kwargs):
        raise jax.errors.JaxRuntimeError(message)

    monkeypatch.setattr("longsum_jax.summarization.model.Model.stream", exhausted)
    monkeypatch.setattr(sys, "argv", ["summarize", f"--model={small_model}"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    with pytest.raises(SystemExit) as ended:
        console.run(summarize.main)
    assert ended.value.code == 2
    assert "error: the device has too little memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give exactly one of --config=FILE and --model=DIR; neither is given"),
        (["--config=a", "--model=b"], "one of --config=FILE and --model=DIR; both are given"),
        (["--config=configs/quickstart.py", "--device=v5"], '--device=v5: unknown device "v5"'),
        (["--config=configs/locost_c4.py:tiny", "--device=cpu", "--config.mesh.batch=3"],
         "needs 3 devices, there are 1"),
        (["--config=configs/extractor.py:tiny", "--device=cpu", "--programs=read,search"],
         "--programs=read,search: this run only has train and loss, because it generates no"),
        (["--model=a", "--tries=0"], "--tries=0 leaves nothing to plan; give --input_length"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        plan.main(arguments)


def test_lengths_and_names_are_lists(small_model):
    numbers = "is not a list of numbers such as 4096,16384"
    for flag, message in (
        ("--input_length=0", "--input_length=0 must be at least 1"),
        ("--input_length=5,x", numbers),
        ("--input_length=²", numbers),  # a digit, but no number
        ("--batch_size=a", numbers),
        ("--programs=train,reed", "must be one of train, loss, read, search"),
    ):
        with pytest.raises(InputError, match=message):
            plan.main([f"--model={small_model}", flag])
    with pytest.raises(InputError, match=r"--input_length has 20,000,000 tokens"):
        plan.main([f"--model={small_model}", "--device=cpu", "--input_length=20_000_000"])


def in_a_process(*arguments):
    own = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    environment = {**os.environ, **own}
    for name in ("JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES", "XLA_FLAGS"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "longsum_jax", "plan", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.weekly  # tests/experiment compiles for TPUs every day, tests above plan runs
@pytest.mark.tpu_compiler
def test_a_step_is_compiled_for_tpus(tiny_run, tmp_path):
    """Four chips that are not there: AdamW's step with parameters sharded over them."""
    out = tmp_path / "plan.json"
    sizes = f"{tiny_run},model.d_model=128,model.d_state=2"
    mesh = ("--config.mesh.preset=fsdp", "--config.mesh.batch=1", "--config.mesh.fsdp=4")
    in_a_process(f"--config={sizes}", *mesh, "--device=v5e:2x2",
                 "--programs=train", f"--out={out}")  # fmt: skip
    report = json.loads(out.read_text())
    (row,) = report["programs"]
    assert (report["title"], report["num_devices"]) == ("TPU v5e", 4)
    memory = row["memory_bytes"]
    model = described(sizes).model
    whole = 4 * sum(map(math.prod, get_family("locost").parameter_shapes(model).values()))
    assert memory["parameters"] < 0.4 * whole
    assert memory["optimizer"] == pytest.approx(2 * memory["parameters"], rel=0.01)
    assert memory["total"] < 50e6
    # What is cut is gathered.
    assert row["collectives"]["all-gather"]["count"] >= 1
    assert row["loops_counted_to_their_limit"] == 0
    assert row["bound"] in ("compute", "memory", "links")


@pytest.mark.slow
@pytest.mark.cuda_compiler
def test_summaries_are_compiled_for_gpus(small_model, tmp_path):
    out = tmp_path / "plan.json"
    in_a_process(f"--model={small_model}", "--device=h200", "--input_length=256", "--tries=0",
                 f"--out={out}")  # fmt: skip
    rows = json.loads(out.read_text())["programs"]
    assert [row["program"] for row in rows] == ["read", "search"]
    assert all(row["fits"] and sum(row["operations"].values()) > 0 for row in rows)
