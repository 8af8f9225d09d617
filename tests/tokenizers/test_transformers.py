"""The same ids and texts as the tokenizers of transformers, run on vocabularies trained here."""

import io
import itertools
import json

import pytest
import sentencepiece
import tokenizers
from transformers import (
    AutoTokenizer,
    BarthezTokenizer,
    ByT5Tokenizer,
    GemmaTokenizer,
    PegasusTokenizer,
    PreTrainedTokenizerFast,
    T5Tokenizer,
)

from longsum_jax.errors import InputError
from longsum_jax.tokenizers.bytes import ByteTokenizer
from longsum_jax.tokenizers.loading import JsonTokenizer, load_tokenizer
from longsum_jax.tokenizers.loading import PegasusTokenizer as OurPegasusTokenizer
from longsum_jax.tokenizers.train import train_sentencepiece

TEXTS = [
    "",
    " ",
    "  Hello  world\n\n<s> x </s>y <mask> <pad>z<unk>",
    "It's [MASK] [CLS]x [SEP] don't [UNK][PAD]",
    "naïve ﬁne cafe\u0301 中文 😀👩‍👩‍👧 \u200b\ufeff x 1,234.5 €  ½",
    "\ttab\r\nline\x85next \x00\x01control \u2581x",
    "a <mask_1> b<mask_2></s> <unk_7>z <extra_id_0>y<extra_id_99>",
    'don\'t stop . , ! and (so) "on"\n',
]
BART_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
DOC = {"content": "<doc>", "lstrip": True, "special": True}


@pytest.fixture(scope="module")
def texts(topics):
    return [*TEXTS, *topics[2:5]]  # short ones: each is read some ten times a test


@pytest.fixture(scope="module")
def byte_pairs(topics):
    """Files of a byte-level vocabulary."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=BART_SPECIAL,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(topics[:10], trainer)
    model = json.loads(library.to_str())["model"]
    merges = "".join(" ".join(pair) + "\n" for pair in model["merges"])
    return {"vocab.json": json.dumps(model["vocab"]), "merges.txt": "#version: 0.2\n" + merges}


@pytest.fixture(scope="module")
def word_pieces(topics):
    """Files of a WordPiece vocabulary with capitals and accents."""
    library = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=500,
        special_tokens=BERT_SPECIAL,
        initial_alphabet=["é", "中", "e"],
        show_progress=False,
    )
    library.train_from_iterator(topics[:10], trainer)
    vocabulary = library.get_vocab()
    return {"vocab.txt": "".join(piece + "\n" for piece in sorted(vocabulary, key=vocabulary.get))}


@pytest.fixture(scope="module")
def sentence_pieces(topics):
    """A unigram model for T5 and PEGASUS, without the byte fallback that transformers does not
    run."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(
            [line for text in topics[:40] for line in text.splitlines() if line]
        ),
        model_writer=model,
        vocab_size=600,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        user_defined_symbols=["<n>"],
        minloglevel=2,
    )
    return {"spiece.model": model.getvalue()}


