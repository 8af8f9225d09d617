"""The guide's pages whose Python blocks run as they stand, with a small model for the one named."""

import ast
import dataclasses
import importlib
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from longsum_jax import beam_pipeline
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.model import Model

PAGES = Path(__file__).resolve().parents[2] / "docs" / "guide"


# Commands of a page, run to their end: their flags are read every day (test_docs.py), and what they
# do is tested in the rooms that do it.
as_on_the_page = pytest.mark.weekly


def blocks(page, language):
    """Returns the blocks of a page in a language, with their lines where they stand on it."""
    text = (PAGES / page).read_text(encoding="utf-8")
    pattern = rf"^```{language}\n(.*?)^```$"
    for result in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        first = text.count("\n", 0, result.start(1))
        yield "\n" * first + result[1]


def run(page):
    namespace = {"__name__": "guide"}
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), namespace)
    return namespace


def test_sources(capsys):
    result = run("sources.md")
    assert capsys.readouterr().out.endswith("['Lena Lund']\n")
    assert result["summary"].sources[0].is_supported


@as_on_the_page
def test_preferences(small_model, tmp_path, monkeypatch):
    """The three commands as they stand on the page, over a few rows and one step."""
    (block,) = [block for block in blocks("train.md", "bash") if "corpus pairs" in block]
    rows = [
        {"id": str(i), "document": f"Number {i} is said. Then more.", "summary": f"S {i}."}
        for i in range(40)
    ]
    (tmp_path / "reports").mkdir()
    for split in ("train", "validation"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "reports" / f"{split}.jsonl").write_text(text)
    shutil.copytree(small_model, tmp_path / "START")
    shutil.copytree(PAGES.parents[1] / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    lengths = ["task.max_source_length=64", "task.max_target_length=16", "evaluation.examples=1"]
    short = [f"--config.{key}" for key in (*lengths, "training.steps=1", "data.batch_size=8")]
    lines = block.replace("\\\n", " ").strip().splitlines()
    assert len(lines) == 3
    for line in lines:
        _, command, *flags = shlex.split(line)
        flags += short if command == "train" else ["--max_new_tokens=4", "--batch_size=8"]
        module = importlib.import_module(f"longsum_jax.commands.{command}")
        assert not module.main(flags)
    retained = (tmp_path / "runs" / "pairs" / "train.jsonl").read_text().splitlines()
    assert 8 < len(retained) < 32
    metrics = (tmp_path / "runs" / "prefer" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(metrics[0])["loss"] == pytest.approx(math.log(2), abs=1e-4)


@pytest.mark.slow
def test_from_transformers(small_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(small_model, tmp_path / "facebook" / "bart-large-cnn")
    result = run("from_transformers.md")
    assert (tmp_path / "mine" / "model.safetensors").exists()
    assert len(result["summaries"]) == 2
    assert result["logits"].shape[:2] == (1, 1)


@pytest.mark.weekly  # tests/layers has these layers in Linen and NNX
def test_own_models():
    namespace = run("own_models.md")
    assert namespace["states"].shape == (2, 1000, 64)
    assert namespace["output"].shape == (2, 20, 64)


def test_lines_of_transformers_stand_beside_ours():
    theirs = list(blocks("from_transformers.md", "py"))
    for block in theirs:
        ast.parse(block)
    assert len(theirs) == 7


def to_pickle(directory):
    """Turns a saved model into the layout of older repositories: a pickle, no checksums."""
    import torch
    from safetensors.numpy import load_file

    weights = directory / "model.safetensors"
    state = {key: torch.from_numpy(value) for key, value in load_file(weights).items()}
    torch.save(state, directory / "pytorch_model.bin")
    for name in ("model.safetensors", "SHA256SUMS"):
        (directory / name).unlink()


@pytest.fixture
def released(small_model, tiny_tokenizer, tmp_path, monkeypatch, draw_params):
    """The released repositories at tiny size in the working directory, in their layout."""
    from longsum_jax.models.registry import get_family
    from longsum_jax.summarization.model import Model

    monkeypatch.chdir(tmp_path)
    locost = tmp_path / "flbbb" / "locost-gsg-pretrained"
    shutil.copytree(small_model, locost)
    to_pickle(locost)
    (locost / "spiece.model").rename("spiece.model")
    (locost / "tokenizer_config.json").unlink(missing_ok=True)

    family = get_family("bart")
    sizes = {"d_model": 16, "max_position_embeddings": 64, "vocab_size": tiny_tokenizer.vocab_size}
    for stack in ("encoder", "decoder"):
        sizes |= {f"{stack}_layers": 1, f"{stack}_attention_heads": 2, f"{stack}_ffn_dim": 16}
    config = family.config(sizes)
    model = Model(family, config, draw_params(family.init_params(config)), tiny_tokenizer, {})
    lsg = tmp_path / "ccdv" / "lsg-bart-base-16384-arxiv"
    model.to_lsg(128, block_size=32, sparsity_type="none").save(lsg)
    to_pickle(lsg)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    ["checkpoints.md", "../papers/locost.md", "../papers/lsg.md"],
    ids=lambda x: Path(x).stem,
)
def test_released_checkpoints_load_by_the_lines_on_the_pages(released, page):
    lines = [block for block in blocks(page, "python") if re.search(r'"(flbbb|ccdv)/', block)]
    assert lines
    namespace = {}
    for block in lines:
        exec(compile(block, page, "exec"), namespace)
    models = [namespace[name] for name in ("locost", "lsg", "model") if name in namespace]
    assert len(models) == (2 if page == "checkpoints.md" else 1)
    for model in models:
        assert model.tokenizer.encode("a text")
        assert model.config.encoder_attention == ("s4d" if model.family.name == "locost" else "lsg")


def test_names_of_released_checkpoints_are_the_same_everywhere():
    """The names on the pages of the papers are those of the guide's table."""
    table = (PAGES / "checkpoints.md").read_text(encoding="utf-8")
    assert "`flbbb/locost-gsg-pretrained`" in table
    for paper in ("locost.md", "lsg.md", "numbers.md"):
        text = (PAGES.parent / "papers" / paper).read_text(encoding="utf-8")
        for name in re.findall(r"(?:flbbb/locost|ccdv/lsg)[\w-]*\w", text):
            assert name.rpartition("-")[0] in table, f"{paper}: {name}"


def test_layout_of_the_released_lsg(released):
    config = json.loads((released / "ccdv/lsg-bart-base-16384-arxiv/config.json").read_text())
    assert config["architectures"] == ["LSGBartForConditionalGeneration"]


@pytest.mark.slow
def test_landing_page(capsys):
    namespace = run("../index.md")
    assert namespace["states"].shape == (1, 1000, 32)
    assert capsys.readouterr().out.strip()


@as_on_the_page
def test_t5gemma(tiny_tokenizer, draw_params, tmp_path, monkeypatch):
    """The commands as they stand on the page, with tiny models and one step."""
    monkeypatch.chdir(tmp_path)
    for name, repository in (("t5gemma", "2b-2b-ul2-it"), ("t5gemma2", "270m-270m")):
        family = get_family(name)
        config = dataclasses.replace(family.presets["tiny"], vocab_size=tiny_tokenizer.vocab_size)
        params = draw_params(family.init_params(config))
        model = Model(family, config, params, tiny_tokenizer, {})
        model.save(tmp_path / "google" / f"{name.replace('gemma2', 'gemma-2')}-{repository}")
    rows = "".join(f"Number {i} is said. Then more.,S {i}.\n" for i in range(8))
    (tmp_path / "de").mkdir()
    for split in ("train", "validation", "test"):
        (tmp_path / "de" / f"{split}.csv").write_text(f"document,summary\n{rows}")
    (tmp_path / "report.txt").write_text("Number 3 is said. Then more.")
    shutil.copytree(PAGES.parents[1] / "configs", tmp_path / "configs")
    lengths = ["task.max_source_length=32", "task.max_target_length=8", "evaluation.examples=0"]
    short = [
        f"--config.{key}" for key in (*lengths, "training.steps=1", "optimizer.warmup_steps=0")
    ]
    further = {"train": short, "summarize": ["--max_new_tokens=2"]}
    further["evaluate"] = ["--max_new_tokens=2", "--examples=2"]
    ran = []
    for block in blocks("t5gemma.md", "bash"):
        for line in block.replace("\\\n", " ").strip().splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            program, command, *flags = words
            if program != "longsum" or command == "plan":
                continue
            flags += further[command]
            module = importlib.import_module(f"longsum_jax.commands.{command}")
            assert not module.main(flags)
            ran.append(command)
    assert ran == ["summarize", "summarize", "train", "evaluate", "summarize"]


@pytest.mark.slow
def test_lora(tiny_tokenizer, draw_params, tmp_path, monkeypatch):
    """The commands as they stand on the page, with a tiny LED and one step."""
    (block,) = [block for block in blocks("train.md", "bash") if "lora.rank" in block]
    family = get_family("led")
    config = dataclasses.replace(
        family.presets["tiny"],
        vocab_size=tiny_tokenizer.vocab_size,
        encoder_layers=1,
        decoder_layers=1,
    )
    model = Model(family, config, draw_params(family.init_params(config)), tiny_tokenizer, {})
    monkeypatch.chdir(tmp_path)
    model.save(tmp_path / "allenai" / "led-base-16384")
    rows = "".join(f"Number {i} is said. Then more.,S {i}.\n" for i in range(40))
    (tmp_path / "reports.csv").write_text(f"document,summary\n{rows}")
    (tmp_path / "report.txt").write_text("Number 3 is said. Then more.")
    shutil.copytree(PAGES.parents[1] / "configs", tmp_path / "configs")
    lengths = ["task.max_source_length=32", "task.max_target_length=8", "evaluation.examples=0"]
    short = [
        f"--config.{key}" for key in (*lengths, "training.steps=1", "optimizer.warmup_steps=0")
    ]
    for line in block.replace("\\\n", " ").strip().splitlines():
        _, command, *flags = shlex.split(line, comments=True)
        flags += {"train": short, "summarize": ["--max_new_tokens=2"]}.get(command, [])
        module = importlib.import_module(f"longsum_jax.commands.{command}")
        assert not module.main(flags)
    trained = load("runs/lora").params
    for path in ("runs/lora/adapter", "led-reports"):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), load(path).params, trained
        )
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), model.params, trained)
    paths = [path for path, differs in flatten_dict(changed, sep="/").items() if differs]
    assert sorted({path.split("/")[-2] for path in paths}) == ["q", "v"]


