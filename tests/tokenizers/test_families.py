"""Tokenizers of BART, BERT and PEGASUS, against ids that transformers 5.23 gave for the same small
vocabularies."""

import io
import json
import os
import subprocess
import sys

import pytest
import sentencepiece
import tokenizers

from longsum_jax.errors import InputError
from longsum_jax.tokenizers.files import ADDITIONAL_SPECIAL, SPECIAL_NAMES
from longsum_jax.tokenizers.loading import (
    ByteTokenizer,
    JsonTokenizer,
    PegasusTokenizer,
    SentencePieceTokenizer,
    has_tokenizer,
    load_tokenizer,
)

ALPHABET = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "Ġ hello", "Ã ©"]
BYTE_PAIRS = [
    "<s>",
    "<pad>",
    "</s>",
    "<unk>",
    *ALPHABET,
    *(merge.replace(" ", "") for merge in MERGES),
    "<mask>",
]
WORD_PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] hello world wor ##ld ##s , e é He"


def write(directory, **files):
    directory.mkdir(exist_ok=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (directory / name.replace("__", ".")).write_text(text)
    return directory


@pytest.fixture
def byte_pairs(tmp_path):
    vocabulary = {piece: index for index, piece in enumerate(BYTE_PAIRS)}
    merges = "#version: 0.2\n" + "\n".join(MERGES) + "\n"
    return lambda **files: write(
        tmp_path / "bart", vocab__json=vocabulary, merges__txt=merges, **files
    )


@pytest.fixture
def word_pieces(tmp_path):
    return lambda **files: write(
        tmp_path / "bert", vocab__txt=WORD_PIECES.replace(" ", "\n") + "\n", **files
    )


@pytest.fixture(scope="module")
def pegasus_model(topics):
    """A model with pieces where PEGASUS has them: padding, end, unknown, then text, `<n>` and
    `[MASK]` among it."""
    return train_pegasus(topics[:40])


def train_pegasus(texts, **changes):
    model = io.BytesIO()
    options = {
        "vocab_size": 600,
        "pad_id": 0,
        "eos_id": 1,
        "unk_id": 2,
        "bos_id": -1,
        "minloglevel": 2,
    } | changes
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in texts for line in text.splitlines() if line]),
        model_writer=model,
        user_defined_symbols=["<n>", "[MASK]"],
        **options,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def pegasus(pegasus_model):
    return PegasusTokenizer(pegasus_model)


@pytest.fixture(scope="module")
def pegasus_processor(pegasus_model):
    return sentencepiece.SentencePieceProcessor(model_proto=pegasus_model)


# BART, LED, RoBERTa


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("hello wo hello", [263, 265, 266]),
        (" hello  wo\n", [266, 224, 265, 202]),
        ("é<mask> </s>x", [267, 268, 224, 2, 91]),
        ("😀", [176, 257, 250, 226]),
        ("", []),
    ],
)
def test_byte_pairs(byte_pairs, text, ids):
    tokenizer = load_tokenizer(byte_pairs())
    assert tokenizer.encode(text) == ids
    assert tokenizer.add_special_tokens(ids) == [0, *ids, 2]
    assert tokenizer.decode([1, 0, *ids, 2, 1]) == text.replace("<mask>", "").replace("</s>", "")
    assert tokenizer.encode_batch([text, "x"]) == [ids, [91]]


def test_ids_of_byte_pairs(byte_pairs):
    tokenizer = load_tokenizer(byte_pairs())
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.mask_id) == (
        1,
        2,
        3,
        268,
    )
    assert tokenizer.vocab_size == len(BYTE_PAIRS) == 269


def test_special_tokens_with_flags_and_other_names(byte_pairs):
    mask = {
        "content": "<mask>",
        "lstrip": True,
        "rstrip": False,
        "normalized": False,
        "single_word": False,
    }
    named = byte_pairs(
        special_tokens_map__json={"mask_token": mask, "pad_token": {"content": "hello"}}
    )
    tokenizer = load_tokenizer(named)
    assert tokenizer.encode("x  <mask> wo") == [91, 268, 265]  # the mask takes the spaces before it
    assert (tokenizer.pad_id, tokenizer.mask_id) == (263, 268)