def write(directory, files, model_type=None, **config):
    directory.mkdir()
    if model_type is not None:
        files = {**files, "config.json": json.dumps({"model_type": model_type})}
    if config:
        files = {**files, "tokenizer_config.json": json.dumps(config)}
    for name, content in files.items():
        (directory / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return directory


def assert_equal(ours, theirs, texts):
    for text in texts:
        ids = theirs(text).input_ids
        assert ours.add_special_tokens(ours.encode(text)) == ids, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text
        spans = ours.spans(text)
        if isinstance(ours, JsonTokenizer):
            result = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
            # White space around a token is part of it or not; a token of nothing else lies near.
            for (start, end), (first, last) in zip(spans, result.offset_mapping, strict=True):
                expected = text[first:last].strip()
                assert not expected or text[start:end].strip() == expected, text
        assert len(spans) == len(ours.encode(text))
        assert all(start <= end <= len(text) for start, end in spans)
    for limit in (2, 5):
        [cut] = theirs([texts[-1]], truncation=True, max_length=limit).input_ids
        assert ours.add_special_tokens(ours.encode(texts[-1]), limit) == cut
    assert_equal_pairs(ours, theirs, texts)
    assert (ours.pad_id, ours.unk_id, ours.mask_id) == (
        theirs.pad_token_id,
        theirs.unk_token_id,
        theirs.mask_token_id,
    )
    assert ours.eos_id == (
        theirs.sep_token_id if theirs.eos_token_id is None else theirs.eos_token_id
    )


def assert_equal_pairs(ours, theirs, texts):
    """Two texts, whole and cut in both ways, with the types of their tokens."""
    short, long = (text.rstrip() for text in (texts[-1][:40], texts[-2][:300]))
    for first, second in ((short, long), (long, short), ("", long)):
        first_ids, second_ids = ours.encode(first), ours.encode(second)
        limits = {"longest_first": [5, 8, 9, 40, 41], "only_second": [len(first_ids) + 9]}
        for strategy, lengths in {False: [None], **limits}.items():
            for limit in lengths:
                cut = {} if limit is None else {"truncation": strategy, "max_length": limit}
                theirs_pair = theirs(first, second, return_token_type_ids=True, **cut)
                truncation = "second" if strategy == "only_second" else "longest"
                pair = ours.join_pair(first_ids, second_ids, limit, truncation)
                assert pair.ids == theirs_pair.input_ids, (first, second, strategy, limit)
                assert pair.token_type_ids == theirs_pair.token_type_ids
                retained = pair.ids[pair.second]
                assert retained == second_ids[: len(retained)]


def assert_round_trips(ours, theirs, texts, directory, model_type):
    """What we save loads in transformers, and what it saves loads here, to the same ids."""
    ours.save(directory / "ours")
    (directory / "ours" / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert_equal(ours, AutoTokenizer.from_pretrained(directory / "ours"), texts)
    theirs.save_pretrained(directory / "theirs")
    assert_equal(load_tokenizer(directory / "theirs"), theirs, texts)


@pytest.mark.parametrize(
    ("model_type", "config"),
    [
        ("bart", {"tokenizer_class": "BartTokenizer"}),
        ("led", {"tokenizer_class": "LEDTokenizer", "model_max_length": 16384}),
        ("roberta", {"tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": True}),
        ("led", {}),
    ],
)
def test_byte_pairs(byte_pairs, texts, tmp_path, model_type, config):
    directory = write(tmp_path / "files", byte_pairs, model_type, **config)
    ours, theirs = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
    assert_equal(ours, theirs, texts)
    assert_round_trips(ours, theirs, texts, tmp_path, model_type)


def test_pairs_of_texts_after_saving(byte_pairs, tmp_path):
    directory = write(tmp_path / "files", byte_pairs, "roberta")
    theirs = AutoTokenizer.from_pretrained(directory)
    load_tokenizer(directory).save(tmp_path / "ours")
    saved = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert saved("a", "b").input_ids == theirs("a", "b").input_ids


def test_special_tokens_with_flags(byte_pairs, texts, tmp_path):
    flags = {"lstrip": True, "rstrip": False, "normalized": False, "single_word": False}
    special = {"mask_token": {"content": "<mask>", **flags}, "additional_special_tokens": ["<doc>"]}
    files = {**byte_pairs, "special_tokens_map.json": json.dumps(special)}
    directory = write(tmp_path / "files", files, "bart")
    ours, theirs = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
    assert_equal(ours, theirs, [*texts, "x  <mask> y <doc>z"])


def test_special_tokens_with_names(byte_pairs, texts, tmp_path):
    special = {"extra_special_tokens": {"doc_token": "<doc>"}}
    directory = write(tmp_path / "files", byte_pairs, "bart", **special)
    ours, theirs = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
    assert_equal(ours, theirs, [*texts, "x <doc>z"])


def test_bytes_that_are_pieces_without_fallback(topics, tmp_path):
    """As transformers writes what it has read of a SentencePiece model."""
    train_sentencepiece(topics[:20], 500, extra_ids=10).save(tmp_path / "ours")
    (tmp_path / "ours" / "config.json").write_text('{"model_type": "t5"}')
    AutoTokenizer.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    assert not (tmp_path / "theirs" / "spiece.model").exists()
    loaded = load_tokenizer(tmp_path / "theirs")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "theirs")
    for text in topics[20:24]:
        text = text[:5000]  # ties in long texts differ, see SentencePieceTokenizer
        assert loaded.add_special_tokens(loaded.encode(text)) == theirs(text).input_ids


@pytest.mark.parametrize(
    ("model_type", "config"),
    [
        ("bert", {"tokenizer_class": "BertTokenizer"}),
        ("bert", {"do_lower_case": False}),
        (
            "distilbert",
            {
                "tokenizer_class": "DistilBertTokenizer",
                "do_lower_case": False,
                "strip_accents": True,
            },
        ),
        ("bert", {"strip_accents": False, "tokenize_chinese_chars": False}),
        ("electra", {"tokenizer_class": "ElectraTokenizer"}),
    ],
)
def test_word_pieces(word_pieces, texts, tmp_path, model_type, config):
    directory = write(tmp_path / "files", word_pieces, model_type, **config)
    ours, theirs = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
    assert_equal(ours, theirs, texts)
    assert_round_trips(ours, theirs, texts, tmp_path, model_type)


SETTINGS = [
    ("word_pieces", {"do_lower_case": False}, {"do_lower_case": True}),
    ("word_pieces", {"do_lower_case": False}, {"strip_accents": True}),
    ("word_pieces", {"strip_accents": True}, {"strip_accents": None, "do_lower_case": False}),
    ("word_pieces", {}, {"tokenize_chinese_chars": False}),
    ("byte_pairs", {}, {"add_prefix_space": True}),
    ("byte_pairs", {"add_prefix_space": True}, {"add_prefix_space": False}),
    ("word_pieces", {"do_lower_case": False, "strip_accents": False}, None),
    ("byte_pairs", {"add_prefix_space": True}, None),
]


# A tokenizer whose class is not named is of the model's, whatever its settings.
@pytest.mark.parametrize(
    ("files", "config", "changes", "is_named"),
    [
        *((*case, True) for case in SETTINGS),
        *((*SETTINGS[place], False) for place in (0, 5, 6, 7)),
        *(
            pytest.param(*SETTINGS[place], False, marks=pytest.mark.weekly)
            for place in (1, 2, 3, 4)
        ),
    ],
)
def test_settings_beside_tokenizer_json(request, texts, tmp_path, files, config, changes, is_named):
    """Those of tokenizer_config.json are taken, or the class's own, not those of the file."""
    model_type = {"word_pieces": "bert", "byte_pairs": "roberta"}[files]
    directory = write(tmp_path / "files", request.getfixturevalue(files), model_type, **config)
    AutoTokenizer.from_pretrained(directory).save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "config.json").write_text(json.dumps({"model_type": model_type}))
    path = tmp_path / "saved" / "tokenizer_config.json"
    saved = json.loads(path.read_text()) | (changes or {})
    if changes is None:
        saved = {name: value for name, value in saved.items() if name not in config}
    if not is_named:
        del saved["tokenizer_class"]
    path.write_text(json.dumps(saved))
    ours, theirs = load_tokenizer(path.parent), AutoTokenizer.from_pretrained(path.parent)
    assert_equal(ours, theirs, texts)
    assert_round_trips(ours, theirs, texts, tmp_path, model_type)


