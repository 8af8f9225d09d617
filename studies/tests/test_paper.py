"""Tables and figures of the papers: their commands, and what is made of their rows."""

import json
import re

import flax.linen as nn
import jax
import numpy as np
import pytest

import longsum_jax
from longsum_jax.evaluation.predictions import Pair
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.model import Model
from longsum_jax.tokenizers.loading import load_tokenizer


@pytest.fixture(scope="module")
def paper(scripts):
    return scripts("paper")


def test_every_command_has_flags_that_its_script_knows(paper):
    for name, table in paper.TABLES.items():
        script = table.path.read_text()
        if "sweep.add_flags" in script:
            script += (paper.BENCHMARKS / "sweep.py").read_text()
        known = set(re.findall(r'"--(\w+)"', script))
        assert set(table.scales) == set(paper.SCALES)
        for scale in table.scales:
            command = table.command(scale)
            flags = [flag for flag in command if re.match(r"--(?!config\.)", flag)]
            given = {flag[2:].partition("=")[0] for flag in flags}
            assert given <= known, (name, scale)


@pytest.mark.slow
def test_every_cell_of_a_study_is_a_config(scripts, paper):
    study = scripts("study")
    for table in paper.TABLES.values():
        for scale in table.scales if table.script == "study" else ():
            flags = table.command(scale)[1:]
            given = dict(flag[2:].split("=", 1) for flag in flags)
            config = given.get("config", study.CONFIG)
            [cell, *_] = study.cells([config], given.get("cells"), "0")
            values = {"length": "64", **given, "model": "", "data": "a.jsonl", **cell.values}
            assert read_config(study.filled(config, values), {})["task"]["name"]


def test_columns_of_a_study_stand_in_its_overrides_too(scripts):
    study = scripts("study")
    before = "--config.init_from=runs/{encoder}-{cross}-0"
    texts = ["configs/locost_small.py:mix,task.source=json:{data}", before]
    result = study.cells(texts, "s4d/full,full/hepos", "0,1")
    assert [cell.directory for cell in result] == [
        "s4d-full-0",
        "full-hepos-0",
        "s4d-full-1",
        "full-hepos-1",
    ]
    assert study.filled(before, result[1].values) == "--config.init_from=runs/full-hepos-0"


def test_a_table_is_measured_once_and_drawn(paper, tmp_path, monkeypatch, capsys):
    rows = [
        {"kind": kind, "length": length, "forward_seconds": length * factor}
        for kind, factor in (("linear", 1e-3), ("full", 2e-3))
        for length in (64, 128)
    ]
    commands = []

    def measured(command, out):
        commands.append(command)
        out.write_text(json.dumps({"rows": rows}))

    monkeypatch.setattr(paper, "measure", measured)
    paper.main(["lsg_figure_5", "--scale=tiny", f"--workdir={tmp_path}", "--", "--repeats=2"])
    printed = capsys.readouterr().out
    assert printed.startswith("python benchmarks/lsg.py '--kinds=128/4 norm,")
    [command] = commands
    assert command[-1] == "--repeats=2"
    table = (tmp_path / "tiny" / "lsg_figure_5.md").read_text()
    assert table.startswith("# LSG, figure 5")
    assert table.count("\n| linear") == 2
    assert (tmp_path / "tiny" / "lsg_figure_5.png").stat().st_size > 5000
    paper.main(["hepos_table_1", "--scale=paper", "--dry_run"])
    assert len(commands) == 1
    assert capsys.readouterr().out.count("\n") == 1


def test_flags_of_the_script_need_no_dashes(paper, capsys):
    paper.main(["lsg_table_1", "--dry_run", "--model=a", "--count=2", "--", "--seed=1"])
    command = capsys.readouterr().out.split()
    assert command[-4:] == ["--count=6", "--model=a", "--count=2", "--seed=1"]


