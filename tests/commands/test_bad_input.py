"""Whatever a command or a function is given that does not fit: exit code 2, one sentence that names
the place and the value, and nothing left on disk."""

import importlib
import io
import json
import re
import sys

import pytest

import longsum_jax
from longsum_jax.commands import console, evaluate
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError, in_one_line
from longsum_jax.experiment.config import EvaluationOptions, LossOptions
from longsum_jax.models.registry import get_family
from longsum_jax.readers import ReadOptions
from longsum_jax.training.loop import LoopOptions
from longsum_jax.training.optimizers import OptimizerOptions

TEXT = "The cat sat on the mat. It slept the whole day long. Then a dog came by and barked."
LONG = "n" * 5000

# A command that would run, in words of ``places``; then what does not fit, a case each: values on
# either side of what is allowed, and values of another kind. Options that commands share are tried
# with one of them.
COMMANDS = {
    "serve": (
        "--port=28437",  # unlike the default, hardly ever in use
        "--port=0 --port=eighty --max_queue=0 --max_body_bytes=-1 --max_tokens=0 "
        "--max_new_tokens=1000000 --max_request_seconds=nan --api_keys=nothing.txt --no_sandbox "
        "--replicas=few --mesh.tensor=0",
    ),
    "summarize": (
        "--model={model} {text}",
        "--num_beams=0 --num_beams=1000000 --num_beams=two --max_new_tokens=0 "
        "--max_new_tokens=1000000000000 --min_new_tokens=-1 --min_new_tokens=99 "
        "--length_penalty=nan --temperature=0 --temperature=nan --top_k=-1 --top_p=0 --top_p=1.5 "
        "--repetition_penalty=0 --repetition_penalty=inf --no_repeat_ngram_size=-2 "
        "--early_stopping=perhaps --batch_size=0 --batch_size=many --batch_size=1000000000000 "
        "--max_source_length=1 --max_source_length=1e3 --max_source_length=10000000000000 "
        "--on_overflow=ignore --seed=-1 --seed=99999999999999999999 --dtype=float64 "
        "--param_dtype=int8 --which=worst --format=pdf --max_bytes=0 --max_depth=0 --max_pages=-1 "
        "--max_seconds=0 --max_seconds=nan --document_key= --generation_option=suppress_tokens "
        "--generation_option=num_beams=3 --generation_option=nothing=3 "
        "--generation_option=bad_words_ids=[[]] --generation_option=suppress_tokens=[-1] "
        "--tokenizer=no.model --tokenizer= --tokenizer={long} --architecture=Nothing "
        "--revision=main --length=shorter --lenght=short --query={space} a{nul}b",
    ),
    "summarize other files": (
        "--model={model}",
        "no.txt {long} *.nothing http://a/b.txt {folder}/no {run}/metrics.jsonl",
    ),
    "summarize without a model": (
        "{text}",
        "--length=tall --length=0{space}words --length=-3{space}sentences --num_beams=4",
    ),
    "summarize with another model": (
        "{text}",
        "--model=../x --model=.. --model={text} --model=no-model --model= --model={long} "
        "--model=org/na{nul}me --model=org/name/more --model=~",
    ),
    "evaluate": (
        "--model={model} --data={data} --out={out}",
        "--examples=0 --length=tall --examples=all --batch_size=0 --metrics=rogue --metrics= "
        "--metric_option=stemmer --metric_option=rouge.stemmer=7 --metric_option=rouge.nothing=1 "
        "--metric_option=nothing.a=1 --max_source_length=1 --max_source_length=1000000000 "
        "--document_key=text --summary_key=abstract --task=arxiv --split=test --source=json:a "
        "--data=no.jsonl --data={folder} --data= --data={long} --out= --out={text} --out={long} "
        "--out={text}/below --model=no-model",
    ),
    "score": (
        "{predictions} --references={data}",
        "--rounds=0 --rounds=1000000000000 --level=0 --level=1 --level=nan --seed=-1 --test=t "
        "--metrics=rogue --metrics=, --metric_option=rouge --prediction_key=nothing "
        "--on_missing=guess --against=no.jsonl --references=no.jsonl --references={folder} "
        "--scrolls=nothing --zero_scrolls=nothing --out={text} --out={long} no.jsonl {long}",
    ),
    "extract": (
        "--oracle --data={data} --out={out}",
        "--threshold=1.5 --threshold=-0.1 --threshold=nan --top_k=-1 --summary_key=nothing "
        "--document_key=nothing --data=no.jsonl --out={data} --out= --out={long} --model=no-model",
    ),
    "corpus statistics": (
        "{data}",
        "--examples=0 --summary_key=nothing --document_key= --tokenizer=no.model --tokenizer= "
        "no.jsonl {long}",
    ),
    "judge sheets": (
        "{predictions} --references={data} --out={out}",
        "--documents=0 --judges=-1 --seed=-1 --protocol=nothing --documents=9999999",
    ),
    "prepare": (
        "--task=embedded --split=train --tokenizer=bytes --out={out} --quiet",
        "--task=nothing --task= --split=nothing --tokenizer=no.model --tokenizer= --vocab_size=0 "
        "--vocab_size=99 --num_shards=0 --num_shards=100000 --workers=0 --workers=1000000 "
        "--seed=-1 --out= --out={text} --out={long} --out={folder} --max_source_length=1 "
        "--max_source_length=1000000000000 --max_target_length=0 --max_parts=0 --piece_words=3 "
        "--ratio=0 --ratio=1.5 --ratio=nan --strategy=best --short_documents=two "
        "--objective=nothing --min_tokens=7 --source=ftp:x --source=json:no.jsonl --strict=perhaps",
    ),
    "plots curves": (
        "{run} --out={figure}",
        "--width=nan --width=0 --width=1000000 --height=inf --height=0 --dpi=0 --dpi=1000000000 "
        "--dpi=2.5 --out=a.gif --out=no/where.png --out={long}.png no-run {long}",
    ),
    "convert": (
        "{model} {out}",
        "--max_source_length=0 --max_source_length=1000000000000 --position_extension=random "
        "--cross_attention=nothing --hepos_stride=0 --hepos_stride=99 --block_size=0 "
        "--encoder_attention=full --tokenizer=no.model --architecture=Nothing --seed=-1",
    ),
    "convert to a folder": ("{model}", "{folder} {text} {long}"),
    "plan": (
        "--model={model} --device=cpu",
        "--tries=-1 --device=v5 --device= --input_length=0 --input_length=a --batch_size=0 "
        "--programs=train,reed --config=configs/quickstart.py",
    ),
}
TRAINING = {
    "training.seed": ("-1", "4294967296", "nan"),
    "training.steps": ("0", "1000000000000", "1.5"),
    "training.log_every": ("-1",),
    "training.eval_every": ("-1", "epochs"),
    "training.checkpoint_every": ("-1",),
    "training.keep_latest": ("0",),
    "training.max_bad_steps": ("0",),
    "training.accumulation": ("0", "3"),
    "optimizer.learning_rate": ("0", "nan"),
    "optimizer.b1": ("2.0", "-0.5"),
    "optimizer.b2": ("1.0", "nan"),
    "optimizer.eps": ("0", "nan"),
    "optimizer.weight_decay": ("-0.1", "nan"),
    "optimizer.clip_norm": ("-1.0",),
    "optimizer.warmup_steps": ("-1",),
    "optimizer.schedule": ("triangle",),
    "optimizer.name": ("rmsprop",),
    "training.train": ("(", "lora"),
    "training.ema_decay": ("1.0", "-0.1"),
    "training.early_stopping_patience": ("-1",),
    "lora.rank": ("0",),
    "lora.alpha": ("0",),
    "lora.dropout": ("1.0", "nan"),
    "evaluation.examples": ("-4", "many"),
    "evaluation.batch_size": ("0", "1000000000000"),
    "evaluation.max_source_length": ("-1", "1000000000000"),
    "evaluation.num_beams": ("0",),
    "evaluation.max_new_tokens": ("0", "1000000000000"),
    "evaluation.metrics": ("rogue",),
    "evaluation.rouge_types": ("rouge9",),
    "evaluation.temperature": ("0.0",),
    "evaluation.seed": ("-1",),
    "loss.label_smoothing": ("2.0", "-0.1", "nan"),
    "mlm.probability": ("0.0", "1.5"),
    "data.batch_size": ("0", "four"),
    "data.epochs": ("0",),
    "data.prefetch": ("0",),
    "data.shuffle": ("some",),
    "data.shuffle_block": ("0",),
    "data.source_lengths": ("0",),
    "task.max_source_length": ("1", "1000000000000"),
    "task.max_target_length": ("0",),
    "task.held_out": ("1.0", "nan"),
    "task.source": ("ftp:x",),
    "task.name": ("nothing",),
    "model.num_layers": ("0", "1000000000000"),
    "model.d_model": ("0", "1000000000000"),
    "model.vocab_size": ("0", "1000000000000"),
    "model.dropout_rate": ("1.0", "-0.1", "nan"),
    "model.layer_norm_epsilon": ("0.0", "nan"),
    "model.encoder_attention": ("fulll", "s4d*1000000000", "s4d*x"),
    "model.dtype": ("float16",),
    "mesh.batch": ("0", "2"),
    "mesh.preset": ("zero",),
    "tokenizer.extra_ids": ("-1",),
    "tokenizer.path": ("no.model",),
    "nothing.at_all": ("1",),
}