def test_added_tokens_follow_the_vocabulary(byte_pairs):
    tokenizer = load_tokenizer(byte_pairs(added_tokens__json={"<b>": 270, "<a>": 269}))
    assert tokenizer.encode("wo<b><a>") == [90, 82, 270, 269]
    assert tokenizer.decode([269, 91]) == "<a>x"  # added, but no special token
    assert tokenizer.vocab_size == 271


# BERT


@pytest.mark.parametrize(
    ("config", "text", "ids"),
    [
        ({}, "Hello, worlds É x", [5, 10, 6, 9, 11, 1]),
        ({}, "He[MASK]\nhello [SEP]", [1, 4, 5, 3]),
        ({}, " 中 ", [1]),
        ({"do_lower_case": False}, "Hello, worlds É x", [1, 10, 6, 9, 1, 1]),
        ({"do_lower_case": False}, "He[MASK]\nhello [SEP]", [13, 4, 5, 3]),
        ({"strip_accents": False}, "Hello, worlds É x", [5, 10, 6, 9, 12, 1]),
    ],
)
def test_word_pieces(word_pieces, config, text, ids):
    tokenizer = load_tokenizer(
        word_pieces(tokenizer_config__json={"tokenizer_class": "BertTokenizer", **config})
    )
    assert tokenizer.encode(text) == ids
    assert tokenizer.add_special_tokens(ids) == [2, *ids, 3]


def test_ids_of_word_pieces(word_pieces):
    tokenizer = load_tokenizer(word_pieces())
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.mask_id) == (0, 3, 1, 4)
    assert tokenizer.decode([2, 5, 10, 6, 9, 1, 4, 3, 0]) == "hello, worlds"


# Both


@pytest.mark.parametrize("family", ["byte_pairs", "word_pieces"])
def test_save_and_load(request, family, tmp_path):
    tokenizer = load_tokenizer(request.getfixturevalue(family)(), vocab_size=300)
    tokenizer.save(tmp_path / "new" / "folder")
    loaded = load_tokenizer(tmp_path / "new" / "folder")
    assert loaded.fingerprint == tokenizer.fingerprint
    assert (loaded.vocab_size, loaded.mask_id) == (300, tokenizer.mask_id)
    text = "Hello wo<mask>[MASK] é"
    assert loaded.add_special_tokens(loaded.encode(text)) == tokenizer.add_special_tokens(
        tokenizer.encode(text)
    )
    assert load_tokenizer(tmp_path / "new" / "folder", vocab_size=310).vocab_size == 310


def test_saved_files_keep_the_class_and_leave_paths_behind(word_pieces, tmp_path):
    config = {
        "tokenizer_class": "DistilBertTokenizer",
        "name_or_path": "/home/me",
        "do_lower_case": False,
    }
    load_tokenizer(word_pieces(tokenizer_config__json=config)).save(tmp_path / "out")
    saved = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert saved["tokenizer_class"] == "DistilBertTokenizer"
    assert saved["do_lower_case"] is False
    assert "name_or_path" not in saved
    special = json.loads((tmp_path / "out" / "special_tokens_map.json").read_text())
    assert special["mask_token"] == "[MASK]"


def test_truncation_and_padding_of_the_file_are_switched_off(byte_pairs, tmp_path):
    load_tokenizer(byte_pairs()).save(tmp_path / "out")
    path = tmp_path / "out" / "tokenizer.json"
    library = tokenizers.Tokenizer.from_file(str(path))
    library.enable_truncation(4)
    library.enable_padding(length=8, pad_id=1)
    library.save(str(path))
    tokenizer = load_tokenizer(tmp_path / "out")
    assert tokenizer.encode("hello" * 9) == [263] * 9
    assert tokenizer.encode_batch(["hello", "hellohello"]) == [[263], [263, 263]]


def test_unused_rows_decode_to_nothing(byte_pairs):
    tokenizer = load_tokenizer(byte_pairs(), vocab_size=280)
    assert tokenizer.decode([263, 279]) == "hello"
    with pytest.raises(InputError, match="token id 280 lies outside the tokenizer's 280 ids"):
        tokenizer.decode([280])