ADDED = [
    ("tokenizer_config.json", {"additional_special_tokens": ["<doc>"]}),
    ("tokenizer_config.json", {"extra_special_tokens": {"doc_token": "<doc>"}}),
    ("tokenizer_config.json", {"added_tokens_decoder": {"NEXT": DOC}}),
    ("added_tokens.json", {"<doc>": "NEXT"}),
    ("special_tokens_map.json", {"additional_special_tokens": ["<doc>"]}),
]


# Where a token is named does not depend on the kind of vocabulary.
@pytest.mark.parametrize(
    ("files", "model_type", "name", "entries"),
    [
        *(("byte_pairs", "roberta", *case) for case in ADDED),
        *(("word_pieces", "bert", *case) for case in ADDED[:1]),
        *(("sentence_pieces", "t5", *case) for case in ADDED[2:4]),
        *(
            pytest.param(*kind, *case, marks=pytest.mark.weekly)
            for kind, cases in (
                (("word_pieces", "bert"), ADDED[1:]),
                (("sentence_pieces", "t5"), [*ADDED[:2], *ADDED[4:]]),
            )
            for case in cases
        ),
    ],
)
def test_tokens_that_tokenizer_json_lacks(
    request, texts, tmp_path, files, model_type, name, entries
):
    directory = write(tmp_path / "files", request.getfixturevalue(files), model_type)
    before = AutoTokenizer.from_pretrained(directory)
    saved = tmp_path / "saved"
    before.save_pretrained(saved)
    path = saved / name
    entries = json.loads(json.dumps(entries).replace("NEXT", str(len(before))))
    if name == "added_tokens.json":
        entries = {text: int(index) for text, index in entries.items()}
    result = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(result | entries))
    ours, theirs = load_tokenizer(saved), AutoTokenizer.from_pretrained(saved)
    assert ours.vocab_size == len(theirs)
    for text in [*texts, "x <doc>y<doc> z"]:
        ids = theirs(text).input_ids
        assert ours.add_special_tokens(ours.encode(text)) == ids, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("files", ["word_pieces", "byte_pairs"])