@pytest.fixture
def places(tmp_path, small_model):
    """Files for commands that would run, by the words that stand for them."""
    rows = [{"id": name, "document": TEXT, "summary": f"Cat and dog {name}."} for name in "abcd"]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"id": name, "prediction": "A cat."} for name in "abcd"]
    (tmp_path / "predictions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("in the way")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    return {
        "model": small_model,
        "data": tmp_path / "data.jsonl",
        "predictions": tmp_path / "predictions.jsonl",
        "text": tmp_path / "text.txt",
        "folder": tmp_path / "folder",
        "run": tmp_path / "run",
        "out": tmp_path / "out",
        "figure": tmp_path / "figure.png",
        **{"long": LONG, "space": " ", "nul": "\0"},
    }


@pytest.fixture
def refused(monkeypatch, capsys, tmp_path):
    """Runs a command that must fail with one sentence, leaving the disk as it was; returns the
    sentence."""

    def refused(name, *arguments):
        before = contents(tmp_path)
        main = importlib.import_module(f"longsum_jax.commands.{name}").main
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            console.run(main)
        out, err = capsys.readouterr()
        lines = [line for line in err.splitlines() if not line.endswith(" ...")]
        assert (caught.value.code, out, len(lines)) == (2, "", 1), err
        assert contents(tmp_path) == before
        return lines[0]

    return refused


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def commands():
    for name, (base, flags) in COMMANDS.items():
        for flag in flags.split():
            yield pytest.param(name, base, flag, id=f"{name} {flag[:40]}")