def test_a_checkpoint_without_a_row_for_the_mask(byte_pairs):
    tokenizer = load_tokenizer(byte_pairs(), vocab_size=268)  # as facebook/bart-large-cnn
    assert (tokenizer.vocab_size, tokenizer.mask_id) == (268, None)
    assert tokenizer.encode("x<mask>") == [91, tokenizer.unk_id]
    with pytest.raises(
        InputError, match=r"vocab\.json: the tokenizer has 269 pieces but the checkpoint 267"
    ):
        load_tokenizer(byte_pairs(), vocab_size=267)


def test_fingerprints_tell_tokenizers_apart(byte_pairs, word_pieces, pegasus_model):
    made = [
        load_tokenizer(byte_pairs()),
        load_tokenizer(byte_pairs(), vocab_size=300),
        load_tokenizer(byte_pairs(tokenizer_config__json={"add_prefix_space": True})),
        load_tokenizer(word_pieces()),
        load_tokenizer(word_pieces(tokenizer_config__json={"do_lower_case": False})),
        PegasusTokenizer(pegasus_model),
        PegasusTokenizer(pegasus_model, offset=0),
        SentencePieceTokenizer(pegasus_model),
    ]
    assert len({tokenizer.fingerprint for tokenizer in made}) == len(made)
    assert load_tokenizer(byte_pairs(tokenizer_config__json={})).fingerprint == made[0].fingerprint


