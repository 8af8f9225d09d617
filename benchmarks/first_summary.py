"""From the shell to a summary: `longsum summarize` beside a script with transformers.

    python benchmarks/first_summary.py --out=first_summary.json [--models=bart,t5] [--words=3000]

Models of --size with random weights and tokenizers made from the documentation that Python carries
are written to a folder, and so is a document of --words words. Both sides then start a process that
reads the same folder and prints --new_tokens tokens, greedily, of as much as the model has
positions for. `seconds` are those of the process, the fastest of --repeats: ours "cold" compiles
its programs, "warm" finds them in the directory of the run before. `ratio` is how many times as
long ours takes.

The rows "where" say what ours does in that time: imports, reading the model, the first summary, the
same summary again; the difference of the last two is compiling. "--help" and "no model" are the
command's help, and its error for a folder that is not there. Started again with the same --out, the
script goes on with the models that are not there yet.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from common import Deadline, print_table, rows_before, write_report

PEER = """
import sys
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
directory, path, count, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
tokenizer = AutoTokenizer.from_pretrained(directory)
model = AutoModelForSeq2SeqLM.from_pretrained(directory)
options = {"truncation": True, "max_length": limit} if limit else {}
inputs = tokenizer(open(path).read(), return_tensors="pt", **options)
if model.config.model_type == "led":
    inputs["global_attention_mask"] = inputs["attention_mask"] * 0
    inputs["global_attention_mask"][:, 0] = 1
out = model.generate(
    input_ids=inputs["input_ids"],
    attention_mask=inputs["attention_mask"],
    **{name: inputs[name] for name in ("global_attention_mask",) if name in inputs},
    min_new_tokens=count, max_new_tokens=count, num_beams=1, do_sample=False,
)
print(tokenizer.decode(out[0], skip_special_tokens=True))
"""
WHERE = """
import json, sys, time
start = time.perf_counter()
import longsum_jax
from longsum_jax.summarization.loading import load
imported = time.perf_counter()
model = load(sys.argv[1])
loaded = time.perf_counter()
text, count = open(sys.argv[2]).read(), int(sys.argv[3])
options = {"min_new_tokens": count, "max_new_tokens": count, "num_beams": 1, "strategy": "direct"}
model.summarize(text, **options)
first = time.perf_counter()
model.summarize(text, **options)
second = time.perf_counter()
marks = {"import": imported - start, "read": loaded - imported, "first summary": first - loaded}
print(json.dumps(marks | {"summary again": second - first}))
"""


def write_model(name: str, size: str, length: int, directory: Path) -> int:
    """Writes a model of random weights with its tokenizer; returns the tokens that it can read, 0
    for any number."""
    from models import make_config, make_model

    from longsum_jax.models.registry import max_input_length

    family, config = make_config(name, size, 1024 if name == "bart" else length)
    config = dataclasses.replace(config, vocab_size=max(config.vocab_size, 6000))  # of tokenizers
    model = make_model(family, config)
    model.save(directory)
    _write_tokenizer(directory, name)
    return max_input_length(config) or 0


def _write_tokenizer(directory: Path, name: str) -> None:
    text = list(topics.values())
    if name == "t5":
        from longsum_jax.tokenizers.train import train_sentencepiece

        train_sentencepiece(text, 1000, extra_ids=0).save(directory)
        return
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(text, vocab_size=5000, special_tokens=special)
    tokenizer.save_model(str(directory))
    kind = "LEDTokenizer" if name == "led" else "BartTokenizer"
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))


def seconds_of(command: Sequence[str], environment: dict[str, str], fails: bool = False) -> float:
    """Seconds of a process."""
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    taken = time.perf_counter() - start
    if (done.returncode != 0) != fails:
        raise SystemExit(f"{command[:4]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return taken


def measure(name: str, args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """The rows of one model."""
    directory, document = folder / name, folder / "document.txt"
    words = " ".join(topics.values()).split()
    document.write_text(" ".join(words[: args.words]))
    limit = write_model(name, args.size, 2 * args.words, directory)
    count = str(args.new_tokens)
    flags = [
        f"--max_new_tokens={count}",
        f"--min_new_tokens={count}",
        "--num_beams=1",
        "--strategy=direct",
    ]
    ours = [sys.executable, "-m", "longsum_jax", "summarize", f"--model={directory}", *flags]
    ours.append(str(document))
    theirs = [sys.executable, "-c", PEER, str(directory), str(document), count, str(limit)]
    offline = os.environ | {"HF_HUB_OFFLINE": "1"}
    taken: dict[str, list[float]] = {"cold": [], "warm": [], "peer": []}
    for turn in range(args.repeats):
        programs = {"JAX_COMPILATION_CACHE_DIR": str(folder / f"programs {name} {turn}")}
        for kind in ("cold", "warm"):
            taken[kind].append(seconds_of(ours, os.environ | programs))
        taken["peer"].append(seconds_of(theirs, offline))
    peer = min(taken["peer"])
    rows = [
        {"model": name, "what": kind, "seconds": min(taken[kind]), "ratio": min(taken[kind]) / peer}
        for kind in ("cold", "warm")
    ]
    rows.append({"model": name, "what": "transformers", "seconds": peer})
    for kind, number in (("cold", "none"), ("warm", 0)):
        programs = {"JAX_COMPILATION_CACHE_DIR": str(folder / f"programs {name} {number}")}
        command = [sys.executable, "-c", WHERE, str(directory), str(document), count]
        done = subprocess.run(
            command, env=os.environ | programs, capture_output=True, text=True, check=True
        )
        rows.append({"model": name, "what": f"where, {kind}"} | json.loads(done.stdout))
    return rows


def command_rows(repeats: int) -> list[dict[str, Any]]:
    """Seconds of the command's help and of its error for a missing model."""
    longsum = [sys.executable, "-m", "longsum_jax"]
    commands = {
        "--help": ([*longsum, "--help"], False),
        "summarize --help": ([*longsum, "summarize", "--help"], False),
        "evaluate --help": ([*longsum, "evaluate", "--help"], False),
        "score --help": ([*longsum, "score", "--help"], False),
        "no model": ([*longsum, "summarize", "--model=missing", __file__], True),
    }
    environment = dict(os.environ)
    rows = []
    for what, (command, fails) in commands.items():
        taken = min(seconds_of(command, environment, fails) for _ in range(repeats))
        rows.append({"what": what, "seconds": taken})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="bart,t5,led", help="default: bart,t5,led")
    parser.add_argument("--size", default="base", help="default: base")
    parser.add_argument("--words", type=int, default=3000, help="of the document; default: 3000")
    parser.add_argument("--new_tokens", type=int, default=64, help="of the summary; default: 64")
    parser.add_argument("--repeats", type=int, default=2, help="turns; default: 2")
    parser.add_argument("--out", help="JSON report to write, or to go on with")
    Deadline.add_flag(parser)
    args = parser.parse_args()
    deadline = Deadline(args.minutes)
    sizes = {"words": args.words, "new_tokens": args.new_tokens, "size": args.size}
    before = rows_before(args.out, **sizes)
    rows = [row for row in before if "model" in row] + command_rows(args.repeats)
    done = {row.get("model") for row in rows}
    for name in args.models.split(","):
        if name in done or deadline.is_over:
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows += measure(name, args, Path(folder))
        if args.out:
            write_report(args.out, rows, **sizes, load=os.getloadavg()[0])
    print_table(rows)


if __name__ == "__main__":
    main()