def test_special_tokens_that_are_text(request, texts, tmp_path, files):
    model_type = {"word_pieces": "bert", "byte_pairs": "roberta"}[files]
    content = request.getfixturevalue(files)
    directory = write(tmp_path / "files", content, model_type, split_special_tokens=True)
    ours, theirs = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
    assert_equal(ours, theirs, texts)
    assert_round_trips(ours, theirs, texts, tmp_path, model_type)


def test_runs_of_spaces_that_are_kept(topics, texts, tmp_path):
    """SentencePiece would make one space of several."""
    library = tokenizers.Tokenizer(tokenizers.models.Unigram())
    library.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    library.decoder = tokenizers.decoders.Metaspace()
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=300,
        special_tokens=list(special.values()),
        unk_token="<unk>",
        show_progress=False,
    )
    library.train_from_iterator(topics[:10], trainer)
    theirs = PreTrainedTokenizerFast(tokenizer_object=library, **special)
    theirs.save_pretrained(tmp_path)
    ours = load_tokenizer(tmp_path)
    for text in texts:
        assert ours.encode(text) == theirs(text).input_ids


@pytest.mark.parametrize("model_type", ["bert", "roberta"])
def test_steps_that_no_class_has(word_pieces, byte_pairs, texts, tmp_path, model_type):
    """A copy names a class of transformers that takes them from tokenizer.json."""
    files = {"bert": word_pieces, "roberta": byte_pairs}[model_type]
    whole = load_tokenizer(write(tmp_path / "files", files, model_type))
    whole.save(tmp_path / "whole")
    content = json.loads((tmp_path / "whole" / "tokenizer.json").read_text())
    content["normalizer"] = {"type": "Lowercase"}
    ours = load_tokenizer(write(tmp_path / "own", {"tokenizer.json": json.dumps(content)}))
    ours.save(tmp_path / "ours")
    assert_equal(ours, AutoTokenizer.from_pretrained(tmp_path / "ours"), texts)


def test_files_of_another_tokenizer_are_removed(word_pieces, sentence_pieces, tmp_path):
    """They would be read beside the new ones."""
    made = {
        "json": load_tokenizer(write(tmp_path / "files", word_pieces, "bert")),
        "pieces": OurPegasusTokenizer(sentence_pieces["spiece.model"]),
        "bytes": ByteTokenizer(5),
    }
    for first, second in itertools.permutations(made, 2):
        directory = tmp_path / f"{first} {second}"
        made[first].save(directory)
        (directory / "added_tokens.json").write_text('{"<left>": 900}')
        made[second].save(directory)
        made[second].save(tmp_path / second)
        names = {path.name for path in directory.iterdir()}
        assert names == {path.name for path in (tmp_path / second).iterdir()}
        assert load_tokenizer(directory).fingerprint == made[second].fingerprint


def test_t5(sentence_pieces, texts, tmp_path):
    directory = write(
        tmp_path / "files", sentence_pieces, "t5", tokenizer_class="T5Tokenizer", extra_ids=100
    )
    ours, theirs = load_tokenizer(directory), T5Tokenizer.from_pretrained(directory)
    assert_equal(ours, theirs, texts)
    assert_round_trips(ours, theirs, texts, tmp_path, "t5")


def test_t5_with_added_tokens(sentence_pieces, texts, tmp_path):
    theirs = T5Tokenizer.from_pretrained(
        write(tmp_path / "files", sentence_pieces, tokenizer_class="T5Tokenizer")
    )
    theirs.add_tokens(["<speaker>"])
    theirs.save_pretrained(tmp_path / "theirs")
    for name in ("alone", "beside spiece.model"):
        if name != "alone":
            (tmp_path / "theirs" / "spiece.model").write_bytes(sentence_pieces["spiece.model"])
        assert_equal(load_tokenizer(tmp_path / "theirs"), theirs, [*texts, "x <speaker> y"])


@pytest.fixture(scope="module")
def own_steps(topics):
    """A unigram tokenizer.json with T5's special tokens and steps that SentencePiece lacks."""
    library = tokenizers.Tokenizer(tokenizers.models.Unigram())
    normalizers, pre_tokenizers = tokenizers.normalizers, tokenizers.pre_tokenizers
    spaces = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
    library.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), spaces, normalizers.Lowercase()]
    )
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Digits(True), pre_tokenizers.Punctuation()]
    )
    library.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=500,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    library.train_from_iterator(topics[:20], trainer)
    return library