def test_forking_after_a_batch_is_silent(byte_pairs):
    script = (
        "import os, sys\n"
        "from longsum_jax.tokenizers.loading import load_tokenizer\n"
        "tokenizer = load_tokenizer(sys.argv[1])\n"
        "tokenizer.encode_batch(['hello wo'] * 100)\n"
        "child = os.fork()\n"
        "ids = tokenizer.encode('hello wo')\n"
        "if child: os.waitpid(child, 0)\n"
        "sys.exit(ids != [263, 265])\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, str(byte_pairs())]
    environment = {
        name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


# PEGASUS


def test_pegasus_counts_from_its_offset(pegasus, pegasus_processor, topics):
    for text in ["", " ", 'The "for" statement\nis  used; naïve, 中文.', *topics[:10]]:
        assert pegasus.encode(text) == [piece + 103 for piece in pegasus_processor.encode(text)]
    assert pegasus.encode_batch(topics[:3]) == [pegasus.encode(text) for text in topics[:3]]
    assert (pegasus.pad_id, pegasus.eos_id, pegasus.unk_id, pegasus.mask_id) == (0, 1, 105, 3)
    assert pegasus.vocab_size == 703
    assert pegasus.add_special_tokens([9, 9]) == [9, 9, 1]


def test_special_tokens_of_pegasus(pegasus, pegasus_processor):
    the = [piece + 103 for piece in pegasus_processor.encode("the")]
    text = "the <mask_1><mask_2> the <unk_2>the<unk_102></s> <pad><unk>"
    ids = pegasus.encode(text)
    assert ids == [*the, 2, 3, *the, 4, *the, 104, 1, 0, 105]
    assert pegasus.encode_batch([text, "the"]) == [ids, the]
    assert pegasus.decode(ids) == "the the the"
    assert pegasus.encode("<unk_103>") == [
        piece + 103 for piece in pegasus_processor.encode("<unk_103>")
    ]


def test_pegasus_breaks_lines_on_the_way_out(pegasus):
    ids = pegasus.encode("The value<n>is used <n> here")
    assert pegasus.decode(ids) == "The value\nis used\nhere"
    assert pegasus.encode("The value\nis") == pegasus.encode("The value is")


def test_t5_with_a_piece_for_line_breaks(pegasus_model, tiny_tokenizer):
    tokenizer = SentencePieceTokenizer(pegasus_model, extra_ids=2)
    assert tokenizer.decode(tokenizer.encode("The value<n>is used <n> here")) == (
        "The value\nis used\nhere"
    )
    text = "the < n > value"  # of a model without the piece, whatever it writes
    assert "\n" not in tiny_tokenizer.decode(tiny_tokenizer.encode(text))


def test_t5_reads_line_breaks_as_spaces(tiny_tokenizer):
    for line_break in ("\n", "\r\n", "\n\n", "\x85"):
        assert tiny_tokenizer.encode(f"the value{line_break}is") == tiny_tokenizer.encode(
            "the value is"
        )
    assert tiny_tokenizer.encode_batch(["a\x85b"]) == [tiny_tokenizer.encode("a b")]


def test_bigbird_pegasus_has_no_offset(pegasus_model, pegasus_processor):
    tokenizer = PegasusTokenizer(pegasus_model, offset=0)
    mask = pegasus_processor.piece_to_id("[MASK]")
    assert tokenizer.encode("the value") == pegasus_processor.encode("the value")
    assert (tokenizer.mask_id, tokenizer.vocab_size, tokenizer.unk_id) == (mask, 600, 2)
    assert tokenizer.decode([*tokenizer.encode("the [MASK] value"), 1]) == "the value"


@pytest.mark.parametrize(
    ("files", "offset"),
    [
        ({"tokenizer_config__json": {"tokenizer_class": "PegasusTokenizerFast"}}, 103),
        ({"tokenizer_config__json": {"tokenizer_class": "PegasusTokenizer", "offset": 0}}, 0),
        ({"tokenizer_config__json": {"offset": 50}}, 50),
        ({"config__json": {"model_type": "pegasus_x"}}, 103),
        ({"config__json": {"model_type": "bigbird_pegasus"}}, 0),
        (
            {
                "config__json": {"model_type": "bigbird_pegasus"},
                "tokenizer_config__json": {"offset": 103},
            },
            103,
        ),
    ],
)
def test_what_makes_a_directory_one_of_pegasus(pegasus_model, tmp_path, files, offset):
    write(tmp_path, **files)
    (tmp_path / "spiece.model").write_bytes(pegasus_model)
    tokenizer = load_tokenizer(tmp_path)
    assert isinstance(tokenizer, PegasusTokenizer)
    assert tokenizer.unk_id == 2 + offset
    assert load_tokenizer(tmp_path, vocab_size=800).vocab_size == 800
    tokenizer.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").fingerprint == tokenizer.fingerprint


def test_pegasus_and_the_rows_of_the_checkpoint(pegasus_model, tmp_path):
    PegasusTokenizer(pegasus_model, unused_ids=5).save(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.vocab_size == 708
    assert tokenizer.decode([707]) == ""
    with pytest.raises(
        InputError, match=r"spiece\.model: the tokenizer has 703 pieces but the checkpoint 702"
    ):
        load_tokenizer(tmp_path, vocab_size=702)


def test_models_that_pegasus_cannot_use(pegasus_model, topics):
    with pytest.raises(
        InputError, match="offset=1 leaves no room for <mask_1> and <mask_2>; give 0, or 2 and more"
    ):
        PegasusTokenizer(pegasus_model, offset=1)
    other = train_pegasus(topics[:5], pad_id=2, unk_id=0, vocab_size=300)
    with pytest.raises(
        InputError, match="pieces 0 and 1 of the model are <unk> and </s>; PEGASUS needs <pad> and"
    ):
        PegasusTokenizer(other)


# Special tokens around a text


def test_truncation_keeps_the_special_tokens(byte_pairs, pegasus):
    bart = load_tokenizer(byte_pairs())
    assert bart.add_special_tokens([5, 6, 7], 5) == [0, 5, 6, 7, 2]
    assert bart.add_special_tokens([5, 6, 7], 4) == [0, 5, 6, 2]
    assert bart.add_special_tokens([5, 6, 7], 2) == [0, 2]
    assert pegasus.add_special_tokens([5, 6, 7], 3) == [5, 6, 1]
    assert ByteTokenizer().add_special_tokens([5], 1) == [1]
    with pytest.raises(
        InputError, match="length 1 leaves no room for the 2 special tokens; give at least 2"
    ):
        bart.add_special_tokens([5], 1)


@pytest.mark.parametrize("room", range(12))
@pytest.mark.parametrize("lengths", [(3, 8), (8, 3), (5, 5), (0, 4)])
def test_pairs_are_cut_as_if_token_by_token(lengths, room):
    """Each token is taken from the longer text; of two equally long ones from the shorter one of
    the beginning."""
    retained = list(lengths)
    shorter = 0 if lengths[0] <= lengths[1] else 1
    while sum(retained) > room:
        longer = 1 - shorter if retained[1 - shorter] > retained[shorter] else shorter
        retained[longer] -= 1
    first, second = range(10, 10 + lengths[0]), range(30, 30 + lengths[1])
    pair = ByteTokenizer().join_pair(first, second, room + 2)
    ids = [*first[: retained[0]], 1, *second[: retained[1]], 1]
    assert pair.ids == ids
    assert pair.ids[pair.second] == list(second[: retained[1]])
    assert pair.token_type_ids == [0] * len(ids)


@pytest.mark.parametrize(
    ("limit", "truncation", "problem"),
    [
        (1, "longest", "length 1 leaves no room for two texts; give at least 2"),
        (5, "second", "length 5 leaves no room for two texts; give at least 6"),
        (9, "first", 'truncation "first" is unknown'),
    ],
)
def test_pairs_without_room(limit, truncation, problem):
    with pytest.raises(InputError, match=problem):
        ByteTokenizer().join_pair([5, 6, 7], [8, 9, 10], limit, truncation)


@pytest.mark.parametrize("name", ["bytes", "tiny", "pegasus"])
def test_places_of_tokens(name, tiny_tokenizer, pegasus):
    """The text of a token, decoded by itself, stands at its place."""
    tokenizer = {"bytes": ByteTokenizer(5), "tiny": tiny_tokenizer, "pegasus": pegasus}[name]
    text = "Every name </s>is bound,  to objects\x85and: the values</s>."
    ids, spans = tokenizer.encode(text), tokenizer.spans(text)
    assert len(ids) == len(spans)
    for index, (start, end) in zip(ids, spans, strict=True):
        if index not in (tokenizer.eos_id, tokenizer.unk_id):
            assert tokenizer.decode([index]).strip() == text[start:end].replace("\x85", " ").strip()
    assert [text[start:end] for start, end in spans].count("</s>") == 2
    covered = {place for span in spans for place in range(*span)}
    assert all(i in covered or character.isspace() for i, character in enumerate(text))
    assert ByteTokenizer().spans("é</s>a") == [(0, 1), (0, 1), (1, 5), (5, 6)]


@pytest.mark.parametrize("name", ["bytes", "tiny", "pegasus"])
def test_places_after_white_space(name, tiny_tokenizer, pegasus):
    """They are those of the text without it, moved."""
    tokenizer = {"bytes": ByteTokenizer(5), "tiny": tiny_tokenizer, "pegasus": pegasus}[name]
    text = "\n\n  Paris is big.</s>  So is Rome"
    spans, stripped = tokenizer.spans(text), tokenizer.spans(text.lstrip())
    assert spans[-len(stripped) :] == [(start + 4, end + 4) for start, end in stripped]
    for index, (start, end) in zip(tokenizer.encode(text), spans, strict=True):
        if index not in (tokenizer.eos_id, tokenizer.unk_id):
            assert tokenizer.decode([index]).strip() == text[start:end].strip()


# Files


@pytest.mark.parametrize(
    "name", ["spiece.model", "tokenizer.json", "vocab.json", "vocab.txt", "tokenizer_config.json"]
)
def test_what_makes_a_directory_a_tokenizer(tmp_path, name):
    (tmp_path / "config.json").write_text("{}")
    assert not has_tokenizer(tmp_path)
    (tmp_path / name).write_text("")
    assert has_tokenizer(tmp_path)


def test_tokens_added_to_a_sentencepiece_model(pegasus_model, tmp_path):
    added = {"0": {"content": "<pad>"}, "703": {"content": "<speaker>", "special": False}}
    write(
        tmp_path,
        tokenizer_config__json={
            "tokenizer_class": "PegasusTokenizer",
            "added_tokens_decoder": added,
        },
    )
    (tmp_path / "spiece.model").write_bytes(pegasus_model)
    with pytest.raises(
        InputError, match=r'"<speaker>" was added to spiece.model; save the tokenizer as'
    ):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        (
            "merges.txt",
            None,
            r"merges\.txt: no such file; a vocab\.json needs the merges\.txt that belongs to it",
        ),
        (
            "merges.txt",
            "a b\nh e l\n",
            r"merges\.txt:2: expected two pieces with a space between, got 'h e l'",
        ),
        ("merges.txt", "no pe\n", r"vocab\.json: .*; copy it and merges\.txt again"),
        (
            "merges.txt",
            b"\xff\xfe",
            r"merges\.txt: not UTF-8 text \(invalid start byte\); copy the file again",
        ),
        ("vocab.json", "[1]", r"vocab\.json: expected a JSON object, got list"),
        ("vocab.json", '{"a": "b"}', r"vocab\.json: piece 'a' has the id 'b'; copy it and merges"),
        (
            "tokenizer_config.json",
            '{"mask_token": 3}',
            r"tokenizer_config\.json: mask_token must be a string, got 3",
        ),
        (
            "tokenizer_config.json",
            '{"tokenizer_class": "BartTokenzer"}',
            r'tokenizer_class "BartTokenzer" is supported with a tokenizer\.json only; '
            r'did you mean "BartTokenizer"',
        ),
        (
            "tokenizer_config.json",
            '{"tokenizer_class": "BertTokenizer"}',
            "no tokenizer there; put spiece",
        ),
        (
            "tokenizer_config.json",
            '{"embedding_rows": -1}',
            "embedding_rows must be a whole number up to 4194304, got -1",
        ),
    ],
)
def test_damaged_files(byte_pairs, name, content, problem):
    path = byte_pairs() / name
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=problem):
        load_tokenizer(path.parent)


