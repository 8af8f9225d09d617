"""Hostile files, and what reads them: a process of its own, watched while it does.

    python tests/hostile_files.py FOLDER

makes every case in FOLDER, reads it, and prints a JSON line each: what became of it, seconds, and
what was opened or run that has no business there. ``test_hostile_files.py`` looks at the lines.
"""

import base64
import gzip
import io
import json
import lzma
import os
import pickle
import resource
import struct
import sys
import tarfile
import time
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import longsum_jax
from longsum_jax import checksums
from longsum_jax.data.prepared import PreparedExamples
from longsum_jax.data.qmsum import read_qmsum
from longsum_jax.errors import InputError
from longsum_jax.evaluation.comparison import read_predictions
from longsum_jax.evaluation.scrolls import read_scrolls
from longsum_jax.experimental.judging.judging import read_key
from longsum_jax.models.registry import get_family
from longsum_jax.readers import ReadOptions, read_documents
from longsum_jax.summarization.model import Model
from longsum_jax.text.documents import read_json_lines
from longsum_jax.tokenizers.bytes import ByteTokenizer
from longsum_jax.tokenizers.loading import load_tokenizer
from longsum_jax.tokenizers.train import train_sentencepiece

Make = Callable[[Path], Any]
CANARY = "canary"  # what hostile code would leave; it lies beside the folders of the cases
SECRET = "secret.txt"  # likewise, what a hostile path would open


KEY = {"protocol": "hepos", "judges": 1, "seed": 0, "aspects": [], "systems": [], "documents": []}
KEY["items"] = {}


class Case(NamedTuple):
    """Files that somebody made to do harm.

    Attributes:
        name: of the case.
        make: writes the files into an empty folder.
        read: reads them.
        is_read: the harm is in a part that nothing reads: the rest is read as if it were not there.
    """

    name: str
    make: Make
    read: Make
    is_read: bool = False


class Payload:
    """Runs a program when it is unpickled."""

    def __init__(self, target: str = "") -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.target or CANARY}",)


# The model that cases change


def write_base(folder: Path) -> None:
    """Writes a tiny T5 with a tokenizer of bytes."""
    family = get_family("t5")
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_heads": 2, "num_layers": 1}
    config = family.config({"vocab_size": 384, "num_decoder_layers": 1, **sizes})
    rng = np.random.default_rng(0)
    params: dict[str, Any] = {}
    for path, shape in family.parameter_shapes(config).items():
        *parents, last = path.split("/")
        node = params
        for name in parents:
            node = node.setdefault(name, {})
        node[last] = rng.normal(size=shape).astype(np.float32)
    Model(family, config, params, ByteTokenizer(unused_ids=125)).save(folder)


class Files:
    """Contents that cases share, made once."""

    def __init__(self, base: Path) -> None:
        # Directories of others have no sums, which would refuse every change.
        paths = [path for path in base.iterdir() if path.name != checksums.SUMS]
        self.base = {path.name: path.read_bytes() for path in paths}
        marked = self.base["model.safetensors"]
        self.base["model.safetensors"] = marked.replace(b'"checksums":', b'"unmarked_":')
        self.config = json.loads(self.base["config.json"])
        self.weights = self.base["model.safetensors"]
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a"]
        texts = [f"some words number {i} of a text" for i in range(40)]
        self.pieces = train_sentencepiece(texts, 300)._model_bytes
        special = [{"id": i, "content": word, "special": True} for i, word in enumerate(words[:5])]
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        self.tokenizer = {
            "version": "1.0",
            "added_tokens": [{**token, **flags} for token in special],
            "normalizer": None,
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": None,
            "decoder": None,
            "model": {
                "type": "WordPiece",
                "unk_token": "[UNK]",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": {word: i for i, word in enumerate(words)},
            },
        }


