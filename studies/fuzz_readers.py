"""Small valid files of every reader, which studies/fuzz.py damages, and what reads them."""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longsum_jax.compressed import import_zstd

Files = dict[str, bytes]
TEXT = "The cat sat on the mat. It slept the whole day long."


class Reader(NamedTuple):
    """What is tried.

    Attributes:
        seeds: returns folders of valid files.
        read: reads a folder.
    """

    seeds: Callable[[], list[Files]]
    read: Callable[[Path], Any]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _files_of(folder: str | Path) -> Files:
    """Returns the files below a folder, without sums and their mark, which would refuse every
    damaged file before it is read."""
    paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    return {
        path.relative_to(folder).as_posix(): path.read_bytes().replace(
            b'"checksums":"', b'"unmarked_":"'
        )
        for path in paths
        if path.name != "SHA256SUMS"
    }


def _zip(members: dict[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


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


# Models


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


def _safetensors(names: str = "ab") -> bytes:
    first, second = names
    header = {first: {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}
    header[second] = {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]}
    text = _json(header)
    return len(text).to_bytes(8, "little") + text + bytes(range(22))


def _weight_seeds() -> list[Files]:
    return [{"model.safetensors": _safetensors()}]


def _index_seeds() -> list[Files]:
    shards = {"x.safetensors": _safetensors(), "y.safetensors": _safetensors("cd")}
    places = {name: f"{'xy'[name > 'b']}.safetensors" for name in "abcd"}
    index = _json({"metadata": {"total_size": 44}, "weight_map": places})
    torch_index = _json({"weight_map": {"a": "x.bin", "b": "x.bin"}})
    [(_, pickled)] = _torch_seeds()[0].items()
    return [
        {"model.safetensors.index.json": index, **shards},
        {"pytorch_model.bin.index.json": torch_index, "x.bin": pickled},
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


def _checkpoint_seeds() -> list[Files]:
    from longsum_jax.training.checkpointing import TrainingCheckpoints

    params = {"a": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3)}, "b": np.ones(2)}
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = TrainingCheckpoints(folder, model="t5", config={"d": 4}, keep_latest=2)
        for step, score in ((1, 0.5), (2, 0.25)):
            checkpoints.save(step, params, {"step": np.int32(step)}, {}, {"mean_rouge": score})
        checkpoints.close()
        return [_files_of(folder)]


def _read_checkpoint(folder: Path) -> None:
    from longsum_jax import checksums
    from longsum_jax.training.checkpointing import read_meta, restore_params

    for step in folder.glob("[0-9]*"):  # steps without sums are refused
        checksums.write(step)
    read_meta(folder)
    restore_params(folder)


# Tokenizers


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
    from longsum_jax.tokenizers.train import train_sentencepiece

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


# Data


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
    item = {"judge": 0, "document": "b", "system": "a", "sentences": 1}
    key = {"protocol": "hepos", "judges": 1, "seed": 0, "systems": ["a"], "documents": ["b"]}
    key |= {"aspects": ["a", "b"], "items": {"x": item}}
    return [{"predictions.jsonl": lines, "p.json": _json({"a": "b"}), "key.json": _json(key)}]


def _read_predictions(folder: Path) -> None:
    from longsum_jax.evaluation.comparison import read_predictions
    from longsum_jax.evaluation.predictions import PredictionsFile
    from longsum_jax.experimental.judging.judging import read_key

    path = folder / "predictions.jsonl"
    reads = (
        lambda: read_predictions(path),
        lambda: read_predictions(folder / "p.json"),
        lambda: read_key(folder / "key.json"),
        lambda: PredictionsFile(path),
    )
    _each(reads)


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
    from longsum_jax.data.preparation import write_prepared
    from longsum_jax.data.tasks import get_task
    from longsum_jax.tokenizers.bytes import ByteTokenizer

    with tempfile.TemporaryDirectory() as root:
        row = {"document": TEXT, "summary": "A cat."}
        (Path(root) / "a.jsonl").write_bytes((_json(row) + b"\n") * 3)
        task = get_task("arxiv", source=f"json:{root}/a.jsonl", max_source_length=64)
        write_prepared(f"{root}/out", task, ByteTokenizer(), "train", 1, progress=False)
        return [_files_of(f"{root}/out")]


def _read_metadata(folder: Path) -> None:
    from longsum_jax import checksums
    from longsum_jax.data.prepared import PreparedExamples

    checksums.write(folder)  # shards without sums are refused
    store = PreparedExamples(folder)
    store.check_content()
    list(store)


def _sums_seeds() -> list[Files]:
    from longsum_jax import checksums

    with tempfile.TemporaryDirectory() as folder:
        beside = {"b.json": b"{}", "c.jsonl": b'{"a": 1}\n', "d.zip": _zip({"e": TEXT})}
        files = beside | {"model.safetensors": _safetensors()}
        for name, content in files.items():
            Path(folder, name).write_bytes(content)
        checksums.write(Path(folder), lambda name: name in ("b.json", "d.zip"))
        return [files | {checksums.SUMS: Path(folder, checksums.SUMS).read_bytes()}, files]


def _read_sums(folder: Path) -> None:
    from longsum_jax import checksums
    from longsum_jax.commands import verify

    with contextlib.redirect_stdout(io.StringIO()):
        verify.main([str(folder)])
    checksums.check(folder)


# Documents


def _pdf() -> bytes:
    page = zlib.compress(b"BT /F 11 Tf 1 0 0 1 72 700 Tm (%s) Tj ET" % TEXT.encode())
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [5 0 R] /Count 1 >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(page), page),
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F 3 0 R >> >> >>",
    ]
    objects = [b"%d 0 obj\n%s\nendobj\n" % (i, body) for i, body in enumerate(bodies, 1)]
    return b"%PDF-1.4\n" + b"".join(objects) + b"trailer\n<< /Size 6 /Root 1 0 R >>\n%%EOF\n"


