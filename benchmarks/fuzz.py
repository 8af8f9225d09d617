"""Readers of files on files that were damaged at random: each gives a value or an InputError.

    python benchmarks/fuzz.py --out=fuzz.json [--minutes=10] [--seed=0] [--readers=config,rows]

Started again, it goes on with the next files, those readers first that had the least processor
time, until all had --cpu_minutes. Every reader has a few small valid files. A number makes a
damaged one of them: bytes are flipped, cut out, repeated; in JSON values are replaced by such as
break things (-1, 10**400, lists in lists). Readers run in a process of their own, because a damaged
file may end it. Failures are files that do, that raise another exception than InputError, or take
longer than --patience seconds. They are tried again at every start; "mended" counts those that pass
then. The same seed and number make the same files; --show writes them:

    python benchmarks/fuzz.py --show=config:17 --folder=here [--seed=0]
"""

import argparse
import contextlib
import copy
import gzip
import io
import itertools
import json
import queue
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import print_table, rows_before, write_report

Files = dict[str, bytes]
_IMPORT_SECONDS = 300.0  # the first answer of a worker waits for imports
TEXT = "The cat sat on the mat. It slept the whole day long."


class Reader(NamedTuple):
    """What is tried.

    Attributes:
        seeds: returns folders of valid files.
        read: reads a folder.
    """

    seeds: Callable[[], list[Files]]
    read: Callable[[Path], Any]


class Failure(NamedTuple):
    """A damaged file that did not end in a value or a sentence."""

    reader: str
    number: int
    problem: str


# Damage