@pytest.mark.parametrize(
    "part", ["normalizer", "pre_tokenizer", "both", "space never before a text"]
)
def test_steps_that_sentencepiece_lacks(own_steps, texts, tmp_path, part):
    library = tokenizers.Tokenizer.from_str(own_steps.to_str())
    if part == "normalizer":
        library.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    elif part == "pre_tokenizer":
        library.normalizer = tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
    elif part == "space never before a text":
        library.normalizer = tokenizers.normalizers.Strip()
        library.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="never")
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    special = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    files = {"tokenizer.json": library.to_str()}
    directory = write(
        tmp_path / "files", files, "t5", tokenizer_class="PreTrainedTokenizerFast", **special
    )
    ours, theirs = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
    assert_equal(ours, theirs, texts)
    assert_round_trips(ours, theirs, texts, tmp_path, "t5")
    # transformers drops the steps for this class and so gives ids that the model never saw.
    named = write(tmp_path / "named", files, "t5", tokenizer_class="T5Tokenizer", **special)
    assert load_tokenizer(named).fingerprint == ours.fingerprint


def test_a_template_for_one_text_alone(own_steps, texts, tmp_path):
    """As transformers' example of pretraining T5 writes it."""
    library = tokenizers.Tokenizer.from_str(own_steps.to_str())
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    directory = write(tmp_path / "files", {"tokenizer.json": library.to_str()}, "t5")
    tokenizer = load_tokenizer(directory)
    for text in texts:
        assert tokenizer.add_special_tokens(tokenizer.encode(text)) == library.encode(text).ids
    assert tokenizer.join_pair([5], [6]).ids == [5, 6, 1]


@pytest.mark.parametrize("extra_ids", [125, 10, 0])
def test_sentinels_of_bytes(tmp_path, extra_ids):
    theirs = ByT5Tokenizer(extra_ids=extra_ids)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_tokenizer(tmp_path / "theirs")
    assert (ours.extra_ids, ours.vocab_size) == (extra_ids, len(theirs))
    assert load_tokenizer(tmp_path / "theirs", vocab_size=384).extra_ids == extra_ids
    for text in ("a<extra_id_0>é<extra_id_9>c", "x<extra_id_124>", " a </s> \n b<pad>\t<unk> "):
        ids = theirs(text).input_ids
        assert ours.add_special_tokens(ours.encode(text)) == ids
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
        assert len(ours.spans(text)) == len(ids) - 1


@pytest.mark.parametrize("extra_ids", [125, 0])
def test_tokens_added_to_bytes(tmp_path, extra_ids):
    theirs = ByT5Tokenizer(extra_ids=extra_ids)
    theirs.add_tokens(["<new>", "<newer>"])
    theirs.add_tokens(["<ne"], special_tokens=True)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_tokenizer(tmp_path / "theirs", vocab_size=400)
    ours.save(tmp_path / "ours")
    saved = AutoTokenizer.from_pretrained(tmp_path / "ours")
    again = load_tokenizer(tmp_path / "ours")
    assert ours.fingerprint == again.fingerprint != ByteTokenizer(extra_ids).fingerprint
    assert (ours.vocab_size, again.vocab_size) == (400, 400)
    for text in ("a <new> é<newer><ne> x<extra_id_9></s> y", "<extra_id_0>"):
        ids = theirs(text).input_ids
        assert saved(text).input_ids == ids
        for tokenizer in (ours, again):
            assert tokenizer.add_special_tokens(tokenizer.encode(text)) == ids
            for other in (theirs, saved):
                assert tokenizer.decode(ids) == other.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize(
    ("options", "tokens", "problem"),
    [
        (
            {"extra_ids": 3},
            [tokenizers.AddedToken("<new>", lstrip=True)],
            '"<new>" sets lstrip, rstrip or',
        ),
        ({"eos_token": "<end>"}, [], 'eos_token is "<end>", but tokenizers of bytes call it'),
        ({"extra_ids": 130}, ["<new>"], "the tokenizer has 390 pieces but the checkpoint 384"),
    ],
)
def test_tokens_that_bytes_do_not_have(tmp_path, options, tokens, problem):
    theirs = ByT5Tokenizer(**options)
    theirs.add_tokens(tokens)
    theirs.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=problem):
        load_tokenizer(tmp_path, vocab_size=384)


def test_tokens_added_to_bytes_at_other_ids(tmp_path):
    theirs = ByT5Tokenizer()
    theirs.add_tokens(["<new>"])
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["added_tokens_decoder"]["390"] = config["added_tokens_decoder"].pop("384")
    path.write_text(json.dumps(config))
    with pytest.raises(InputError, match='"<new>" has the id 390, but the next one after bytes'):
        load_tokenizer(tmp_path)