@pytest.fixture
def files(topics, tmp_path, monkeypatch):
    """The files that tables of small models are made of, in the working directory."""
    monkeypatch.chdir(tmp_path)
    rows = [{"id": str(i), "document": text, "summary": text[:99]} for i, text in enumerate(topics)]
    for file, selected in (("train", rows[:20]), ("test", rows[20:22]), ("books", rows[20:22])):
        text = "".join(json.dumps(row) + "\n" for row in selected)
        (tmp_path / f"{file}.jsonl").write_text(text)


@pytest.mark.slow
@pytest.mark.usefixtures("files")
def test_lengths_in_training_are_tested_on_whole_documents(paper, tmp_path):
    """Where passes over the data end the runs, which then have other numbers of steps."""
    more = ["--config.training.steps=1000", "--config.data.epochs=1", "--config.data.batch_size=9"]
    paper.main(["locost_figure_5", "--scale=tiny", "--", *more])
    rows = json.loads((tmp_path / "runs/paper/tiny/locost_figure_5.json").read_text())["rows"]
    assert [(row["tokens"], row["steps"]) for row in rows] == [("32", 3), ("64", 3)]
    assert rows[0]["step_mib"] < rows[1]["step_mib"]
    for row in rows:
        run = tmp_path / "runs/paper/tiny_locost_lengths" / f"{row['tokens']}-0"
        described = json.loads((run / "run.json").read_text())
        assert described["task"]["max_source_length"] == int(row["tokens"])
        assert described["evaluation"]["max_source_length"] == 0
    assert (tmp_path / "runs/paper/tiny/locost_figure_5.png").stat().st_size > 5000


@pytest.mark.slow
@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", ["lsg_table_11"])
def test_tables_of_small_models_that_are_trained_for_them(name, paper, tmp_path):
    """Whatever words the files have."""
    paper.main([name, "--scale=tiny"])
    rows = json.loads((tmp_path / "runs" / "paper" / "tiny" / f"{name}.json").read_text())["rows"]
    assert len(rows) == 2
    assert all(row["documents"] == 2 for row in rows)


@pytest.mark.slow
def test_classifiers_with_and_without_dropout_of_attention(report):
    flags = ("--classifier", "--size=tiny", "--batch=1", "--lengths=64", "--repeats=1")
    result = report("lsg", *flags, "--kinds=32/4 norm,performer")
    rows = {(row["kind"], row["attention_dropout"]): row for row in result["rows"]}
    assert set(rows) == {(k, r) for k in ("32/4 norm", "performer") for r in (0.1, 0.0)}
    assert all(0 < row["work_gib"] < row["gib"] and row["seconds"] > 0 for row in rows.values())
    # Of what has no weights of pairs there is nothing to drop.
    assert rows["performer", 0.1]["gib"] == rows["performer", 0.0]["gib"]


def test_the_short_row_of_table_8_has_as_many_tokens(scripts):
    lsg = scripts("lsg")
    assert lsg.classifier_batch("roberta", 4096, 4) == (32, 512)
    assert lsg.classifier_batch("roberta", 64, 1) == (1, 64)
    assert lsg.classifier_batch("256/none", 4096, 4) == (4, 4096)


def test_segments_and_selected_sentences_have_their_lengths(scripts):
    fit = scripts("fit_length")
    size = fit.SIZES["tiny"]
    shapes = {
        name: fit.step_of(name, size, 96).batch["input_ids"].shape
        for name in ("se3", "se3 768", "attentive 768", "extract_abstract")
    }
    assert shapes["se3"] == (1, 4, size.padded)
    assert shapes["se3 768"] == shapes["attentive 768"] == (1, 4, size.segment)
    assert shapes["extract_abstract"] == (1, size.padded)