WRONG_TYPES = (None, True, -1, 10**30, 0.5, "x", [None], {"a": None}, [{}])
READ_ENTRIES = (
    *SPECIAL_NAMES,
    *ADDITIONAL_SPECIAL,
    "added_tokens_decoder",
    "tokenizer_class",
    "src_lang",
    "chat_template",
    "extra_ids",
    "unused_ids",
    "offset",
    "embedding_rows",
    "clean_up_tokenization_spaces",
    "add_prefix_space",
    "do_lower_case",
    "strip_accents",
    "tokenize_chinese_chars",
    "split_special_tokens",
    "keep_accents",
)
TOKEN_ENTRIES = ("content", "lstrip", "rstrip", "single_word", "normalized", "special")


def configs_of_other_types():
    """Yields entries of tokenizer_config.json with a value of a wrong type, at any depth."""
    for wrong in WRONG_TYPES:
        yield from ({name: wrong} for name in READ_ENTRIES)
        tokens = [wrong, *({"content": "<new>", key: wrong} for key in TOKEN_ENTRIES)]
        for token in tokens:
            yield {"mask_token": token}
            yield {"extra_special_tokens": [token]}
            yield {"extra_special_tokens": {"new": token}}
            yield {"added_tokens_decoder": {"269": token}}
        yield {"added_tokens_decoder": {str(wrong): {"content": "<new>"}}}
        yield {"chat_template": [{"name": "default", "template": wrong}]}
        yield {"chat_template": [{"name": wrong, "template": "x"}]}


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
def test_entries_of_other_types_are_named_or_harmless(kind, byte_pairs, tmp_path):
    """No message is that of Python about a type."""
    usual = {"tokenizer_class": "ByT5Tokenizer"} if kind == "bytes" else {}
    directory = tmp_path / "bytes" if kind == "bytes" else byte_pairs()
    messages = []
    for change in configs_of_other_types():
        write(directory, tokenizer_config__json=usual | change)
        try:
            tokenizer = load_tokenizer(directory)
        except InputError as error:
            messages.append(str(error))
        else:
            assert tokenizer.encode("hello wo"), change
    assert len(messages) > 200
    assert [text for text in messages if "not a usable tokenizer" in text] == []


