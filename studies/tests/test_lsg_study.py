"""Masked language models after conversion, beside published ones that are read as they are."""

import io
import json
import math
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import longsum_jax

SIZES = {
    "vocab_size": 500,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
SHORT, LONG = 32, 64


@pytest.fixture(scope="module")
def pieces(topics):
    """A vocabulary of BigBird's kind."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in topics[:20] for line in text.split("\n") if line]),
        model_writer=model,
        vocab_size=500,
        minloglevel=2,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def byte_pairs(topics):
    """Files of a vocabulary of Longformer's and RoBERTa's kind."""
    import tokenizers

    alphabet = tokenizers.pre_tokenizers.ByteLevel
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = alphabet(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=alphabet.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(topics[:10], trainer)
    model = json.loads(library.to_str())["model"]
    merges = "".join(" ".join(pair) + "\n" for pair in model["merges"])
    return {"vocab.json": json.dumps(model["vocab"]), "merges.txt": "#version: 0.2\n" + merges}


@pytest.fixture(scope="module")
def models(tmp_path_factory, pieces, byte_pairs):
    """Random models as transformers writes them: name -> (model, its directory)."""
    import torch
    import transformers as tf

    kinds = {
        "roberta": (tf.RobertaForMaskedLM, tf.RobertaConfig, {"max_position_embeddings": 514}),
        "longformer": (
            tf.LongformerForMaskedLM,
            tf.LongformerConfig,
            {"max_position_embeddings": LONG + 2, "attention_window": [8], "pad_token_id": 1},
        ),
        "big_bird": (
            tf.BigBirdForMaskedLM,
            tf.BigBirdConfig,
            {"max_position_embeddings": LONG, "block_size": 4, "num_random_blocks": 1},
        ),
    }
    made = {}
    for name, (model_class, config_class, options) in kinds.items():
        torch.manual_seed(0)
        model = model_class(config_class(**SIZES, **options, initializer_range=0.5)).eval()
        directory = tmp_path_factory.mktemp(name)
        model.save_pretrained(directory)
        files = {"spiece.model": pieces} if name == "big_bird" else byte_pairs
        for file, content in files.items():
            content = content.encode() if isinstance(content, str) else content
            (directory / file).write_bytes(content)
        made[name] = model, directory
    return made


@pytest.fixture
def flags(models, topics, tmp_path):
    for split, texts in (("train", topics[:3]), ("test", topics[3:9])):
        lines = [json.dumps({"document": text}) + "\n" for text in texts]
        (tmp_path / f"{split}.jsonl").write_text("".join(lines))
    return [
        "masked_lm",
        f"--model={models['roberta'][1]}",
        f"--train={tmp_path / 'train.jsonl'}",
        f"--documents={tmp_path / 'test.jsonl'}",
        f"--work={tmp_path / 'work'}",
        f"--lengths={SHORT},{LONG}",
        "--count=2",
        "--variants=full",
    ]


def bits_in_transformers(study, model, ours, texts):
    """Bits per hidden token of the same texts under the same masks."""
    import torch

    total, count = 0.0, 0
    for number, text in enumerate(texts):
        key = jax.random.fold_in(jax.random.key(0), number)
        inputs, labels = study.closed(ours, *study.hide(ours, key, np.array([text], np.int32)))
        with torch.no_grad():
            out = model(input_ids=torch.tensor(np.asarray(inputs)).long())
        log_probs = torch.log_softmax(out.logits.double(), -1)[0].numpy()
        for place, label in enumerate(np.asarray(labels)[0]):
            if label >= 0:
                total -= log_probs[place, label]
                count += 1
    assert count > 5
    return total / count / math.log(2)


@pytest.mark.slow
def test_published_models_are_read_as_they_are(
    models, flags, scripts, report, tmp_path, monkeypatch
):
    study = scripts("lsg_study")
    monkeypatch.setattr(study, "SHORT", SHORT)
    paths = [models[name][1] for name in ("longformer", "big_bird")]
    flags += ["--steps=21", "--fine_tuning_steps=0", f"--checkpoints={paths[0]},{paths[1]}"]
    rows = report("lsg_study", *flags)["rows"]
    variants = ["original, in chunks of 512", "full", *map(str, paths)]
    expected = [(variant, length) for variant in variants for length in (SHORT, LONG)]
    assert [(row["variant"], row["length"]) for row in rows] == expected
    for name, row in zip(("longformer", "big_bird"), (rows[5], rows[7]), strict=True):
        model, directory = models[name]
        ours = longsum_jax.load(directory)
        texts = study.long_texts(ours, str(tmp_path / "test.jsonl"), 2, LONG - 2)
        result = bits_in_transformers(study, model, ours, texts)
        assert row["bits"] == pytest.approx(result, rel=1e-4)
    # Started again it reads what is there.
    monkeypatch.setattr(study, "scores", None)
    assert report("lsg_study", *flags)["rows"] == rows


def test_documents_that_are_too_short(scripts, tmp_path):
    (tmp_path / "short.jsonl").write_text(json.dumps({"document": "It rains."}) + "\n")
    words = SimpleNamespace(tokenizer=SimpleNamespace(encode=str.split))
    with pytest.raises(SystemExit, match=r"short.jsonl: none has 62 tokens of this model; give"):
        scripts("lsg_study").long_texts(words, str(tmp_path / "short.jsonl"), 1, LONG - 2)


@pytest.mark.slow
def test_all_rows_of_table_1_by_one_command(models, flags, scripts, tmp_path):
    """On a model that the command names, which is not trained."""
    paper = scripts("paper")
    documents = tmp_path / "test.jsonl"
    own = [flags[1], f"--documents={documents}"]
    paper.main(["lsg_table_1", "--scale=tiny", f"--workdir={tmp_path}", *own])
    rows = json.loads((tmp_path / "tiny" / "lsg_table_1.json").read_text())["rows"]
    selections = ("norm", "stride", "block_stride", "pooling", "lsh")
    kernels = ("linear", "efficient", "performer", "linformer", "reformer")
    attentions = ["full", *kernels, "longformer", "bigbird"]
    attentions += [f"128/2 {selection}" for selection in selections]
    variants = ["original, in chunks of 512", *attentions]
    assert [row["variant"] for row in rows[::2]] == variants
    assert {row["length"] for row in rows} == {512, 1024}
    bits = {(row["variant"], row["length"]): row["bits"] for row in rows}
    assert len(set(bits.values())) > len(selections) + len(kernels)
    # Full attention, and BigBird's over a short text, are the model itself.
    original = bits["original, in chunks of 512", 512]
    assert bits["full", 512] == pytest.approx(original, rel=1e-5)
    assert bits["bigbird", 512] == pytest.approx(original, rel=1e-5)
    assert not any("fine_tuned" in key for row in rows for key in row)
    study, (model, directory) = scripts("lsg_study"), models["roberta"]
    ours = longsum_jax.load(directory)
    [text] = study.long_texts(ours, str(documents), 1, 1022)
    expected = bits_in_transformers(study, model, ours, [text[:510]])
    assert original == pytest.approx(expected, rel=1e-4)


def test_peers_have_the_options_of_their_length(scripts):
    study = scripts("lsg_study")
    assert study.peer_options("linformer", 4096)["linformer_max_length"] == 4096
    assert study.peer_options("linformer", 512)["linformer_size"] == 128
    buckets = [study.peer_options("reformer", n)["lsh_num_buckets"] for n in (64, 512, 4096)]
    assert buckets == [2, 16, 128]
    assert study.peer_options("linear", 512) == {"encoder_attention": "linear"}


def test_a_model_without_a_head_is_refused(scripts, monkeypatch):
    study = scripts("lsg_study")
    headless = SimpleNamespace(config=SimpleNamespace(head="encoder"))
    monkeypatch.setattr(study.longsum_jax, "load", lambda path: headless)
    args = SimpleNamespace(steps=0, model="minilm")
    with pytest.raises(SystemExit, match="--model=minilm is not a masked language model; give one"):
        study.original_model(args)


@pytest.mark.parametrize(
    ("flag", "problem"),
    [("--steps=0", "need --train, or give 0"), ("--train=a.jsonl", "--steps needs --work")],
)
def test_training_needs_its_files(scripts, monkeypatch, capsys, flag, problem):
    flags = ["lsg_study.py", "masked_lm", "--model=m", "--documents=d.jsonl", flag]
    monkeypatch.setattr(sys, "argv", flags)
    with pytest.raises(SystemExit):
        scripts("lsg_study").main()
    assert problem in capsys.readouterr().err