_NUMBERS = (0, 1, -1, 2**31, 2**63, -(2**63), 10**12, 10**400, 1e308, -0.0)
_WORDS = ("", "a", "\ud800", "\n", "\0", "../x", "/etc/passwd", "é" * 300, "s4d*9", "(a+)+$")
_VALUES = (*_NUMBERS, float("nan"), float("inf"), *_WORDS, None, True, False, [], {}, [[]], [None])
_BYTES = (b"\0", b"\xff", b"\x80", b"\n", b"{", b"[", b'"', b"\xed\xa0\x80", b"\xff" * 8, b"\x7f")


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Returns a file with one to four changes."""
    for _ in range(rng.integers(1, 5)):
        change = _damage_json if rng.random() < 0.7 else _damage_bytes
        content = change(content, rng)
    return content


def _damage_json(content: bytes, rng: np.random.Generator) -> bytes:
    """Changes one value in JSON, in one line of JSON lines; other content as bytes."""
    lines = content.split(b"\n")
    place = int(rng.integers(len(lines)))
    if len(lines) > 30 or not lines[place].strip():
        place = 0
    is_whole = content[:1] in (b"{", b"[") and b"\n{" not in content
    try:
        tree = json.loads(content if is_whole else lines[place])
    except (ValueError, RecursionError):
        return _damage_bytes(content, rng)
    text = json.dumps(_changed(tree, rng)).encode()
    if is_whole:
        return text
    return b"\n".join([*lines[:place], text, *lines[place + 1 :]])


def _changed(tree: Any, rng: np.random.Generator) -> Any:
    holders = [[tree]]
    for holder in holders:
        values = list(holder.values() if isinstance(holder, dict) else holder)
        holders += [value for value in values if isinstance(value, dict | list) and value]
    holder = holders[rng.integers(len(holders))]
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = keys[rng.integers(len(keys))]
    kind = rng.random()
    if kind < 0.1 and holder is not holders[0]:
        del holder[key]
    elif kind < 0.2:
        holder[key] = [copy.deepcopy(holder[key])]
    elif kind < 0.3 and isinstance(holder, dict):
        holder[_WORDS[rng.integers(len(_WORDS))]] = holder[key]
    elif kind < 0.35:
        holder[key] = json.loads("[" * 200 + "]" * 200)
    else:
        holder[key] = copy.deepcopy(_VALUES[rng.integers(len(_VALUES))])
    return holders[0][0]


def _damage_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    if not content:
        return b"\0"
    start, end = sorted(rng.integers(0, len(content) + 1, 2))
    end = min(end, start + 64)
    kind = rng.integers(5)
    if kind == 0:
        flipped = bytearray(content)
        flipped[min(start, len(content) - 1)] ^= 1 << int(rng.integers(8))
        return bytes(flipped)
    if kind == 1:
        return content[:start] + content[end:]
    if kind == 2:
        return content[:end] + content[start:end] * int(rng.integers(1, 20)) + content[end:]
    if kind == 3:
        return content[:start]
    return content[:start] + _BYTES[rng.integers(len(_BYTES))] + content[end:]


# Readers


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _config_seeds() -> list[Files]:
    from longsum_jax.models.registry import FAMILIES

    seeds = []
    for family in FAMILIES.values():
        config = next(preset for name, preset in family.presets.items() if name != "large")
        tasks = {"task_specific_params": {"summarization": {"prefix": "a", "num_beams": 2}}}
        seeds.append(
            {
                "config.json": _json(family.config_json(config) | tasks),
                "generation_config.json": _json(family.generation_config(config, {})),
            }
        )
    labels = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b"}}
    lsg = {"architectures": ["LSGBartForConditionalGeneration"], "base_model_prefix": "lsg"}
    seeds.append({"config.json": _json({"model_type": "bert", **labels})})
    seeds.append({"config.json": _json({"model_type": "bart", "d_model": 16, **lsg})})
    return seeds


def _read_config(folder: Path) -> None:
    from longsum_jax.checkpoints import huggingface
    from longsum_jax.decoding.options import GenerationOptions

    family, config = huggingface.read_config(folder)
    huggingface.read_summarization(folder)
    stored = huggingface.read_generation_config(folder)
    options = family.generation_config(config, stored)
    if options:
        GenerationOptions.from_config(options)


def _safetensors() -> bytes:
    header = {"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}
    header["b"] = {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]}
    text = _json(header)
    return len(text).to_bytes(8, "little") + text + bytes(range(22))


def _weight_seeds() -> list[Files]:
    index = _json({"metadata": {}, "weight_map": {"a": "x.safetensors", "b": "x.safetensors"}})
    names = ("model.safetensors.index.json", "x.safetensors")
    return [
        {"model.safetensors": _safetensors()},
        dict(zip(names, (index, _safetensors()), strict=True)),
    ]


def _read_weights(folder: Path) -> None:
    from longsum_jax.checkpoints.weights import read_weights

    tensors, _ = read_weights(folder)
    for tensor in tensors.values():
        np.asarray(tensor)


def _torch_seeds() -> list[Files]:
    import torch

    out, old = io.BytesIO(), io.BytesIO()
    state = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.arange(4, dtype=torch.bfloat16)}
    torch.save(state, out)
    torch.save(state, old, _use_new_zipfile_serialization=False)
    return [{"pytorch_model.bin": out.getvalue()}, {"pytorch_model.bin": old.getvalue()}]


def _tokenizer_seeds() -> list[Files]:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    words = {name: i for i, name in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "##s"))}
    pieces = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer()
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    around = [("[CLS]", 2), ("[SEP]", 3)]
    pieces.post_processor = processors.BertProcessing(around[1], around[0])
    pieces.add_special_tokens(["[CLS]", "[SEP]", "[PAD]"])
    bytes_of = {name: i for i, name in enumerate(("<s>", "<pad>", "</s>", "<unk>", "t", "h", "th"))}
    pairs = Tokenizer(models.BPE(bytes_of, [("t", "h")]))
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs.decoder = decoders.ByteLevel()
    pairs.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    scores = [(name, -float(i)) for i, name in enumerate(("<pad>", "</s>", "<unk>", "▁the", "e"))]
    unigram = Tokenizer(models.Unigram(scores, unk_id=2))
    steps = [normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.Lowercase()]
    unigram.normalizer = normalizers.Sequence(steps)
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.post_processor = processors.TemplateProcessing("$A </s>", "$A $B </s>", [("</s>", 1)])
    config = _json({"pad_token": "[PAD]", "extra_ids": 3, "tokenizer_class": "BertTokenizer"})
    seeds = [{"tokenizer.json": t.to_str().encode()} for t in (pieces, pairs, unigram)]
    seeds[0]["tokenizer_config.json"] = config
    vocabulary = "\n".join(words).encode()
    added = _json({"new": len(words)})
    special = _json({"pad_token": {"content": "[PAD]", "lstrip": False}, "mask_token": "[SEP]"})
    seeds.append({"vocab.txt": vocabulary, "added_tokens.json": added})
    seeds[-1]["special_tokens_map.json"] = special
    bart = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4, "t": 5, "h": 6, "th": 7}
    seeds.append({"vocab.json": _json(bart), "merges.txt": b"#version: 0.2\nt h"})
    return seeds


def _sentencepiece_seeds() -> list[Files]:
    from longsum_jax.tokenizers.loading import train_sentencepiece

    texts = [f"some words number {i} of a text" for i in range(40)]
    with tempfile.TemporaryDirectory() as folder:
        train_sentencepiece(texts, 300, extra_ids=3).save(folder)
        files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    pegasus = {"tokenizer_class": "PegasusTokenizer", "offset": 5}
    xlm = {"tokenizer_class": "XLMRobertaTokenizer"}
    model = files["spiece.model"]
    return [
        files,
        {"spiece.model": model, "tokenizer_config.json": _json(pegasus)},
        {"sentencepiece.bpe.model": model, "tokenizer_config.json": _json(xlm)},
    ]


def _read_tokenizer(folder: Path) -> None:
    from longsum_jax.tokenizers.loading import load_tokenizer

    tokenizer = load_tokenizer(folder)
    tokenizer.decode(tokenizer.encode("the cats ``sat``")[:4])


def _row_seeds() -> list[Files]:
    row = {"id": 1, "document": [TEXT, TEXT], "summary": "A cat.", "query": "Who?", "label": ["a"]}
    lines = b"\n".join(_json(row | {"id": i}) for i in range(3))
    return [{"a.jsonl": lines}, {"a.jsonl.gz": gzip.compress(lines, mtime=0)}]


def _read_rows(folder: Path) -> None:
    from longsum_jax.text.documents import read_json_lines

    keys = {"label_key": "label", "several_summaries": True}
    list(read_json_lines(str(folder / "a.jsonl*"), **keys))


def _prediction_seeds() -> list[Files]:
    row = {"id": "a", "prediction": "A cat.", "references": ["Cat."], "scores": {"rouge1": 1.0}}
    lines = b"".join(_json(row | {"id": name}) + b"\n" for name in "ab")
    item = {"judge": 0, "document": "b", "system": "a"}
    key = {"protocol": "hepos", "judges": 1, "seed": 0, "systems": ["a"], "documents": ["b"]}
    key["items"] = {"x": item}
    return [{"predictions.jsonl": lines, "p.json": _json({"a": "b"}), "key.json": _json(key)}]


def _read_predictions(folder: Path) -> None:
    from longsum_jax.evaluation.comparison import read_predictions
    from longsum_jax.evaluation.judging import read_key
    from longsum_jax.evaluation.predictions import PredictionsFile

    path = folder / "predictions.jsonl"
    reads = (
        lambda: read_predictions(path),
        lambda: read_predictions(folder / "p.json"),
        lambda: read_key(folder / "key.json"),
        lambda: PredictionsFile(path),
    )
    _each(reads)


def _each(reads: Any) -> None:
    """Calls all of several readers, and refuses if one of them does."""
    from longsum_jax.errors import InputError

    refused = None
    for read in reads:
        try:
            read()
        except InputError as error:
            refused = error
    if refused is not None:
        raise refused


def _scrolls_seeds() -> list[Files]:
    row = {"id": "a", "pid": "a_0", "input": TEXT, "output": "A cat."}
    lines = b"".join(_json(row | {"pid": f"{name}_0", "id": name}) + b"\n" for name in "ab")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("qmsum/validation.jsonl", lines)
    return [{"a.zip": out.getvalue()}, {"validation.jsonl": lines}]


def _read_scrolls(folder: Path) -> None:
    from longsum_jax.evaluation.scrolls import read_scrolls

    path = folder / "a.zip"
    read_scrolls(path if path.exists() else folder)


def _metadata_seeds() -> list[Files]:
    from longsum_jax.data.prepared import write_prepared
    from longsum_jax.data.tasks import get_task
    from longsum_jax.tokenizers.bytes import ByteTokenizer

    with tempfile.TemporaryDirectory() as root:
        row = {"document": TEXT, "summary": "A cat."}
        (Path(root) / "a.jsonl").write_bytes((_json(row) + b"\n") * 3)
        task = get_task("arxiv", source=f"json:{root}/a.jsonl", max_source_length=64)
        write_prepared(f"{root}/out", task, ByteTokenizer(), "train", 1, progress=False)
        # Without sums, which would refuse every damaged file before it is read.
        paths = [path for path in (Path(root) / "out").iterdir() if path.is_file()]
        paths = [path for path in paths if path.name != "SHA256SUMS"]
        return [{path.name: path.read_bytes() for path in paths}]


def _read_metadata(folder: Path) -> None:
    from longsum_jax.data.prepared import PreparedExamples

    store = PreparedExamples(folder)
    store.check_content()
    list(store)


def _document_seeds() -> list[Files]:
    page = f"<html><body><h1>A</h1><p>{TEXT}</p><table><tr><td>b</td></tr></table></body></html>"
    word = (
        '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
        f"<w:body><w:p><w:r><w:t>{TEXT}</w:t></w:r></w:p></w:body></w:document>"
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", word)
    mail = f"Subject: A\nContent-Type: text/plain; charset=utf-8\n\n{TEXT}\n"
    subtitles = f"1\n00:00:01,000 --> 00:00:02,000\n{TEXT}\n"
    return [
        {"a.html": page.encode()},
        {"a.docx": out.getvalue()},
        {"a.eml": mail.encode()},
        {"a.srt": subtitles.encode()},
        {"a.csv": f"id,text\n1,{TEXT}\n".encode()},
        {"a.rtf": rb"{\rtf1 Some {\b words} \'e9}"},
        {"a.md": f"# A\n\n{TEXT}\n\n* b\n".encode()},
        {"a.json": _json([{"text": TEXT}])},
    ]


def _read_documents(folder: Path) -> None:
    from longsum_jax.readers import read_documents

    list(read_documents(folder))


READERS: dict[str, Reader] = {
    "config": Reader(_config_seeds, _read_config),
    "weights": Reader(_weight_seeds, _read_weights),
    "pickle": Reader(_torch_seeds, _read_weights),
    "tokenizer": Reader(_tokenizer_seeds, _read_tokenizer),
    "sentencepiece": Reader(_sentencepiece_seeds, _read_tokenizer),
    "rows": Reader(_row_seeds, _read_rows),
    "predictions": Reader(_prediction_seeds, _read_predictions),
    "scrolls": Reader(_scrolls_seeds, _read_scrolls),
    "metadata": Reader(_metadata_seeds, _read_metadata),
    "documents": Reader(_document_seeds, _read_documents),
}


# Runs


def write_case(seeds: list[Files], seed: int, number: int, folder: Path) -> None:
    """Writes the files of a number: one of the seeds, one of its files damaged."""
    rng = np.random.default_rng((seed, number))
    files = dict(seeds[rng.integers(len(seeds))])
    name = sorted(files)[rng.integers(len(files))]
    files[name] = damaged(files[name], rng)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def read_cases(
    name: str, seed: int, numbers: Iterator[int] | range, folder: Path
) -> Iterator[tuple[int, Failure | None]]:
    """Reads the files of numbers in this process; yields each number, and its failure."""
    from longsum_jax.errors import InputError

    reader = READERS[name]
    seeds = reader.seeds()
    for number in numbers:
        write_case(seeds, seed, number, folder)
        failure = None
        try:
            reader.read(folder)
        except InputError as error:
            if not str(error).isprintable():
                failure = Failure(name, number, f"not one line: {error!r}")
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(last.filename).name}:{last.lineno}"
            said = str(error).replace(str(folder), "FOLDER")
            failure = Failure(name, number, f"{type(error).__name__} at {place}: {said}"[:200])
        yield number, failure


def _work(name: str, seed: int, start: int, folder: Path) -> None:
    """Reads without end; prints a line for every number."""
    for number, failure in read_cases(name, seed, itertools.count(start), folder):
        print(json.dumps([number, failure and failure.problem]), flush=True)


def fuzz(
    name: str, seed: int, start: int, seconds: float, patience: float
) -> tuple[int, list[Failure]]:
    """Tries a reader for some seconds, from the file of number ``start`` on; returns the number of
    the next file, and the failures."""
    end = time.monotonic() + seconds
    done, failures = start, []
    with tempfile.TemporaryDirectory() as root:
        while time.monotonic() < end:
            answers = _answers(name, seed, done, f"{root}/{name}", end, patience)
            for number, problem in answers:
                done = number + 1
                if problem is not None:
                    failures.append(Failure(name, number, problem))
    return done, failures


def still_fails(failure: Failure, seed: int, patience: float) -> bool:
    """Tries the file of an earlier failure again."""
    with tempfile.TemporaryDirectory() as root:
        end = time.monotonic() + max(_IMPORT_SECONDS, patience)
        answers = _answers(
            failure.reader, seed, failure.number, f"{root}/{failure.reader}", end, patience
        )
        with contextlib.closing(answers):
            _, problem = next(answers)
    return problem is not None


def _worker_seconds() -> float:
    """Processor seconds of all workers that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _answers(
    name: str, seed: int, number: int, folder: str, end: float, patience: float
) -> Iterator[tuple[int, str | None]]:
    """Yields what a worker says of the files from ``number`` on, until it ends or time is up."""
    command = [sys.executable, __file__, f"--worker={name}", f"--seed={seed}"]
    command += [f"--start={number}", f"--folder={folder}"]
    seconds = max(_IMPORT_SECONDS, patience)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as worker:
        get = _timed_lines(worker)
        try:
            while time.monotonic() < end:
                line = get(seconds)
                seconds = patience
                if not line:
                    how = f"takes more than {patience} s" if line is None else "ends the process"
                    yield number, how
                    return
                number, problem = json.loads(line)
                yield number, problem
                number += 1
        finally:
            worker.kill()