def run_commands(block, further):
    """Runs the commands of a block, with further flags by command."""
    for line in block.replace("\\\n", " ").strip().splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["longsum"]:
            module = importlib.import_module(f"longsum_jax.commands.{words[1]}")
            assert not module.main([*words[2:], *further.get(words[1], [])])


@as_on_the_page
def test_data_set_of_the_hub(tiny_tokenizer, draw_params, tmp_path, monkeypatch):
    """LongT5 on a data set of the Hub, which is a directory here."""
    pyarrow = pytest.importorskip("pyarrow")
    huggingface_hub = pytest.importorskip("huggingface_hub")
    from pyarrow.parquet import write_table

    (block,) = [block for block in blocks("data.md", "bash") if "DATA=hf:" in block]
    names = [f"document/{split}.parquet" for split in ("train", "validation", "test")]
    rows = {
        "article": [f"Number {i} is said. Then more." for i in range(40)],
        "abstract": [f"S {i}." for i in range(40)],
    }
    (tmp_path / "document").mkdir()
    for name in names:
        write_table(pyarrow.table(rows), tmp_path / name)
    siblings = [types.SimpleNamespace(rfilename=name) for name in names]
    info = types.SimpleNamespace(sha="0" * 40, siblings=siblings, card_data=None)
    api = types.SimpleNamespace(dataset_info=lambda repository, revision: info)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    monkeypatch.setattr(
        huggingface_hub, "hf_hub_download", lambda _, name, **options: str(tmp_path / name)
    )
    family = get_family("longt5")
    config = dataclasses.replace(
        family.presets["tiny"],
        vocab_size=tiny_tokenizer.vocab_size,
        num_layers=1,
        num_decoder_layers=1,
    )
    model = Model(family, config, draw_params(family.init_params(config)), tiny_tokenizer, {})
    model.save(tmp_path / "google" / "long-t5-tglobal-base")
    shutil.copytree(PAGES.parents[1] / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    short = ["task.max_source_length=32", "task.max_target_length=8", "evaluation.examples=0"]
    short += ["training.steps=1", "optimizer.warmup_steps=0"]
    (source,) = [line for line in block.splitlines() if line.startswith("DATA=")]
    further = {"train": [f"--config.{key}" for key in short]}
    further["evaluate"] = ["--max_new_tokens=2", "--examples=2"]
    run_commands(block.replace("$DATA", source.removeprefix("DATA=")), further)
    about = json.loads((tmp_path / "runs" / "pubmed" / "run.json").read_text())
    assert "0" * 40 in json.dumps(about)  # the revision
    assert (tmp_path / "runs" / "pubmed" / "test" / "metrics.json").exists()


@as_on_the_page
def test_mixture_of_seqio(tmp_path):
    """In a process of its own, because TensorFlow stays in memory."""
    (module,) = [block for block in blocks("data.md", "python") if "MixtureRegistry" in block]
    (block,) = [block for block in blocks("data.md", "bash") if "seqio:my_tasks" in block]
    (tmp_path / "my_tasks.py").write_text(module)
    for name in ("reports", "letters"):
        text = "".join(f"Number {i} of the {name}. Then more.\tS {i}.\n" for i in range(4))
        (tmp_path / f"{name}.tsv").write_text(text)
    _, _, command, *flags = shlex.split(block.replace("\\\n", " "))
    done = subprocess.run(
        [sys.executable, "-m", "longsum_jax", command, *flags],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{PAGES.parents[1]}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if "seqio needs" in done.stderr:
        pytest.skip("seqio is not installed")
    assert not done.returncode, done.stderr
    metadata = json.loads((tmp_path / "data" / "both" / "metadata.json").read_text())
    # all letters, and reports twice as often up to the last letter
    assert metadata["examples"] == 4 + 7


@as_on_the_page
def test_pre_training_on_shards_of_beam(tmp_path, monkeypatch):
    """With a runner that makes one part after the other, as the parts do not depend on it."""
    (block,) = [block for block in blocks("data.md", "bash") if "--out=data/beam" in block]
    monkeypatch.setattr(beam_pipeline, "parse_flags", shlex.split)
    monkeypatch.setattr(beam_pipeline, "run", lambda names, make, flags: [*map(make, names)])
    shutil.copytree(PAGES.parents[1] / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    run_commands(block, {"train": ["--config.training.steps=1"]})
    metrics = (tmp_path / "runs" / "beam" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(metrics[0])["step"] == 1