def test_ids_of_added_tokens_are_numbers(byte_pairs):
    directory = byte_pairs(added_tokens__json={"<a>": "269"})
    with pytest.raises(InputError, match=r"added_tokens\.json: '<a>' must be a whole number, got"):
        load_tokenizer(directory)


def test_an_unknown_class_with_a_tokenizer_json(byte_pairs, tmp_path):
    load_tokenizer(byte_pairs(tokenizer_config__json={"tokenizer_class": "LEDTokenizer"})).save(
        tmp_path / "out"
    )
    config = tmp_path / "out" / "tokenizer_config.json"
    config.write_text(config.read_text().replace("LEDTokenizer", "NewTokenizer"))
    tokenizer = load_tokenizer(tmp_path / "out")
    assert tokenizer.encode("hello") == [263]
    tokenizer.save(tmp_path / "again")
    assert "NewTokenizer" in (tmp_path / "again" / "tokenizer_config.json").read_text()


def test_a_tokenizer_json_alone(byte_pairs, tmp_path):
    first = load_tokenizer(byte_pairs())
    first.save(tmp_path / "out")
    tokenizer = JsonTokenizer((tmp_path / "out" / "tokenizer.json").read_text())
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.mask_id) == (
        1,
        2,
        3,
        268,
    )
    assert tokenizer.fingerprint == first.fingerprint