# transformers 5 makes a piece of white space at the end of a text, and before a special token;
# SentencePiece, and with it PEGASUS as trained, does not.
def without_trailing_space(texts):
    return [text.rstrip() for text in texts if " <" not in text]


def test_pegasus(sentence_pieces, texts, tmp_path):
    directory = write(
        tmp_path / "files", sentence_pieces, "pegasus", tokenizer_class="PegasusTokenizer"
    )
    ours, theirs = load_tokenizer(directory), PegasusTokenizer.from_pretrained(directory)
    texts = [*without_trailing_space(texts), "a<mask_1>b<mask_2></s><unk_7>z<unk_102> <unk_103>"]
    texts = [text for text in texts if "<n>" not in text]
    assert_equal(ours, theirs, texts)
    ours.save(tmp_path / "ours")
    assert_equal(ours, PegasusTokenizer.from_pretrained(tmp_path / "ours"), texts)


def test_pegasus_as_transformers_saves_it(sentence_pieces, texts, tmp_path):
    directory = write(
        tmp_path / "files", sentence_pieces, "pegasus", tokenizer_class="PegasusTokenizer"
    )
    theirs = PegasusTokenizer.from_pretrained(directory)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_tokenizer(tmp_path / "theirs")
    assert_equal(ours, theirs, texts)
    assert ours.decode(theirs("The value<n>is").input_ids) == "The value\nis"
    ours.save(tmp_path / "ours")
    assert_equal(ours, PegasusTokenizer.from_pretrained(tmp_path / "ours"), texts)


@pytest.mark.parametrize(
    ("model_type", "offset"), [("pegasus", 103), ("pegasus_x", 103), ("bigbird_pegasus", 0)]
)
def test_what_transformers_makes_of_a_saved_pegasus(
    sentence_pieces, texts, tmp_path, model_type, offset
):
    ours = OurPegasusTokenizer(sentence_pieces["spiece.model"], offset)
    ours.save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    texts = without_trailing_space(texts) if model_type == "pegasus" else texts
    for text in texts:
        assert ours.add_special_tokens(ours.encode(text)) == theirs(text).input_ids, text
    if model_type != "pegasus":
        (tmp_path / "spiece.model").unlink()
        assert_equal(load_tokenizer(tmp_path), theirs, texts)


# mBART and mBART-50 have no normalisation in transformers 5, BARThez another one than its model;
# SentencePiece, and with it the models as trained, normalises. These texts need none.
NORMAL = ["", "It's a<mask> test", "don't stop . , ! and (so)", "one</s> two<unk>three"]


def train_pieces(topics, **options):
    model = io.BytesIO()
    lines = [line for text in topics[:40] for line in text.splitlines() if line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=500, minloglevel=2, **options
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def fairseq_pieces(topics):
    """A unigram model with SentencePiece's own special pieces, as XLM-RoBERTa has it."""
    return {"sentencepiece.bpe.model": train_pieces(topics)}


@pytest.fixture(scope="module")
def barthez_pieces(topics):
    ids = {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3}
    model = train_pieces(topics, **ids, user_defined_symbols=["<mask>"])
    return {"sentencepiece.bpe.model": model}


@pytest.fixture(scope="module")
def albert_pieces(topics):
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
    model = train_pieces(topics, **ids, control_symbols=["[CLS]", "[SEP]", "[MASK]"])
    return {"spiece.model": model}


@pytest.mark.parametrize(
    ("name", "model_type"),
    [("XLMRobertaTokenizer", "xlm-roberta"), ("CamembertTokenizer", "camembert")],
)
def test_fairseq_order(fairseq_pieces, texts, tmp_path, name, model_type):
    directory = write(tmp_path / "files", fairseq_pieces, model_type, tokenizer_class=name)
    ours, theirs = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
    assert type(theirs).__name__ == name
    texts = [text for text in texts if "\x85" not in text]
    assert_equal(ours, theirs, texts)
    assert_round_trips(ours, theirs, texts, tmp_path, model_type)
    unnamed = write(tmp_path / "unnamed", fairseq_pieces, model_type)
    assert load_tokenizer(unnamed).fingerprint == ours.fingerprint
    pair = AutoTokenizer.from_pretrained(tmp_path / "ours")("a", "b").input_ids
    assert pair == theirs("a", "b").input_ids


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("MBartTokenizer", None),
        ("MBartTokenizer", "fr_XX"),
        ("MBart50Tokenizer", None),
        ("MBart50Tokenizer", "gl_ES"),
    ],
)
def test_mbart_languages(fairseq_pieces, topics, tmp_path, name, language):
    options = {"tokenizer_class": name} | ({"src_lang": language} if language else {})
    directory = write(tmp_path / "files", fairseq_pieces, "mbart", **options)
    ours, theirs = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
    code = theirs.convert_tokens_to_ids(language or "en_XX")
    around = ((), (2, code)) if name == "MBartTokenizer" else ((code,), (2,))
    assert (ours.prefix_ids, ours.suffix_ids) == around
    texts = [*NORMAL, " ".join(topics[0].split())]
    assert_equal(ours, theirs, texts)
    assert_round_trips(ours, theirs, texts, tmp_path, "mbart")
    # The config decides, whatever language the tokenizer.json was saved with.
    path = tmp_path / "ours" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"src_lang": "de_DE"}))
    changed = load_tokenizer(tmp_path / "ours").add_special_tokens([])
    assert changed == AutoTokenizer.from_pretrained(tmp_path / "ours")("").input_ids
    assert theirs.convert_tokens_to_ids("de_DE") in changed