@pytest.mark.slow
def test_steps_over_segments_and_pages(report):
    flags = ("--size=tiny", "--lengths=64", "--models=pagesum,se3,se3 768")
    rows = report("fit_length", *flags, "--run", "--repeats=1")["rows"]
    assert [row["model"] for row in rows] == ["pagesum", "se3", "se3 768"]
    assert rows[1]["64"] >= rows[2]["64"]
    assert min(row["batches/s at 64"] for row in rows) > 0
    assert min(row["64"] for row in rows) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["unlimiformer", "block_attention", "longt5", "lsh/hepos", "linformer/full"]
)
def test_models_read_what_their_rows_say(scripts, name):
    """Traced, not compiled: two documents of 256 tokens."""
    fit = scripts("fit_length")
    step = fit.step_of(name, fit.SIZES["tiny"], 256, batch=2)
    params = nn.meta.unbox(jax.eval_shape(step.init_params, jax.random.key(0)))
    out = jax.eval_shape(step.loss_fn, params, step.batch, jax.random.key(0))
    assert step.batch["input_ids"].shape == (2, 256)
    assert out.loss_sum.shape == out.weight.shape == ()


def test_the_longt5_of_table_14_is_that_of_the_config(scripts):
    """Sliding windows (AWESOME, appendix D), in the sizes of LongT5 base."""
    fit = scripts("fit_length")
    config = fit.longt5_config(fit.SIZES["large"])
    run = run_config(read_config("configs/long_baselines.py:longt5", {}))
    assert (config.encoder_attention, config.attention.local_radius) == ("local", 127)
    assert (config.num_layers, config.d_model, config.vocab_size) == (12, 768, 32128)
    for name in ("encoder_attention", "num_layers", "num_decoder_layers", "d_model", "d_ff"):
        assert getattr(config, name) == getattr(run.model, name)
    assert fit.longt5_config(fit.SIZES["tiny"]).encoder_attention == "local"


class _Writer:
    """A model that writes what it was told to read."""

    def __init__(self, attention=()):
        self.attention = dict(attention)

    def with_lsg_options(self, **options):
        return _Writer(options)

    def summaries(self, texts, options, **names):
        words = [text.split() for text in texts]
        return [_Written(" ".join(read[: options.max_source_length]), len(read)) for read in words]


class _Written:
    def __init__(self, text, count):
        self.text, self.count = text, count

    def report(self):
        read = len(self.text.split())
        names = {"summary_tokens": read, "read_tokens": read, "document_tokens": self.count}
        return names | {"dropped_tokens": self.count - read, "ended": "end"}


def test_a_model_reads_otherwise(scripts, tmp_path, monkeypatch, capsys):
    reread = scripts("reread")
    documents = tmp_path / "test.jsonl"
    documents.write_text(json.dumps({"document": "a b c d", "summary": "a b"}) + "\n")
    used = []
    monkeypatch.setattr(reread.longsum_jax, "load", lambda path: _Writer())
    monkeypatch.setattr(reread, "bits_per_token", lambda *given: {"bits": 1.0, "bits_other": 2.0})
    monkeypatch.setattr(_Writer, "with_lsg_options", lambda self, **o: used.append(o) or self)
    out = tmp_path / "rows.json"
    flags = ["--model=m", f"--documents={documents}", "--lengths=2,0", f"--out={out}"]
    reread.main([*flags, "--attentions=trained,128/4 norm,256/none"])
    rows = json.loads(out.read_text())["rows"]
    assert [(row["length"], row["rouge1"], row["read_share"]) for row in rows[:2]] == [
        (2, 100.0, 0.5),
        (0, 66.67, 1.0),
    ]
    assert len(rows) == 6
    blocks = {"block_size": 128, "sparse_block_size": 128, "sparsity_factor": 4}
    assert used[0] == blocks | {"sparsity_type": "norm"}
    assert used[-1] == {"block_size": 256, "sparsity_type": "none"}
    with pytest.raises(SystemExit, match='"128/4" is no LSG attention; write'):
        scripts("common").lsg_options("128/4")


