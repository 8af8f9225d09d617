import json
import logging

import pytest
import sentencepiece

from longsum_jax.errors import InputError
from longsum_jax.tokenizers.loading import ByteTokenizer, SentencePieceTokenizer, load_tokenizer
from longsum_jax.tokenizers.train import train_sentencepiece

TEXT = 'The "for" statement\nis used  to iterate; naïve, ﬁne, 中文, 😀.'


@pytest.fixture(scope="module")
def model_file(tiny_tokenizer, tmp_path_factory):
    """A directory as `save` writes it; returns the path of its model."""
    directory = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer.save(directory)
    return directory / "spiece.model"


@pytest.fixture(scope="module")
def processor(model_file):
    """The sentencepiece package itself, on the same model."""
    return sentencepiece.SentencePieceProcessor(model_file=str(model_file))


def write_tokenizer_json(path, processor, extra_ids=0, steps=None, **changes):
    """Writes a model as transformers 5 does: pieces and scores, without spiece.model."""
    vocab = [
        [processor.id_to_piece(i), processor.get_score(i)]
        for i in range(processor.get_piece_size())
    ]
    vocab += [[f"<extra_id_{i}>", 0.0] for i in reversed(range(extra_ids))]
    model = {"type": "Unigram", "unk_id": 2, "vocab": vocab, "byte_fallback": True}
    content = {"normalizer": None, **(steps or {}), "model": model | changes}
    path.write_text(json.dumps(content))


def test_ids_follow_t5(tiny_tokenizer):
    assert (tiny_tokenizer.pad_id, tiny_tokenizer.eos_id, tiny_tokenizer.unk_id) == (0, 1, 2)
    assert tiny_tokenizer.num_pieces == 1000
    assert tiny_tokenizer.vocab_size == 1010


def test_encode_equals_sentencepiece(tiny_tokenizer, processor, topics):
    for text in ["", " ", TEXT, *topics[:10]]:
        assert tiny_tokenizer.encode(text) == processor.encode(text)


def test_encode_batch_equals_one_by_one(tiny_tokenizer, topics):
    for texts in [[], topics[:5], [*topics[:5], "a <extra_id_3> b"]]:
        assert tiny_tokenizer.encode_batch(texts) == [tiny_tokenizer.encode(text) for text in texts]


def test_byte_fallback_keeps_unknown_characters(tiny_tokenizer):
    ids = tiny_tokenizer.encode("中😀")
    assert tiny_tokenizer.unk_id not in ids
    assert tiny_tokenizer.decode(ids) == "中😀"


def test_sentinels_are_numbered_from_the_last_row(tiny_tokenizer, processor):
    ids = tiny_tokenizer.encode("The <extra_id_0> value <extra_id_9>.")
    pieces = [processor.encode(part) for part in ("The", "value", ".")]
    assert ids == [*pieces[0], 1009, *pieces[1], 1000, *pieces[2]]


def test_sentinels_beyond_the_extra_ids_are_text(tiny_tokenizer, processor):
    text = "The <extra_id_10> value"
    assert tiny_tokenizer.encode(text) == processor.encode(text)


def test_decode_skips_what_is_not_text(model_file):
    tokenizer = SentencePieceTokenizer(model_file, extra_ids=10, unused_ids=5)
    ids = tokenizer.encode("The <extra_id_1> value")
    assert tokenizer.decode([0, *ids, 1014, 1, 0]) == "The value"


def test_ten_megabytes_on_one_line_encode(tiny_tokenizer):
    once = tiny_tokenizer.encode("a list of values, ")
    assert tiny_tokenizer.encode("a list of values, " * 555_556) == once * 555_556


def test_fingerprint_tells_tokenizers_apart(tiny_tokenizer, model_file):
    same = SentencePieceTokenizer(model_file.read_bytes(), extra_ids=10)
    others = [SentencePieceTokenizer(model_file, extra_ids=9), ByteTokenizer(), ByteTokenizer(1)]
    assert same.fingerprint == tiny_tokenizer.fingerprint
    assert len({same.fingerprint, *(other.fingerprint for other in others)}) == 4


def test_training_is_deterministic(topics):
    first = train_sentencepiece(topics[:20], 500, max_sentences=50, seed=3)
    assert (
        first.fingerprint
        == train_sentencepiece(topics[:20], 500, max_sentences=50, seed=3).fingerprint
    )
    assert (
        first.fingerprint
        != train_sentencepiece(topics[:20], 500, max_sentences=50, seed=4).fingerprint
    )


def test_training_on_a_small_corpus_lowers_the_vocabulary(caplog):
    with caplog.at_level(logging.WARNING):
        tokenizer = train_sentencepiece(["hello world", "hello you"], 5000)
    assert 259 < tokenizer.vocab_size < 300
    assert f"{tokenizer.num_pieces} of the 5000 requested pieces" in caplog.text