@pytest.mark.parametrize(("name", "base", "flag"), list(commands()))
def test_commands_refuse(refused, places, name, base, flag):
    command, *rest = name.split()
    subcommand = rest[:1] if command in ("corpus", "judge", "plots") else []
    given = [word.format(**places) for word in (*base.split(), flag)]
    message = refused(command, *subcommand, *given)
    check_message(message, *given[-1].removeprefix("--").partition("=")[::2])


# What a sentence says to do.
REMEDIES = (
    "must be|must lie|write |; use |expected|is not of type|is not a regular expression|"
    "did you mean|known:|choose from|required|; |has its own flag|for usage"
)


def check_message(message, name, value):
    """A sentence that says the place or the value, and what to do."""
    assert message.startswith("error: ")
    name, shown = in_one_line(name), in_one_line(value)
    places = [name[:20], name.replace("_", " "), shown[:20], *re.findall(r"\w{4,}", shown)]
    assert any(place in message for place in filter(None, places)), message
    assert re.search(REMEDIES, message), message


def settings():
    for key, values in TRAINING.items():
        for value in values:
            yield pytest.param(key, value, id=f"{key}={value}")


@pytest.mark.parametrize(("key", "value"), list(settings()))
def test_training_refuses(refused, tiny_run, tmp_path, key, value):
    arguments = (f"--config={tiny_run}", f"--workdir={tmp_path / 'run'}", f"--config.{key}={value}")
    section, _, name = key.partition(".")
    check_message(refused("train", *arguments), section if section == "nothing" else name, value)