@pytest.mark.slow
def test_bits_are_those_of_the_logits(scripts, small_model):
    model = longsum_jax.load(small_model)
    pairs = [Pair("1", "The cat sat on the mat.", "A cat."), Pair("2", "It rained.", "Rain fell.")]
    result = scripts("reread").bits_per_token(model, pairs, 5, 2)
    encode = model.tokenizer.encode
    expected = {}
    for name, order in (("bits", (0, 1)), ("bits_other", (1, 0))):
        losses = []
        for pair, other in zip(pairs, order, strict=True):
            source = [[*encode(pairs[other].source)[:4], model.tokenizer.eos_id]]
            target = [*encode(pair.reference), model.tokenizer.eos_id]
            start = [[model.config.decoder_start_token_id, *target[:-1]]]
            logits = np.asarray(model.logits(source, None, start))[0]
            selected = jax.nn.log_softmax(logits)[np.arange(len(target)), target]
            losses += (-selected / np.log(2)).tolist()
        expected[name] = np.mean(losses)
    assert result == pytest.approx(expected, abs=1e-3)
    assert result["bits"] != result["bits_other"]


def test_data_sets_as_rows(report, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"document": "rain falls " * 5, "summary": "rain falls"}) + "\n")
    [row] = report("corpora", "statistics", f"--data={path}")["rows"]
    assert (row["data"], row["documents"], row["compression"]) == ("a.jsonl", 1, 5.0)
    rows = report("corpora", "ngrams", f"--data={path}", "--ngrams=1")["rows"]
    assert rows[0] == {"data": "a.jsonl, unigrams", "read": 10, "seen": 50.0}
    assert rows[-1]["read"] == rows[-1]["seen"] == 100


def test_what_a_described_device_refuses_counts_with_what_it_needs(scripts):
    fit, common = scripts("fit_length"), scripts("common")
    problem = "RESOURCE_EXHAUSTED: Ran out of memory. Used 20.50G of 16.00G hbm."

    class Refused:
        def lower(self, *arguments):
            return self

        def compile(self):
            raise jax.errors.JaxRuntimeError(problem)

        @property
        def program(self):
            return common.compiled(self, np.ones(250, np.float32))

    assert fit.bytes_of(Refused()) == int(20.5 * 2**30)
    problem = "RESOURCE_EXHAUSTED: the total memory required for HLO temporaries (2.00G) exceeds"
    assert fit.bytes_of(Refused()) == 2 * 2**30 + 1000
    problem = "INTERNAL: lost"
    with pytest.raises(jax.errors.JaxRuntimeError, match="lost"):
        fit.bytes_of(Refused())


def test_reports_of_other_settings_are_not_gone_on_with(scripts, tmp_path):
    common = scripts("common")
    path = tmp_path / "rows.json"
    assert common.rows_before(str(path), size="tiny") == []
    common.write_report(path, [{"a": 1}], size="tiny")
    assert common.rows_before(str(path), size="tiny") == [{"a": 1}]
    with pytest.raises(SystemExit, match="is of size=tiny, this is base; give another --out"):
        common.rows_before(str(path), size="base")


def test_peers_of_a_converted_model_have_its_weights(scripts):
    study = scripts("lsg_study")
    family = get_family("bert")
    config = family.config(
        {
            "vocab_size": 300,
            "hidden_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 8,
        }
    )
    params = nn.meta.unbox(jax.jit(family.init_params(config))(jax.random.key(0)))
    model = Model(family, config, params, load_tokenizer("bytes", vocab_size=300))
    longer = study.converted(model, "longformer", 1024)
    assert longer.config.max_source_length == 1024
    attention = longer.params["encoder"]["layers"]["self_attention"]
    for name in "qkv":
        ours, theirs = attention[f"{name}_global"]["kernel"], attention[name]["kernel"]
        assert (ours == theirs).all()
        assert (theirs == params["encoder"]["layers"]["self_attention"][name]["kernel"]).all()