def test_without_the_tokenizers_package(byte_pairs, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        InputError,
        match=r"vocab\.json: reading it needs the tokenizers package; "
        r'pip install "longsum_jax\[hf\]"',
    ):
        load_tokenizer(byte_pairs())


@pytest.mark.shared_data
def test_pegasus_on_real_text(shared_data):
    import lzma

    path = shared_data / "tokenizers" / "pegasus_sp_test.model"
    tokenizer = PegasusTokenizer(path)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    # This model pairs bytes, and ids are SentencePiece's, as in transformers 4; transformers 5
    # takes every model of PEGASUS for a unigram one, as the published ones are.
    with lzma.open(shared_data / "scisummnet" / "val.jsonl.xz", "rt") as stream:
        documents = [json.loads(line)["document"] for line in list(stream)[:10]]
    for document in documents:
        assert tokenizer.encode(document) == [piece + 103 for piece in processor.encode(document)]


# Special tokens in documents


def unigram():
    """A Unigram model whose control pieces are in its vocabulary, as those of XLM-RoBERTa."""
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(letter, -9.0) for letter in "▁</>spadun"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 3))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    return JsonTokenizer(tokenizer.to_str())


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("bytes", "</s>"),
        ("tiny", "</s>"),
        ("pegasus", "<mask_1>"),
        ("pegasus", "</s>"),
        ("bigbird_pegasus", "[MASK]"),
        ("byte_pairs", "<mask>"),
        ("byte_pairs", "</s>"),
        ("word_pieces", "[SEP]"),
        ("unigram", "</s>"),
    ],
)
def test_special_tokens_in_documents_are_text(name, token, request):
    if name in ("bytes", "unigram"):
        tokenizer = ByteTokenizer() if name == "bytes" else unigram()
    elif name == "tiny":
        tokenizer = request.getfixturevalue("tiny_tokenizer")
    elif name == "pegasus":
        tokenizer = request.getfixturevalue("pegasus")
    elif name == "bigbird_pegasus":
        tokenizer = PegasusTokenizer(request.getfixturevalue("pegasus_model"), 0)
    else:
        tokenizer = load_tokenizer(request.getfixturevalue(name)())
    plain, text = tokenizer.plain, f"a {token} s"
    assert tokenizer.control_ids.intersection(tokenizer.encode(text))
    ids = plain.encode(text)
    assert ids
    assert tokenizer.control_ids.isdisjoint(ids)
    assert plain.encode_batch([text, "s"]) == [ids, tokenizer.encode("s")]
    spans = plain.spans(text)
    assert len(spans) == len(ids)
    assert spans[-1][1] == len(text)
    assert plain.plain is plain
    # A vocabulary with the characters decodes to the text.
    if name in ("bytes", "byte_pairs"):
        assert plain.decode(ids) == text