@pytest.mark.parametrize("texts", [[], ["", " \n"], ["\0"]])
def test_training_without_text(texts):
    with pytest.raises(InputError, match="the texts are empty"):
        train_sentencepiece(texts, 1000)


def test_training_with_a_vocabulary_below_the_characters():
    with pytest.raises(
        InputError, match=r"vocab_size=100 is too small for the texts; give at least \d+"
    ):
        train_sentencepiece(["hello world"], 100)


def test_bytes_follow_byt5():
    tokenizer = ByteTokenizer(extra_ids=125)
    assert tokenizer.vocab_size == 384
    assert tokenizer.encode("aé<extra_id_0>b<extra_id_124>") == [100, 198, 172, 259, 101, 383]
    assert tokenizer.encode_batch(["a", ""]) == [[100], []]
    assert tokenizer.decode([0, 100, 198, 172, 259, 101, 1]) == "aéb"
    assert tokenizer.decode([198]) == ""


@pytest.mark.parametrize("bad", [-1, 1010])
def test_decode_of_ids_out_of_range(tiny_tokenizer, bad):
    with pytest.raises(InputError, match=f"token id {bad} lies outside the tokenizer's 1010 ids"):
        tiny_tokenizer.decode([5, bad])
    with pytest.raises(InputError, match="token id 259 lies outside"):
        ByteTokenizer().decode([259])


@pytest.mark.parametrize(
    ("rows", "extra_ids", "unused_ids"),
    [(None, 0, 0), (1000, 0, 0), (1040, 40, 0), (1100, 100, 0), (1128, 100, 28)],
)
def test_rows_of_the_checkpoint_decide_the_extra_ids(model_file, rows, extra_ids, unused_ids):
    tokenizer = load_tokenizer(model_file, vocab_size=rows)
    assert (tokenizer.extra_ids, tokenizer.unused_ids) == (extra_ids, unused_ids)
    assert tokenizer.vocab_size == (rows or 1000)


def test_rows_of_the_checkpoint_and_bytes():
    assert load_tokenizer("bytes").vocab_size == 259
    tokenizer = load_tokenizer("bytes", vocab_size=400)
    assert (tokenizer.extra_ids, tokenizer.unused_ids, tokenizer.vocab_size) == (125, 16, 400)


def test_fewer_rows_than_pieces(model_file):
    with pytest.raises(
        InputError, match=r"spiece\.model: the tokenizer has 1000 pieces but .* 999 embedding rows"
    ):
        load_tokenizer(model_file, vocab_size=999)
    with pytest.raises(InputError, match="259 pieces but the checkpoint 256"):
        load_tokenizer("bytes", vocab_size=256)


@pytest.mark.parametrize(
    "make", [lambda m: SentencePieceTokenizer(m, 7, 3), lambda m: ByteTokenizer(7, 3)]
)
def test_save_and_load(model_file, tmp_path, make):
    tokenizer = make(model_file)
    tokenizer.save(tmp_path / "new" / "folder")
    loaded = load_tokenizer(tmp_path / "new" / "folder")
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.vocab_size == tokenizer.vocab_size
    assert loaded.encode(TEXT + "<extra_id_6>") == tokenizer.encode(TEXT + "<extra_id_6>")