def test_barthez(barthez_pieces, topics, tmp_path):
    files = barthez_pieces | {
        "config.json": json.dumps({"model_type": "mbart", "tokenizer_class": "BarthezTokenizer"})
    }
    ours = load_tokenizer(write(tmp_path / "files", files))
    named = write(tmp_path / "named", barthez_pieces, tokenizer_class="BarthezTokenizer")
    theirs = BarthezTokenizer.from_pretrained(named)
    for text in [*NORMAL, " ".join(topics[0].split())]:
        plain = theirs(text, add_special_tokens=False).input_ids
        assert ours.encode(text) == plain, text
        assert ours.add_special_tokens(plain) == [0, *plain, 2]
    assert (ours.pad_id, ours.unk_id, ours.mask_id) == (1, 3, theirs.mask_token_id)


@pytest.mark.parametrize("config", [{}, {"do_lower_case": False, "keep_accents": True}])
def test_albert(albert_pieces, texts, tmp_path, config):
    config = {"tokenizer_class": "AlbertTokenizer", **config}
    directory = write(tmp_path / "files", albert_pieces, "albert", **config)
    ours, theirs = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
    texts = [*texts, "``So'' it is", "Déjà VU"]
    assert_equal(ours, theirs, texts)
    assert_round_trips(ours, theirs, texts, tmp_path, "albert")
    saved = tokenizers.Tokenizer.from_file(str(tmp_path / "ours" / "tokenizer.json"))
    pair, expected = saved.encode("a", "b"), theirs("a", "b", return_token_type_ids=True)
    assert (pair.ids, pair.type_ids) == (expected.input_ids, expected.token_type_ids)


def test_albert_cuts_commas_from_numbers(topics, tmp_path):
    """As its published tokenizer does; transformers 5 has left it out."""
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
    symbols = ["[CLS]", "[SEP]", "[MASK]"]
    texts = ["in 1990, and in 1990, too, of 1990, or 1990,"] * 20 + topics[:9]
    files = {"spiece.model": train_pieces(texts, **ids, control_symbols=symbols)}
    processor = sentencepiece.SentencePieceProcessor(model_proto=files["spiece.model"])
    assert "▁1990," in processor.encode("1990,", out_type=str)
    ours = load_tokenizer(write(tmp_path / "files", files, "albert"))
    comma = processor.piece_to_id(",")
    assert ours.encode("1990, or")[-2:] == [comma, processor.piece_to_id("▁or")]


def test_big_bird(topics, tmp_path):
    ids = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3}
    model = train_pieces(topics, **ids, control_symbols=["[CLS]", "[SEP]", "[MASK]"])
    directory = write(tmp_path / "files", {"spiece.model": model}, "big_bird")
    ours, theirs = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
    texts = ["", "It's a[MASK] test", "one</s> two<unk>three", " ".join(topics[0].split())]
    assert_equal(ours, theirs, texts)
    assert_round_trips(ours, theirs, texts, tmp_path, "big_bird")