def _timed_lines(worker: "subprocess.Popen[bytes]") -> Callable[[float], bytes | None]:
    """Returns a function of seconds that returns the next line, or None after so many."""
    lines: queue.Queue[bytes] = queue.Queue()

    def pump() -> None:
        for line in worker.stdout or ():
            lines.put(line)
        lines.put(b"")

    def get(seconds: float) -> bytes | None:
        try:
            return lines.get(timeout=seconds)
        except queue.Empty:
            return None

    threading.Thread(target=pump, daemon=True).start()
    return get


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", default="")
    parser.add_argument("--minutes", type=float, default=1.0, help="of this start")
    parser.add_argument(
        "--cpu_minutes", type=float, default=120.0, help="of every reader, over all starts"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=10.0)
    parser.add_argument("--readers", default=",".join(READERS))
    parser.add_argument("--show", default="", metavar="NAME:NUMBER")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        _work(args.worker, args.seed, args.start, args.folder)
        return
    if args.show:
        name, _, number = args.show.partition(":")
        write_case(READERS[name].seeds(), args.seed, int(number), args.folder)
        return
    names = args.readers.split(",")
    rows = rows_before(args.out or None, seed=args.seed)
    rows += [
        {"reader": name, "files": 0, "cpu_minutes": 0.0, "failures": 0, "mended": 0}
        for name in names
        if name not in {row["reader"] for row in rows}
    ]
    failures = []
    if args.out and Path(args.out).exists():
        for known in json.loads(Path(args.out).read_text())["failures"]:
            failure = Failure(**known)
            if still_fails(failure, args.seed, args.patience):
                failures.append(failure)
            else:
                row = next(row for row in rows if row["reader"] == failure.reader)
                row["mended"] += 1
    end = time.monotonic() + 60 * args.minutes
    slice_seconds = min(300.0, 60 * args.minutes / len(names))
    while time.monotonic() < end:
        row = min(
            (row for row in rows if row["reader"] in names), key=lambda row: row["cpu_minutes"]
        )
        if row["cpu_minutes"] >= args.cpu_minutes:
            break
        before = _worker_seconds()
        next_file, found = fuzz(
            row["reader"], args.seed, row["files"], slice_seconds, args.patience
        )
        row["cpu_minutes"] += (_worker_seconds() - before) / 60
        row["files"] = next_file
        row["failures"] += len(found)
        failures += found
        for failure in found:
            print(f"{failure.reader} {failure.number}: {failure.problem}", flush=True)
        if args.out:
            found_so_far = [failure._asdict() for failure in failures]
            write_report(args.out, rows, seed=args.seed, failures=found_so_far)
    print_table(rows)
    for failure in failures:
        print(f"{failure.reader} {failure.number}: {failure.problem}")


if __name__ == "__main__":
    main()