def test_saved_config_names_what_transformers_needs(model_file, tmp_path):
    SentencePieceTokenizer(model_file, 2).save(tmp_path)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text()) == {
        "tokenizer_class": "T5Tokenizer",
        "extra_ids": 2,
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    special = json.loads((tmp_path / "special_tokens_map.json").read_text())
    assert special["additional_special_tokens"] == ["<extra_id_0>", "<extra_id_1>"]


def test_a_directory_with_a_model_alone_has_t5s_extra_ids(model_file, tmp_path):
    (tmp_path / "spiece.model").write_bytes(model_file.read_bytes())
    assert load_tokenizer(tmp_path).vocab_size == 1100
    assert load_tokenizer(tmp_path, vocab_size=1000).vocab_size == 1000


def test_a_directory_with_tokenizer_json_alone(tiny_tokenizer, processor, tmp_path):
    write_tokenizer_json(tmp_path / "tokenizer.json", processor, extra_ids=10)
    tokenizer = load_tokenizer(tmp_path, vocab_size=1012)
    assert (tokenizer.num_pieces, tokenizer.extra_ids, tokenizer.unused_ids) == (1000, 10, 2)
    text = "The for statement is used to iterate; naïve, 中文 <extra_id_4>."
    ids = tokenizer.encode(text)
    assert ids == tiny_tokenizer.encode(text)
    assert tokenizer.decode(ids) == tiny_tokenizer.decode(ids)


@pytest.mark.parametrize("space", [" ", "▁"])
def test_steps_of_sentencepiece_in_a_tokenizer_json(tiny_tokenizer, processor, tmp_path, space):
    """As releases of transformers before 5 wrote them."""
    squeezing = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": space}
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    spaces = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
    steps = {
        "normalizer": {"type": "Sequence", "normalizers": [strip, squeezing]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [spaces]},
    }
    write_tokenizer_json(tmp_path / "tokenizer.json", processor, 10, steps)
    tokenizer = load_tokenizer(tmp_path)
    assert isinstance(tokenizer, SentencePieceTokenizer)
    text = "The  for statement is  used <extra_id_4>."
    assert tokenizer.encode(text) == tiny_tokenizer.encode(text)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not a readable tokenizer.json"),
        ("[]", "not a readable tokenizer.json"),
        ('{"model": {"type": "BPE"}}', "not a readable tokenizer.json"),
        (
            '{"model": {"type": "Unigram", "vocab": [["a", 0]]}}',
            "no pad_token in the vocabulary; name it as",
        ),
        (
            '{"normalizer": {"type": "Precompiled", "precompiled_charsmap": "%"},'
            ' "model": {"type": "Unigram", "vocab": []}}',
            "precompiled_charsmap",
        ),
    ],
)
def test_a_bad_tokenizer_json(tmp_path, content, problem):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match=problem):
        load_tokenizer(tmp_path)


def test_missing_tokenizer(tmp_path):
    with pytest.raises(
        InputError, match=r"none\.model: cannot read the tokenizer file .*; check the path"
    ):
        load_tokenizer(tmp_path / "none.model")
    with pytest.raises(
        InputError, match=r"no tokenizer there; put spiece\.model, sentencepiece\.bpe\.model or"
    ):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 4, b'{"a": 1}'])
def test_corrupt_model(tmp_path, content):
    path = tmp_path / "spiece.model"
    path.write_bytes(content)
    for place in (path, tmp_path):
        with pytest.raises(
            InputError, match=r"spiece\.model: not a SentencePiece model, or a damaged one"
        ):
            load_tokenizer(place)


def test_truncated_model(model_file, tmp_path):
    path = tmp_path / "cut.model"
    path.write_bytes(model_file.read_bytes()[:5000])
    with pytest.raises(InputError, match=r"cut\.model: not a SentencePiece model"):
        SentencePieceTokenizer(path)


def test_model_without_padding(tmp_path):
    prefix = str(tmp_path / "no_pad")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["hello world"] * 10),
        model_prefix=prefix,
        vocab_size=20,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    problem = r"no_pad\.model: the SentencePiece model has no pad piece"
    for load in (SentencePieceTokenizer, load_tokenizer):
        with pytest.raises(InputError, match=problem):
            load(f"{prefix}.model")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected a JSON object, got list"),
        (
            '{"tokenizer_class": "T6Tokenizer"}',
            'tokenizer_class "T6Tokenizer" is supported with a tokenizer.json only',
        ),
        ('{"extra_ids": -1}', "extra_ids must be a whole number up to 65536, got -1"),
        ('{"extra_ids": "many"}', "extra_ids must be a whole number up to 65536, got 'many'"),
    ],
)
def test_bad_tokenizer_config(model_file, tmp_path, config, problem):
    (tmp_path / "spiece.model").write_bytes(model_file.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(InputError, match=rf"tokenizer_config\.json: {problem}"):
        load_tokenizer(tmp_path)


@pytest.mark.shared_data
def test_t5_vocabulary(shared_data):
    path = shared_data / "tokenizers" / "t5-base.spiece.model"
    tokenizer = load_tokenizer(path, vocab_size=32128)
    assert (tokenizer.num_pieces, tokenizer.extra_ids, tokenizer.unused_ids) == (32000, 100, 28)
    # as T5Tokenizer of transformers 4.57 and 5.23 encodes it, end token aside
    expected = [8774, 32099, 296, 32000, 3, 5]
    assert tokenizer.encode("Hello<extra_id_0>world <extra_id_99>.") == expected


@pytest.mark.shared_data
def test_a_whole_book_encodes(shared_data):
    import lzma

    with lzma.open(shared_data / "longbooks" / "books.jsonl.xz", "rt") as stream:
        books = {row["id"]: row["text"] for row in map(json.loads, stream)}
    tokenizer = load_tokenizer(shared_data / "tokenizers" / "t5-base.spiece.model")
    assert len(tokenizer.encode(books["war_and_peace"])) == 824_919