def test_deberta(topics, tmp_path):
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
    names = {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
    files = {"spm.model": train_pieces(topics, **ids, **names)}
    directory = write(tmp_path / "files", files, "deberta-v2", tokenizer_class="DebertaV2Tokenizer")
    ours, theirs = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
    texts = [
        "",
        "It's a test",
        "  two\n lines ",
        "one[SEP] two[MASK]three",
        " ".join(topics[0].split()),
    ]
    assert_equal(ours, theirs, texts)
    assert_round_trips(ours, theirs, texts, tmp_path, "deberta-v2")
    pair, expected = (
        ours.join_pair(ours.encode("a"), ours.encode("b")),
        theirs("a", "b", return_token_type_ids=True),
    )
    assert (pair.ids, pair.token_type_ids) == (expected.input_ids, expected.token_type_ids)
    unnamed = write(tmp_path / "unnamed", files, "deberta-v2")
    assert load_tokenizer(unnamed).fingerprint == ours.fingerprint
    # Wide characters as in sentencepiece, which published models were trained with.
    processor = sentencepiece.SentencePieceProcessor(model_proto=files["spm.model"])
    wide = "\uff41 \uff42"
    assert ours.encode(wide) == processor.encode(wide)
    lower = write(tmp_path / "lower", files, "deberta-v2", do_lower_case=True)
    with pytest.raises(InputError, match="do_lower_case=true is not supported for DeBERTa; save"):
        load_tokenizer(lower)


@pytest.mark.parametrize(
    ("files", "model_type", "name"),
    [
        ("sentence_pieces", "t5", "T5Tokenizer"),
        ("sentence_pieces", "pegasus", "PegasusTokenizer"),
        ("fairseq_pieces", "xlm-roberta", "XLMRobertaTokenizer"),
        ("byte_pairs", "bart", "BartTokenizer"),
    ],
)
def test_spaces_before_marks(request, tmp_path, files, model_type, name):
    """They go where the config says so, but not with byte pairs."""
    config = {"tokenizer_class": name, "clean_up_tokenization_spaces": True}
    files = request.getfixturevalue(files)
    directory = write(tmp_path / "files", files, model_type, **config)
    ours, theirs = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
    ours.save(tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "theirs")
    ids = ours.encode("It did n't stop . Or , so")
    expected = "It didn't stop. Or, so"
    assert (theirs.decode(ids) == expected) == (name != "BartTokenizer")
    for tokenizer in (ours, *map(load_tokenizer, (tmp_path / "ours", tmp_path / "theirs"))):
        assert tokenizer.decode(ids) == theirs.decode(ids)


def test_an_unknown_language_is_an_error(fairseq_pieces, tmp_path):
    directory = write(tmp_path / "files", fairseq_pieces, "mbart", src_lang="fr_X")
    with pytest.raises(InputError, match='src_lang "fr_X" is unknown; did you mean "fr_XX"'):
        load_tokenizer(directory)


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["T5Tokenizer", "PegasusTokenizer"])
def test_real_text(shared_data, tmp_path, name):
    import lzma

    model = {"spiece.model": (shared_data / "tokenizers" / "t5-base.spiece.model").read_bytes()}
    directory = write(tmp_path / "files", model, tokenizer_class=name)
    theirs = {"T5Tokenizer": T5Tokenizer, "PegasusTokenizer": PegasusTokenizer}[
        name
    ].from_pretrained(directory)
    for data in ("techspecs", "sumpubmed", "qmsum"):
        with lzma.open(shared_data / data / "val.jsonl.xz", "rt") as stream:
            documents = [json.loads(line)["document"].rstrip() for line in list(stream)[:5]]
        assert_equal(load_tokenizer(directory), theirs, documents)


@pytest.mark.parametrize("has_template", [True, False])
def test_gemma(topics, texts, tmp_path, has_template):
    """Byte pairs with spaces as pieces, bytes for unknown text, and special tokens of a chat."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True, fuse_unk=True))
    library.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    library.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "merged_with_previous")
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=[*special, *(f"<0x{i:02X}>" for i in range(256))]
    )
    library.train_from_iterator(topics[:10], trainer)
    model = json.loads(library.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    made = GemmaTokenizer(vocab=model["vocab"], merges=merges, extra_special_tokens=special[5:])
    made.save_pretrained(tmp_path / "files")
    if has_template:  # as in the published files, which begin a text with <bos>
        path = tmp_path / "files" / "tokenizer.json"
        file = tokenizers.Tokenizer.from_file(str(path))
        file.post_processor = tokenizers.processors.TemplateProcessing(
            single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", 2)]
        )
        file.save(str(path))
    (tmp_path / "files" / "config.json").write_text('{"model_type": "t5gemma"}')
    ours = load_tokenizer(tmp_path / "files")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "files")
    strange = ["  a   b\n\n é 日本 🙂 ", "<bos>x<eos> <start_of_turn>user"]
    for text in [*strange, *texts]:
        ids = theirs(text).input_ids
        assert ours.add_special_tokens(ours.encode(text)) == ids
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    ours.save(tmp_path / "ours")
    (tmp_path / "ours" / "config.json").write_text('{"model_type": "t5gemma"}')
    again = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert [again(text).input_ids for text in texts] == [theirs(text).input_ids for text in texts]