def _docx() -> bytes:
    word = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    styles = '<w:style w:styleId="H"><w:name w:val="heading 1"/><w:basedOn w:val="G"/></w:style>'
    run = f"<w:r><w:t>{TEXT}</w:t><w:br/></w:r>"
    title = f'<w:p><w:pPr><w:pStyle w:val="H"/><w:outlineLvl w:val="2"/></w:pPr>{run}</w:p>'
    table = f"<w:tbl><w:tr><w:tc><w:p>{run}</w:p></w:tc></w:tr></w:tbl>"
    body = f"<w:body>{title}<w:p>{run}<w:txbxContent><w:p>{run}</w:p></w:txbxContent></w:p>{table}"
    return _zip(
        {
            "[Content_Types].xml": "<Types/>",
            "word/document.xml": f"<w:document {word}>{body}</w:body></w:document>",
            "word/styles.xml": f"<w:styles {word}>{styles}</w:styles>",
            "word/footnotes.xml": f"<w:footnotes {word}><w:p>{run}</w:p></w:footnotes>",
            "docProps/core.xml": "<p><title>A</title></p>",
        }
    )


def _odt() -> bytes:
    name = "urn:oasis:names:tc:opendocument:xmlns"
    spaces = "".join(f' xmlns:{part}="{name}:{part}:1.0"' for part in ("office", "text", "table"))
    text = (
        f'<text:h text:outline-level="2">A</text:h><text:p>{TEXT}<text:s text:c="3"/><text:tab/>'
        "<text:note><text:p>b</text:p></text:note></text:p><table:table><table:table-row>"
        f"<table:table-cell><text:p>{TEXT}</text:p></table:table-cell></table:table-row>"
        "</table:table>"
    )
    content = f"<office:document-content{spaces}><office:body><office:text>{text}</office:text>"
    return _zip(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": content + "</office:body></office:document-content>",
            "META-INF/manifest.xml": "<m:manifest xmlns:m='urn:x'><m:file-entry/></m:manifest>",
            "meta.xml": "<m xmlns:dc='http://purl.org/dc/elements/1.1/'><dc:title>A</dc:title></m>",
        }
    )


def _links(target: str) -> str:
    return f'<r><Relationship Id="r1" Target="{target}"/></r>'


_LINKED = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" r:id="r1"'