def write(path: Path, content: Any) -> None:
    """Writes bytes, text, a JSON value, or whatever a function of the path writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if callable(content):
        content(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def folder_of(files: dict[str, Any]) -> Make:
    def make(folder: Path) -> None:
        for name, content in files.items():
            write(folder / name, content)

    return make


def link_to(target: str) -> Make:
    return lambda path: path.symlink_to(target)


def fifo(path: Path) -> None:
    os.mkfifo(path)


# Weights


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file, honest or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(begin: Any, end: Any, shape: Any = (1,), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def torch_zip(pickled: bytes, data: bytes = bytes(16), packing: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", packing) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/data/0", data)
        archive.writestr("archive/version", b"3\n")
    return out.getvalue()


def torch_saved(state: Any) -> bytes:
    import torch

    out = io.BytesIO()
    torch.save(state, out)
    return out.getvalue()


def endless_view() -> bytes:
    import torch

    return torch_saved({"shared.weight": torch.zeros(1).as_strided((2**20, 2**20), (0, 0))})


def weight_cases(files: Files) -> list[Case]:
    base = {name: content for name, content in files.base.items() if name != "model.safetensors"}
    length = int.from_bytes(files.weights[:8], "little")
    header = json.loads(files.weights[8 : 8 + length])
    data = files.weights[8 + length :]
    first = next(name for name in header if name != "__metadata__")
    shared = header["shared.weight"]
    huge = tensor(0, 2**62, (2**60,))
    overlapping = header | {first: shared}
    headers = {
        "of 2 GiB that is not there": safetensors(b"{}", length=2**31),
        "of 2**63 bytes": safetensors(b"{}", length=2**63),
        "of 2**64 - 1 bytes": safetensors(b"{}", length=2**64 - 1),
        "longer than allowed": lambda path: sparse(path, struct.pack("<Q", 2**30), 2**31),
        "that is empty": b"",
        "cut short": struct.pack("<Q", 100) + b"{",
        "that is no JSON": safetensors(b"\xff" * 64),
        "that is a list": safetensors([1]),
        "that is deep": safetensors(b'{"a":' * 100_000),
        "of a million lists": safetensors(b'{"a":[' + b"[]," * 2_200_000 + b"[]]}"),
        "with a name twice": safetensors(b'{"a":{},"a":{}}'),
        "with negative offsets": safetensors({"a": tensor(-4, 0)}),
        "with negative shapes": safetensors({"a": tensor(0, 4, (-1, -1))}),
        "with huge tensors": safetensors({"a": huge}),
        "with shapes that overflow": safetensors(
            {"a": tensor(0, 0, (2**32, 2**32, 0))} | {"b": huge}
        ),
        "with offsets that overflow": safetensors({"a": tensor(0, 2**70)}),
        "with floats for offsets": safetensors({"a": tensor(0.0, 4.0)}, bytes(4)),
        "with strings for offsets": safetensors({"a": tensor("0", "4")}, bytes(4)),
        "with offsets of 400 digits": safetensors({"a": tensor(0, 10**400)}),
        "with offsets of 5,000 digits": safetensors(
            b'{"a":{"data_offsets":[0,' + b"9" * 5000 + b"]}}"
        ),
        "with an unknown type": safetensors({"a": tensor(0, 4, dtype="PICKLE")}, bytes(4)),
        "with a list for a type": safetensors({"a": tensor(0, 4, dtype=["F32"])}, bytes(4)),
        "with overlapping tensors": safetensors(overlapping, data),
        "with a hole": safetensors({"a": tensor(4, 8)}, bytes(8)),
        "with data behind it": files.weights + b"more",
        "with lying shapes": safetensors(
            header | {"shared.weight": shared | {"shape": [8, 384]}}, data
        ),
        "with other names": safetensors({"a": tensor(0, 4)}, bytes(4)),
        "with names of surrogates": safetensors(b'{"\\ud800\\n\\u202e": {"dtype": 1}}'),
    }
    cases = [
        (f"safetensors: a header {name}", {"model.safetensors": x}) for name, x in headers.items()
    ]
    cases += [
        ("safetensors: a pipe", {"model.safetensors": fifo}),
        ("safetensors: a device", {"model.safetensors": link_to("/dev/zero")}),
        ("safetensors: a folder", {"model.safetensors/a": b""}),
        ("safetensors: a link in a circle", {"model.safetensors": link_to("model.safetensors")}),
    ]
    index = "model.safetensors.index.json"
    names = {
        "above the folder": f"../{SECRET}",
        "above by a folder": f"a/../../{SECRET}",
        "at the root": "/etc/passwd",
        "of Windows": "..\\secret.txt",
        "on another drive": "C:\\secret.txt",
        "on another machine": "\\\\host\\secret",
        "empty": "",
        "with a zero": "a\0b",
        "of 5,000 characters": "a" * 5000,
        "of surrogates": "\ud800",
        "that is a number": 7,
        "that is not there": "model-1.safetensors",
    }
    for name, file_name in names.items():
        cases.append(
            (f"index: a shard {name}", {index: {"weight_map": {"shared.weight": file_name}}})
        )
    shard = {"weight_map": {"shared.weight": "a.safetensors"}}
    cases += [
        ("index: a link out", {index: shard, "a.safetensors": link_to(f"../../{SECRET}")}),
        ("index: a shard that is a pipe", {index: shard, "a.safetensors": fifo}),
        ("index: a shard that is a device", {index: shard, "a.safetensors": link_to("/dev/zero")}),
        ("index: a shard that lacks tensors", {index: shard, "a.safetensors": safetensors({})}),
        ("index: no map", {index: {"weight_map": [1]}}),
        ("index: deep", {index: '{"weight_map":' * 50_000}),
        ("index: a bomb", {index: '{"weight_map":[' + "{}," * 2_200_000 + "{}]}"}),
    ]
    pickles = {
        "that runs a program": torch_zip(pickle.dumps(Payload())),
        "that runs one beside a tensor": torch_zip(pickle.dumps({"shared.weight": Payload()})),
        "of before 2020 that runs a program": pickle.dumps(Payload()),
        "that calls eval": torch_zip(b"cbuiltins\neval\n(S'1'\ntR."),
        "that imports a module": torch_zip(b"cantigravity\nfly\n."),
        "that opens a file": torch_zip(f"cbuiltins\nopen\n(S'../{SECRET}'\ntR.".encode()),
        "that sets a state": torch_zip(b"ccollections\nOrderedDict\n)R}(V__class__\nV1\nub."),
        "that is deep": torch_zip(b"(" * 200_000 + b"l" * 200_000 + b"."),
        "that is cut short": torch_zip(b"\x80\x02}"),
        "that is a list": torch_saved([1, 2]),
        "that holds numbers": torch_saved({"shared.weight": 7}),
        "with a view without end": endless_view(),
        "that grows when it is unpacked": torch_zip(b"}.", bytes(2**24), zipfile.ZIP_DEFLATED),
        "packed by LZMA": torch_zip(b"}.", bytes(2**20), zipfile.ZIP_LZMA),
        "that is no zip": b"PK\x03\x04" + bytes(100),
        "that is a tar": tar_of("data.pkl", pickle.dumps(Payload())),
        "that is a pipe": fifo,
        "that is a device": link_to("/dev/zero"),
    }
    cases += [(f"pickle: a file {name}", {"pytorch_model.bin": x}) for name, x in pickles.items()]
    line = f"# 1 sums\n{'0' * 64}  {{}}\n"
    whole = {"model.safetensors": files.weights}
    sums = {
        "of a file above": line.format(f"../{SECRET}"),
        "of a file at the root": line.format("/etc/passwd"),
        "of a device": line.format("/dev/zero"),
        "that are no text": b"\xff\xfe",
    }
    cases += [(f"sums: {name}", whole | {checksums.SUMS: x}) for name, x in sums.items()]
    cases.append(("sums: a pipe", whole | {checksums.SUMS: fifo}))
    pipe = {"model.safetensors": fifo, checksums.SUMS: line.format("model.safetensors")}
    cases.append(("sums: of a pipe", pipe))
    cases.append(("pickle: msgpack of Flax", {"flax_model.msgpack": pickle.dumps(Payload())}))
    return [Case(name, folder_of(base | changed), longsum_jax.load) for name, changed in cases]


def sparse(path: Path, start: bytes, size: int) -> None:
    """Writes a file whose rest is a hole."""
    with path.open("wb") as file:
        file.write(start)
        file.truncate(size)


def tar_of(name: str, content: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


# Configs


def config_cases(files: Files) -> list[Case]:
    t5, base = files.config, files.base
    bart = {"model_type": "bart", "vocab_size": 384, "d_model": 8}
    bert = {"model_type": "bert", "vocab_size": 384, "hidden_size": 8, "num_attention_heads": 2}
    pegasus = bart | {"model_type": "pegasus", "encoder_attention_heads": 2}
    configs: dict[str, Any] = {
        "a number for model_type": t5 | {"model_type": 7},
        "a list for model_type": t5 | {"model_type": ["t5"]},
        "a number for architectures": {"architectures": 5},
        "numbers in architectures": {"architectures": [5]},
        "an unknown family with a strange name": {"model_type": "a\n\x1b[31mb\ud800\u202e"},
        "a name of a megabyte": {"model_type": "t" * 2**20},
        "a vocabulary of 10**12": t5 | {"vocab_size": 10**12},
        "padding of 10**12": t5 | {"pad_token_id": 10**12},
        "padding below zero": t5 | {"pad_token_id": -1},
        "padding outside the vocabulary": t5 | {"pad_token_id": 384},
        "10**12 layers": t5 | {"num_decoder_layers": 10**12},
        "two billion layers": t5 | {"num_layers": 2_000_000_000},
        "a width of 10**9": t5 | {"d_model": 10**9, "d_ff": 10**9},
        "an epsilon that is NaN": t5 | {"layer_norm_epsilon": float("nan")},
        "an epsilon below zero": t5 | {"layer_norm_epsilon": -1e-6},
        "an endless epsilon": t5 | {"layer_norm_epsilon": float("inf")},
        "an epsilon of 400 digits": t5 | {"layer_norm_epsilon": 10**400},
        "a rate of dropout above one": t5 | {"dropout_rate": 2.0},
        "a number of 5,000 digits": json.dumps(t5)[:-1] + ', "d_kv": ' + "9" * 5000 + "}",
        "a word for a number": t5 | {"d_model": "8"},
        "truth for a number": t5 | {"d_model": True},
        "a list for a number": t5 | {"d_model": [8]},
        "an object for a word": t5 | {"feed_forward_proj": {}},
        "a billion layers of s4d": t5 | {"encoder_attention": "s4d*1000000000"},
        "layers in a number of 5,000 digits": t5 | {"encoder_attention": "s4d*" + "9" * 5000},
        "a million kinds of layers": t5 | {"encoder_attention": "full," * 10**6 + "full"},
        "deep lists": '{"a":' + "[" * 100_000,
        "a million lists": '{"a":[' + "[]," * 2_200_000 + "[]]}",
        "more than it may have": b"{" + b" " * 2**25 + b"}",
        "no object": "[]",
        "no text": b"\xff\xfe\x00",
        "no JSON": "{'model_type': 't5'}",
        "a pipe": fifo,
        "a device": link_to("/dev/zero"),
        "a link in a circle": link_to("config.json"),
        "windows of a billion": bart | {"model_type": "led", "attention_window": [10**9] * 12},
        "words for windows": bart | {"model_type": "led", "attention_window": ["1"]},
        "positions of 10**12": bart | {"max_position_embeddings": 10**12},
        "sinusoids of four million rows": pegasus | {"max_position_embeddings": 2**22},
        "labels that are numbers": bert
        | {"architectures": ["BertForSequenceClassification"]}
        | {"id2label": 5},
        "labels without numbers": bert
        | {"architectures": ["BertForSequenceClassification"]}
        | {"id2label": {"a": "b"}},
        "a number for a kind of problem": bert | {"problem_type": 5},
        "global tokens that are words": bert
        | {"base_model_prefix": "lsg", "num_global_tokens": "1"},
        "an unknown activation": bert | {"hidden_act": "__import__('os').system('x')"},
        "tasks that are a list": t5 | {"task_specific_params": [1]},
        "options that are a list": t5 | {"task_specific_params": {"summarization": [1]}},
    }
    cases = [
        Case(f"config: {name}", folder_of(base | {"config.json": x}), longsum_jax.load)
        for name, x in configs.items()
    ]
    code = {"AutoModel": "evil.Model", "AutoConfig": f"../{CANARY}--evil.Config"}
    evil = f"import os\nos.system('touch {CANARY}')\n"
    ignored = {
        "config: code to import": {
            "config.json": t5 | {"auto_map": code, "trust_remote_code": True},
            "evil.py": evil,
            "modeling_evil.py": evil,
            "__init__.py": evil,
            "conftest.py": evil,
            "sitecustomize.py": evil,
        },
        "config: code in a tokenizer": {
            "tokenizer_config.json": json.loads(base["tokenizer_config.json"])
            | {"auto_map": {"AutoTokenizer": ["evil.T", None]}},
            "evil.py": evil,
        },
        "chat template: Python by Jinja": {
            "tokenizer_config.json": json.loads(base["tokenizer_config.json"])
            | {
                "chat_template": "{{ cycler.__init__.__globals__.os.system('touch "
                + CANARY
                + "') }}"
            }
        },
        "chat template: a file": {
            "chat_template.jinja": "{{ ''.__class__.__mro__[1].__subclasses__() }}"
        },
        "chat template: without end": {
            "tokenizer_config.json": json.loads(base["tokenizer_config.json"])
            | {"chat_template": "{% for i in range(10**12) %}x{% endfor %}"}
        },
        "pickle: beside safetensors": {
            "pytorch_model.bin": torch_zip(pickle.dumps(Payload())),
            "training_args.bin": pickle.dumps(Payload()),
            "optimizer.pt": pickle.dumps(Payload()),
        },
        "pickle: scheduler and state": {
            "scheduler.pt": pickle.dumps(Payload()),
            "rng_state.pth": pickle.dumps(Payload()),
            "flax_model.msgpack": b"\xc7",
        },
    }
    cases += [
        Case(name, folder_of(base | x), longsum_jax.load, is_read=True)
        for name, x in ignored.items()
    ]

    def generation(folder: Path) -> Any:
        return longsum_jax.load(folder).generation_options()

    options = {
        "10**12 tokens": {"max_new_tokens": 10**12},
        "a million beams": {"num_beams": 10**6},
        "a length of 400 digits": {"max_length": 10**400},
        "a temperature of 400 digits": {"temperature": 10**400},
        "a penalty that is NaN": {"length_penalty": float("nan")},
        "words of lists": {"bad_words_ids": [["a"]]},
        "an end below zero": {"eos_token_id": [-1]},
        "an unknown key": {"constraints": "x"},
        "a list": [1],
    }
    cases += [
        Case(f"generation: {name}", folder_of(base | {"generation_config.json": x}), generation)
        for name, x in options.items()
    ]
    return cases


# Tokenizers


def tokenizer_cases(files: Files) -> list[Case]:
    def changed(**parts: Any) -> dict[str, Any]:
        return {"tokenizer.json": files.tokenizer | parts}

    def replace(pattern: Any, content: str) -> dict[str, Any]:
        return {"type": "Replace", "pattern": pattern, "content": content}

    def sequence(steps: list[Any]) -> dict[str, Any]:
        return {"type": "Sequence", "normalizers": steps}

    def split(pattern: str) -> dict[str, Any]:
        return {
            "type": "Split",
            "pattern": {"Regex": pattern},
            "behavior": "Isolated",
            "invert": False,
        }

    deep: Any = {"type": "NFC"}
    for _ in range(300):
        deep = sequence([deep])
    long_text = base64.b64encode(struct.pack("<I", 4) + bytes(4) + b"a" * 10_000 + b"\0").decode()
    lying = base64.b64encode(struct.pack("<I", 2**31) + bytes(8)).decode()
    model = files.tokenizer["model"]
    text = {"Sequence": {"id": "A", "type_id": 0}}
    template = {
        "type": "TemplateProcessing",
        "single": [text] * 1000,
        "pair": [text] * 1000,
        "special_tokens": {},
    }
    token = files.tokenizer["added_tokens"][0]
    pegasus = {"tokenizer_class": "PegasusTokenizer"}
    directories: dict[str, dict[str, Any]] = {
        "replaces that grow without end": changed(
            normalizer=sequence([replace({"String": "a"}, "a" * 100)] * 6)
        ),
        "replaces by expressions that grow": changed(
            normalizer=sequence([replace({"Regex": "a"}, "a" * 50)] * 4)
        ),
        "one replace of a megabyte": changed(normalizer=replace({"String": "a"}, "a" * 2**20)),
        "decoding that grows": changed(
            decoder={"type": "Sequence", "decoders": [replace({"String": "a"}, "a" * 100)] * 6}
        ),
        "ten thousand steps": changed(normalizer=sequence([{"type": "NFKD"}] * 10_000)),
        "deep steps": changed(normalizer=deep),
        "an expression of nested repetitions": changed(pre_tokenizer=split("(a+)+$")),
        "an expression of alternatives repeated": changed(pre_tokenizer=split("(a|a)*b")),
        "an expression of options repeated": changed(
            normalizer=replace({"Regex": "(a?){60}a{60}"}, "")
        ),
        "an expression of many repetitions": changed(
            normalizer=replace({"Regex": "a*a*a*a*a*a*b"}, "")
        ),
        "an expression that refers back": changed(pre_tokenizer=split(r"(a*)\1b")),
        "an expression that calls itself": changed(pre_tokenizer=split(r"(?<x>a\g<x>?b?)+")),
        "an expression that is none": changed(pre_tokenizer=split("(")),
        "an expression that is a number": changed(pre_tokenizer=split(5)),
        "a table of one long text": changed(
            normalizer={"type": "Precompiled", "precompiled_charsmap": long_text}
        ),
        "a table that lies": changed(
            normalizer={"type": "Precompiled", "precompiled_charsmap": lying}
        ),
        "a table that is none": changed(
            normalizer={"type": "Precompiled", "precompiled_charsmap": "####"}
        ),
        "a template that repeats the text": changed(post_processor=template),
        "ids of ten digits": changed(model=model | {"vocab": model["vocab"] | {"c": 4294967290}}),
        "ids below zero": changed(model=model | {"vocab": {"a": -1}}),
        "ids of 400 digits": changed(model=model | {"vocab": {"a": 10**400}}),
        "an unknown model": changed(model={"type": "Pickle"}),
        "no model": changed(model=None),
        "a Unigram without pieces": changed(model={"type": "Unigram", "unk_id": 5, "vocab": []}),
        "a Unigram of NaN": changed(
            model={"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", float("nan")]]}
        ),
        "a BPE of merges that are not there": changed(
            model={"type": "BPE", "vocab": {"a": 0}, "merges": ["x y"]}
        ),
        "an added token of two megabytes": changed(added_tokens=[token | {"content": "a" * 2**21}]),
        "added tokens without text": changed(added_tokens=[{"id": 1}]),
        "added tokens that are a number": changed(added_tokens=7),
        "padding to 10**12": changed(padding={"strategy": {"Fixed": 10**12}}, model=None),
        "no JSON": {"tokenizer.json": "{"},
        "deep JSON": {"tokenizer.json": "[" * 200_000},
        "a bomb of JSON": {"tokenizer.json": '{"a":[' + "{}," * 2_200_000 + "{}]}"},
        "a list": {"tokenizer.json": "[]"},
        "a pipe": {"tokenizer.json": fifo},
        "a device": {"tokenizer.json": link_to("/dev/zero")},
        "an offset of 10**12": pegasus_files(files, pegasus | {"offset": 10**12}),
        "an offset below zero": pegasus_files(files, pegasus | {"offset": -2}),
        "10**12 extra ids": {
            "spiece.model": files.pieces,
            "tokenizer_config.json": {"extra_ids": 10**12},
        },
        "10**12 extra bytes": {
            "tokenizer_config.json": {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 10**12}
        },
        "a class that is a list": {"tokenizer_config.json": {"tokenizer_class": ["a"]}},
        "a class of a path": {"tokenizer_config.json": {"tokenizer_class": "../../evil"}},
        "a special token that is a number": changed() | {"tokenizer_config.json": {"pad_token": 5}},
        "a special token of an object": changed()
        | {"tokenizer_config.json": {"pad_token": {"content": [1]}}},
        "added tokens without numbers": {
            "spiece.model": files.pieces,
            "tokenizer_config.json": {"added_tokens_decoder": {"a": {"content": "x"}}},
        },
        "added tokens of another kind": {
            "spiece.model": files.pieces,
            "tokenizer_config.json": {"added_tokens_decoder": [5]},
        },
        "added_tokens.json of words": {
            "vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]",
            "added_tokens.json": {"a": "b", "c": 1},
        },
        "a vocabulary of lists": {"vocab.json": {"a": []}, "merges.txt": ""},
        "merges of one word": {"vocab.json": {"a": 0}, "merges.txt": "abc"},
        "a vocabulary that is no text": {"vocab.txt": b"\xff\xfe\0"},
        "a vocabulary that is a pipe": {"vocab.txt": fifo},
        "SentencePiece: empty": {"spiece.model": b""},
        "SentencePiece: random": {"spiece.model": np.random.default_rng(0).bytes(2000)},
        "SentencePiece: cut short": {"spiece.model": files.pieces[: len(files.pieces) // 2]},
        "SentencePiece: a length of 2 GiB": {
            "spiece.model": b"\x0a\xff\xff\xff\xff\x07" + bytes(50)
        },
        "SentencePiece: groups without end": {"spiece.model": b"\x0b" * 10_000},
        "SentencePiece: zeros": {"spiece.model": bytes(10_000)},
        "SentencePiece: a pipe": {"spiece.model": fifo},
        "SentencePiece: a device": {"spiece.model": link_to("/dev/zero")},
        "SentencePiece: of BPE for XLM-RoBERTa": {
            "sentencepiece.bpe.model": bytes([0x12, 2, 0x18, 2]),
            "tokenizer_config.json": {"tokenizer_class": "XLMRobertaTokenizer"},
        },
        "SentencePiece: random for XLM-RoBERTa": {
            "sentencepiece.bpe.model": b"\xff" * 99,
            "tokenizer_config.json": {"tokenizer_class": "XLMRobertaTokenizer"},
        },
    }
    return [
        Case(f"tokenizer: {name}", folder_of(x), load_tokenizer) for name, x in directories.items()
    ]


def pegasus_files(files: Files, config: dict[str, Any]) -> dict[str, Any]:
    return {"spiece.model": files.pieces, "tokenizer_config.json": config}


# Data, and names


def newlines(path: Path) -> None:
    """Writes what unpacks to 64 MiB of line ends."""
    packer = gzip.GzipFile("", "wb", fileobj=(out := io.BytesIO()), mtime=0)
    for _ in range(64):
        packer.write(b"\n" * 2**20)
    packer.close()
    path.write_bytes(out.getvalue())


def zip_of(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def data_cases() -> list[Case]:
    def rows(name: str) -> Make:
        return lambda folder: list(read_json_lines(folder / name))

    bomb = gzip.compress(bytes(2**25))
    lines = {
        "a line of 100 MB": ("a.jsonl", b'{"document": "' + b"a" * 10**8 + b'"}'),
        "a line that grows": (
            "a.jsonl.gz",
            gzip.compress(b'{"document": "' + b"a" * 10**8 + b'"}'),
        ),
        "line ends alone": ("a.jsonl", b"\n" * 2**22),
        "line ends that grow": ("a.jsonl.gz", newlines),
        "zeros that grow": ("a.jsonl.gz", bomb),
        "zeros that grow by xz": ("a.jsonl.xz", lzma.compress(bytes(2**25))),
        "deep rows": ("a.jsonl", b'{"a":' * 10**5),
        "rows of lists": ("a.jsonl", b'{"a":[' + b"[]," * 2_200_000 + b"[]]}"),
        "numbers of 5,000 digits": ("a.jsonl", b'{"document": ' + b"9" * 5000 + b"}"),
        "half characters": ("a.jsonl", rb'{"document": "a\ud800", "summary": "b"}'),
        "a zero": ("a.jsonl", b'{"document": "a\\u0000", "summary": "b"}'),
        "a device": ("a.jsonl", link_to("/dev/zero")),
    }
    cases = [
        Case(f"rows: {name}", folder_of({file: x}), rows(file)) for name, (file, x) in lines.items()
    ]

    def documents(folder: Path) -> Any:
        # In this process, which is watched.
        return list(read_documents(folder, options=ReadOptions(sandbox=False)))

    doctype = (
        '<!DOCTYPE x [<!ENTITY a "'
        + "a" * 100
        + '">'
        + "".join(f'<!ENTITY a{i} "{"&a;" * 10}">' for i in range(9))
        + "]>"
    )
    xml = (
        doctype
        + '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>&a8;</w:body></w:document>'
    )
    outside = xml.replace('"' + "a" * 100 + '"', f'SYSTEM "file://../{SECRET}"')
    nested = b"Deep."
    for depth in range(6):
        nested = zip_of({"a.zip" if depth else "a.txt": nested})
    kinds = {
        "a zip bomb": {"a.zip": zip_of({"a.txt": bytes(2**25)})},
        "zips inside zips": {"a.zip": nested},
        "a gzip bomb": {"a.txt.gz": bomb},
        "a gzip bomb in a gzip": {"a.gz": gzip.compress(bomb)},
        "an xz bomb": {"a.txt.xz": lzma.compress(bytes(2**25))},
        "entities of a DOCX": {
            "a.docx": zip_of({"[Content_Types].xml": b"", "word/document.xml": xml.encode()})
        },
        "an entity from outside": {
            "a.docx": zip_of({"[Content_Types].xml": b"", "word/document.xml": outside.encode()})
        },
        "a DOCX that grows": {
            "a.docx": zip_of({"[Content_Types].xml": b"", "word/document.xml": b" " * 2**25})
        },
        "a deep page": {"a.html": "<div>" * 10**5},
        "a deep RTF": {"a.rtf": "{\\rtf1 " + "{" * 10**5},
        "deep JSON": {"a.json": "[" * 10**6},
        "a bomb of JSON": {"a.json": "[" + "{}," * 2_200_000 + "{}]"},
        "a tar of a link": {"a.tar": tar_of_link()},
        "a pipe": {"a.txt": fifo},
    }
    cases += [Case(f"documents: {name}", folder_of(x), documents) for name, x in kinds.items()]
    release = {"qmsum/validation.jsonl": b'{"id":"a","input":"' + b"a" * 2**26}
    files = {
        "scrolls: a zip that grows": ({"qmsum.zip": zip_of(release)}, "qmsum.zip", read_scrolls),
        "scrolls: line ends": (
            {"a.zip": zip_of({"qmsum/validation.jsonl": b"\n" * 2**21})},
            "a.zip",
            read_scrolls,
        ),
        "scrolls: no zip": ({"a.zip": b"PK"}, "a.zip", read_scrolls),
        "scrolls: deep rows": (
            {"a.zip": zip_of({"validation.jsonl": b"[" * 10**5})},
            "a.zip",
            read_scrolls,
        ),
        "qmsum: a deep meeting": (
            {"data/ALL/test/a.json": '{"meeting_transcripts":' + "[" * 10**5},
            ".",
            lambda path: list(read_qmsum(path, "test")),
        ),
        "qmsum: a meeting that is a pipe": (
            {"data/ALL/test/a.json": fifo},
            ".",
            lambda path: list(read_qmsum(path, "test")),
        ),
        "predictions: deep": ({"a.json": "{" * 10**5}, "a.json", read_predictions),
        "predictions: lists": ({"a.json": '{"a": [1]}'}, "a.json", read_predictions),
        "key: a protocol that is a list": (
            {"key.json": KEY | {"protocol": ["hepos"]}},
            "key.json",
            read_key,
        ),
        "key: deep": ({"key.json": '{"items":' * 10**5}, "key.json", read_key),
        "prepared: lengths that are a pickle": (
            prepared_files(pickled_array()),
            ".",
            PreparedExamples,
        ),
        "prepared: metadata that is deep": ({"metadata.json": "[" * 10**5}, ".", PreparedExamples),
        "prepared: metadata that is a pipe": ({"metadata.json": fifo}, ".", PreparedExamples),
        "prepared: metadata without entries": (
            {"metadata.json": {"format_version": 1}},
            ".",
            PreparedExamples,
        ),
    }
    for name, (contents, path, read) in files.items():
        cases.append(
            Case(
                name, folder_of(contents), lambda folder, path=path, read=read: read(folder / path)
            )
        )
    names = [
        "../x",
        "..",
        "a/../../b",
        "org/name/more",
        "-x/y",
        "org/.name",
        "org/na me",
        "/etc",
        "http://a/b",
        "org/na\0me",
        "org/" + "n" * 5000,
        "~/x",
        "org/name\n",
        "\ud800/x",
        "",
    ]
    for name in names:
        cases.append(
            Case(
                f"hub: {name[:20]!r}",
                lambda folder: None,
                lambda folder, name=name: longsum_jax.load(name),
            )
        )
    return cases


def tar_of_link() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        link = tarfile.TarInfo("a.txt")
        link.type, link.linkname = tarfile.SYMTYPE, f"../{SECRET}"
        archive.addfile(link)
    return out.getvalue()


def pickled_array() -> bytes:
    out = io.BytesIO()
    np.save(out, np.array([Payload()], object), allow_pickle=True)
    return out.getvalue()


def prepared_files(lengths: bytes) -> dict[str, Any]:
    from longsum_jax.data import prepared

    metadata = {
        "format_version": prepared.FORMAT_VERSION,
        "num_shards": 1,
        "examples": 1,
        "split": "train",
    }
    return {"metadata.json": metadata | {"tokenizer": {"fingerprint": "x"}}, "lengths.npy": lengths}


# The watch


class Watch:
    """What a process opens and runs, as Python sees it, outside of a folder and of Python."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.found: list[str] = []
        places = (
            sys.prefix,
            sys.base_prefix,
            Path(longsum_jax.__file__).parents[1],
            "/proc",
            "/sys",
        )
        self._own = tuple(
            os.path.realpath(place)
            for place in (
                *places,
                "/dev/urandom",
                "/dev/null",
                "/usr/share/zoneinfo",
                "/etc/localtime",
            )
        )
        sys.addaudithook(self._look)

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event == "open" and isinstance(arguments[0], str | bytes):
            path = os.fsdecode(arguments[0])
            if not os.path.realpath(path).startswith((*self._own, str(self.folder), "/dev/zero")):
                self.found.append(f"open {path}")
        elif event.startswith(
            (
                "os.system",
                "os.exec",
                "os.posix_spawn",
                "os.fork",
                "subprocess.",
                "socket.connect",
                "socket.getaddrinfo",
                "os.remove",
                "os.rename",
                "ctypes.dlopen",
            )
        ):
            self.found.append(event)