@pytest.mark.parametrize("workdir", ["", "gs://bucket/run", "{long}", "{text}", "{text}/run"])
def test_training_refuses_a_workdir(refused, tiny_run, places, workdir):
    workdir = workdir.format(**places)
    message = refused("train", f"--config={tiny_run}", f"--workdir={workdir}")
    check_message(message, "workdir", workdir)


T5 = get_family("t5")
CALLS = {
    "a vocabulary": lambda: T5.config({"vocab_size": 10**12}),
    "an epsilon": lambda: T5.config({"layer_norm_epsilon": float("nan")}),
    "padding": lambda: T5.config({"pad_token_id": -1}),
    "padding outside": lambda: T5.config({"pad_token_id": 32128}),
    "a number of 400 digits": lambda: T5.config({"dropout_rate": 10**400}),
    "text for a number": lambda: T5.config({"d_model": "8"}),
    "beams": lambda: GenerationOptions(max_new_tokens=1, decoder_start_token_id=0, num_beams=0),
    "tokens": lambda: GenerationOptions(max_new_tokens=10**12, decoder_start_token_id=0),
    "a start": lambda: GenerationOptions(max_new_tokens=1, decoder_start_token_id=-1),
    "steps": lambda: LoopOptions(steps=0),
    "a seed": lambda: LoopOptions(steps=1, seed=-1),
    "b1": lambda: OptimizerOptions(b1=2.0),
    "a rate": lambda: OptimizerOptions(learning_rate=float("inf")),
    "smoothing": lambda: LossOptions(label_smoothing=2.0),
    "examples": lambda: EvaluationOptions(examples=-4),
    "bytes": lambda: ReadOptions(max_bytes=0),
    "seconds": lambda: ReadOptions(max_seconds=float("nan")),
    "a path with a zero": lambda: longsum_jax.load("a\0b"),
    "a long path": lambda: longsum_jax.load(LONG),
    "a type": lambda: longsum_jax.load("model", param_dtype="float16"),
    "a storage": lambda: longsum_jax.load("model", decoder_storage="int4"),
    "no text": lambda: longsum_jax.summarize(""),
    "a length": lambda: longsum_jax.summarize(TEXT, length="tall"),
}


@pytest.mark.parametrize("case", CALLS)
def test_functions_refuse(case):
    with pytest.raises(InputError) as caught:
        CALLS[case]()
    assert str(caught.value).isprintable()


def test_a_refused_evaluation_leaves_its_directory_usable(refused, places, monkeypatch):
    out = places["out"]
    given = (f"--model={places['model']}", f"--data={places['data']}", f"--out={out}")
    short = ("--max_source_length=10", "--on_overflow=error")
    with pytest.raises(InputError, match="more than max_source_length=10"):
        evaluate.main([*given, *short])
    evaluate.main([*given, "--max_source_length=10"])
    assert json.loads((out / "settings.json").read_text())["max_source_length"] == 10
    with pytest.raises(InputError, match="made with another max_source_length; give another --out"):
        evaluate.main([*given, "--max_source_length=20"])


@pytest.mark.parametrize("content", ["[1]", "7", "{", "[" * 100_000])
def test_settings_of_an_evaluation_that_are_damaged(places, content):
    out = places["out"]
    out.mkdir()
    (out / "settings.json").write_text(content)
    (out / "predictions.jsonl").write_text('{"id": "a", "scores": {}}\n')
    given = (f"--model={places['model']}", f"--data={places['data']}", f"--out={out}")
    with pytest.raises(
        InputError, match=r"settings\.json: (not valid JSON|expected a JSON object)"
    ):
        evaluate.main(given)


@pytest.mark.parametrize("content", [b"[1]", b"\xff\xfe", b"", b"[" * 100_000])
def test_a_run_whose_description_is_damaged(refused, tiny_run, tmp_path, content):
    (tmp_path / "run" / "checkpoints" / "1").mkdir(parents=True)
    (tmp_path / "run" / "run.json").write_bytes(content)
    message = refused("train", f"--config={tiny_run}", f"--workdir={tmp_path / 'run'}")
    assert "run.json: not the description of a run (" in message