def _pptx() -> bytes:
    paragraph = f"<p><r><t>{TEXT}</t><br/></r></p>"
    title = f'<sp><nvPr><ph type="title"/></nvPr>{paragraph}</sp>'
    table = f"<tbl><tr><tc>{paragraph}</tc><tc>{paragraph}</tc></tr></tbl>"
    return _zip(
        {
            "ppt/presentation.xml": f"<p><sldId {_LINKED}/></p>",
            "ppt/_rels/presentation.xml.rels": _links("slides/1.xml"),
            "ppt/slides/1.xml": f'<s show="1"><t>{title}<sp>{paragraph}</sp>{table}</t></s>',
            "ppt/slides/_rels/1.xml.rels": _links("../notesSlides/1.xml"),
            "ppt/notesSlides/1.xml": f"<n><sp>{paragraph}</sp></n>",
        }
    )


def _xlsx() -> bytes:
    names = '<row r="1"><c r="A1" t="s"><v>0</v></c><c t="inlineStr"><is><t>id</t></is></c></row>'
    row = '<row r="2"><c r="A2" t="s"><v>1</v></c><c r="B2"><v>7</v></c></row>'
    return _zip(
        {
            "xl/workbook.xml": f'<w><sheet name="A" {_LINKED} state="visible"/></w>',
            "xl/_rels/workbook.xml.rels": _links("/xl/sheet.xml"),
            "xl/sheet.xml": f"<s><d>{names}{row}</d></s>",
            "xl/sharedStrings.xml": f"<s><si><t>text</t></si><si><r><t>{TEXT}</t></r></si></s>",
        }
    )


def _epub() -> bytes:
    page = f'<html xmlns="http://www.w3.org/1999/xhtml"><body><h1>A</h1><p>{TEXT}</p></body></html>'
    xhtml = 'media-type="application/xhtml+xml"'
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata><title>A</title></metadata>'
        f'<manifest><item id="a" href="a.xhtml" {xhtml}/><item id="b" href="n%20/../b.xhtml" '
        f'{xhtml} properties="nav"/><item id="n" href="n.ncx" '
        'media-type="application/x-dtbncx+xml"/></manifest>'
        '<spine><itemref idref="a"/><itemref idref="b" linear="no"/></spine></package>'
    )
    point = '<navPoint><navLabel><text>A</text></navLabel><content src="a.xhtml#x"/></navPoint>'
    return _zip(
        {
            "META-INF/container.xml": '<c><rootfiles><rootfile full-path="b.opf"/></rootfiles></c>',
            "b.opf": package,
            "a.xhtml": page,
            "b.xhtml": page.replace("<p>", '<p><a href="a.xhtml">') + "</a>",
            "n.ncx": f"<ncx><navMap>{point}</navMap></ncx>",
        }
    )


def _parquet() -> bytes:
    import pyarrow
    import pyarrow.parquet

    out = io.BytesIO()
    columns = {"text": [TEXT, TEXT], "id": [1, 2], "title": ["A", None]}
    pyarrow.parquet.write_table(pyarrow.table(columns), out)
    return out.getvalue()


def tar(members: Files) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


_PAGE = (
    f"<html><head><title>A</title><meta charset=utf-8></head><body><nav><a href=x>b</a></nav><main>"
    f"<h1>A</h1><p>{TEXT}</p><ul><li>b</ul><table><tr><td colspan=2>b</td></tr></table>"
    "<pre>c\n</pre><sup><a href=#n>1</a></sup></main></body></html>"
)
_ARTICLE = (
    "<!DOCTYPE article><article><front><article-title>A</article-title><abstract><p>b</p>"
    f"</abstract></front><body><sec><title>A</title><p>{TEXT}<sup><xref>1</xref></sup> [<xref>2"
    "</xref>]</p><table-wrap><caption><p>c</p></caption><tr><td>d</td></tr></table-wrap></sec>"
    "</body><back><p>e</p></back></article>"
)
_MAIL = (
    f"From: a@b\nSubject: =?utf-8?q?A?=\nContent-Type: multipart/mixed; boundary=x\n\n--x\n"
    f"Content-Type: text/plain; charset=utf-8\n\n{TEXT}\n> quoted\n-- \nA.\n--x\n"
    'Content-Type: text/html\nContent-Disposition: attachment; filename="a.html"\n'
    f"Content-Transfer-Encoding: base64\n\nPHA+YjwvcD4=\n--x--\n"
)