def read_watched(case: Case, folder: Path, watch: Watch) -> dict[str, Any]:
    """Makes and reads a case; returns what became of it."""
    folder.mkdir()
    case.make(folder)
    os.chdir(folder.parent)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    watch.found, watch.folder = [], folder.resolve()
    began = time.process_time()
    try:
        case.read(folder)
        outcome, message = "read", ""
    except InputError as error:
        outcome, message = "InputError", str(error)
    except BaseException as error:
        outcome, message = type(error).__name__, traceback.format_exc()
    finally:
        seconds, watch.folder = time.process_time() - began, None
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    return {
        "case": case.name,
        "outcome": outcome,
        "message": message,
        "seconds": seconds,
        "bytes": grown,
        "found": watch.found,
        "is_read": case.is_read,
    }


def all_cases(base: Path) -> list[Case]:
    files = Files(base)
    return [*weight_cases(files), *config_cases(files), *tokenizer_cases(files), *data_cases()]


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    write_base(root / "base")
    longsum_jax.load(root / "base")  # imports what the cases need
    (root / "cases").mkdir()
    (root / "cases" / SECRET).write_text("not to be read")
    cases = all_cases(root / "base")
    watch = Watch()
    for number, case in enumerate(cases):
        row = read_watched(case, root / "cases" / f"{number}", watch)
        row["canary"] = any((root / "cases").glob(f"**/{CANARY}"))
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