def _slack() -> bytes:
    messages = [
        {"type": "message", "user": "U1", "text": f"{TEXT} <@U2|b> :a:", "ts": "1.1"},
        {"type": "message", "user": "U2", "text": "<https://a.b|c>", "ts": "2", "thread_ts": "1.1"},
    ]
    users = [{"id": "U1", "real_name": "Ann"}, {"id": "U2", "profile": {"display_name": "Bo"}}]
    return _zip({"users.json": _json(users), "general/2024-01-02.json": _json(messages)})


def _document_seeds() -> list[Files]:
    subtitles = f"1\n00:00:01,000 --> 00:00:02,000\n<v Ann>{TEXT}\n"
    markdown = f"---\ntitle: A\n---\n# A\n\n{TEXT}\n\n* b\n\n| a | b |\n|---|---|\n| c | d |\n"
    structured = f":Author: A\n\nHead\n====\n\n{TEXT} [1]_ :a:`b <c>` ``d`` **e**\n\n.. [1] f\n\n"
    structured += f".. note:: {TEXT}\n\n.. code:: a\n\n   b\n\n>>> c\n\n=== ===\nd   e\n=== ===\n"
    rows = b"".join(_json({"text": TEXT, "id": i, "query": "a"}) + b"\n" for i in range(2))
    plain = TEXT.encode()
    documents = {
        "a.txt": plain,
        "b.txt": TEXT.encode("utf-16"),
        "a.md": f"{markdown}\n```\ncode\n```\n[a](b) ![c](d) **e** `f`\n> g\n".encode(),
        "a.ipynb": _json({"cells": [{"cell_type": "markdown", "source": [markdown]}]}),
        "a.rst": structured.encode(),
        "a.html": _PAGE.encode(),
        "a.xml": _ARTICLE.encode(),
        "a.pdf": _pdf(),
        "a.epub": _epub(),
        "a.docx": _docx(),
        "a.odt": _odt(),
        "a.pptx": _pptx(),
        "a.xlsx": _xlsx(),
        "a.rtf": rb"{\rtf1\ansi{\fonttbl{\f0 A;}} Some {\b words} \'e9 \u8364? \par \bin3 abc}",
        "a.srt": subtitles.encode(),
        "a.vtt": f"WEBVTT\n\n{subtitles}".encode(),
        "a.eml": _MAIL.encode(),
        "a.mht": _MAIL.replace("attachment", "inline").encode(),
        "a.mbox": f"From a@b Mon\n{_MAIL}\nFrom a@b Tue\n{_MAIL}".encode(),
        "a.jsonl": rows,
        "a.json": _json([{"text": TEXT}]),
        "a.csv": f'id,text\n1,"{TEXT}"\n'.encode(),
        "a.tsv": f"id\ttext\n1\t{TEXT}\n".encode(),
        "a.parquet": _parquet(),
        "a.txt.gz": gzip.compress(plain, mtime=0),
        "a.txt.xz": lzma.compress(plain),
        "a.txt.bz2": bz2.compress(plain),
        "a.txt.zst": import_zstd("a.txt.zst").compress(plain),
        "a.zip": _zip({"a.txt": TEXT, "b/c.zip": _zip({"d.html": _PAGE})}),
        "slack.zip": _slack(),
        "a.tar": tar({"a.txt": plain, "b.md": markdown.encode()}),
    }
    return [{name: content} for name, content in documents.items()]


def _read_documents(folder: Path) -> None:
    from longsum_jax.readers import ReadOptions, read_documents

    # The child process would report an unexpected exception as a file that cannot be read.
    list(read_documents(folder, options=ReadOptions(sandbox=False)))


READERS: dict[str, Reader] = {
    "config": Reader(_config_seeds, _read_config),
    "weights": Reader(_weight_seeds, _read_weights),
    "index": Reader(_index_seeds, _read_weights),
    "pickle": Reader(_torch_seeds, _read_weights),
    "checkpoint": Reader(_checkpoint_seeds, _read_checkpoint),
    "tokenizer": Reader(_tokenizer_seeds, _read_tokenizer),
    "sentencepiece": Reader(_sentencepiece_seeds, _read_tokenizer),
    "rows": Reader(_row_seeds, _read_rows),
    "predictions": Reader(_prediction_seeds, _read_predictions),
    "scrolls": Reader(_scrolls_seeds, _read_scrolls),
    "metadata": Reader(_metadata_seeds, _read_metadata),
    "sums": Reader(_sums_seeds, _read_sums),
    "documents": Reader(_document_seeds, _read_documents),
}
