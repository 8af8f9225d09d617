import copy
import json
import pickle

import numpy as np
import pytest

import longsum_jax
from longsum_jax.errors import InputError
from longsum_jax.inference import padding
from longsum_jax.summarization.summary import Request


@pytest.fixture(scope="module")
def model(small_model):
    """Random weights and a tokenizer."""
    return longsum_jax.load(small_model)


@pytest.fixture(scope="module")
def fitted(publish, golden, tmp_path_factory):
    """The published code's small model after training on the three rows of ``ids``, which it tells
    apart."""
    return longsum_jax.load(publish(tmp_path_factory.mktemp("fitted") / "model", "e_greedy"))


@pytest.fixture(scope="module")
def compiled(publish, tmp_path_factory):
    """A small model as published, whose programs those of other files run."""
    return longsum_jax.load(publish(tmp_path_factory.mktemp("compiled") / "model", "c_full_state"))


@pytest.fixture(scope="module")
def ids(golden):
    """Rows of 70, 41 and 9 ids, and their mask."""
    arrays = golden("e_greedy")
    return arrays["input_ids"], arrays["attention_mask"].astype(bool)


# What the published code computes (tests/golden/locost)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_published_directory_gives_the_published_outputs(
    published, golden, weights, compiled, with_programs_of
):
    io = golden("c_full_io")
    model = longsum_jax.load(published(weights=weights))  # a config.json whose model_type is empty
    assert not model.has_tokenizer
    model = with_programs_of(compiled, model)
    states = model.encode(io["input_ids"], io["attention_mask"])
    real = io["attention_mask"].astype(bool)
    np.testing.assert_allclose(states[real], io["f32.encoder_last_hidden_state"][real], atol=1e-5)
    logits = model.logits(io["input_ids"], io["attention_mask"], io["decoder_input_ids"])
    np.testing.assert_allclose(logits, io["f32.logits"], atol=1e-5)
    generated = model.generate(
        io["input_ids"], io["attention_mask"], max_new_tokens=20, eos_token_id=None
    )
    np.testing.assert_array_equal(generated, io["greedy_generate_max_new_tokens_20"])


@pytest.mark.slow
def test_published_greedy_ids_and_saved_copy(fitted, ids, golden, tmp_path, with_programs_of):
    expected = golden("e_greedy")["greedy"]
    np.testing.assert_array_equal(fitted.generate(*ids), expected)
    fitted.save(tmp_path / "copy")
    copy = longsum_jax.load(tmp_path / "copy")
    assert copy.fingerprint == fitted.fingerprint
    assert (copy.config, copy.generation_config) == (fitted.config, fitted.generation_config)
    copy.save(tmp_path / "again")
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "copy" / name).read_bytes()
    np.testing.assert_array_equal(with_programs_of(fitted, copy).generate(*ids), expected)


# Options


@pytest.mark.slow
def test_length_comes_from_the_generation_config_and_is_never_20(
    published, golden, compiled, with_programs_of
):
    io = golden("c_full_io")  # its greedy output never ends
    directory = published()
    lengths = []
    for content in ({}, {"max_new_tokens": 33}, {"max_length": 6}):
        (directory / "generation_config.json").write_text(json.dumps(content))
        model = longsum_jax.load(directory)
        lengths.append(model.generation_options().max_new_tokens)
    assert lengths == [512, 33, 5]
    model = with_programs_of(compiled, model)
    assert model.generate(io["input_ids"], io["attention_mask"]).shape == (3, 6)
    assert model.generate(io["input_ids"], io["attention_mask"], max_new_tokens=2).shape == (3, 3)


@pytest.mark.slow
def test_none_switches_an_option_off(published, fitted, ids, golden, with_programs_of):
    forced = {"max_new_tokens": 3, "forced_bos_token_id": 7}
    model = longsum_jax.load(published("e_greedy", generation=forced))
    model = with_programs_of(fitted, model)
    assert (model.generate(*ids)[:, 1] == 7).all()
    expected = golden("e_greedy")["greedy"][:, :4]
    np.testing.assert_array_equal(model.generate(*ids, forced_bos_token_id=None), expected)


@pytest.mark.slow
def test_computing_in_bfloat16_keeps_the_parameters(published, fitted, ids):
    half = longsum_jax.load(published("e_greedy"), dtype="bfloat16")
    assert half.fingerprint == fitted.fingerprint
    states = half.encode(*ids)
    assert states.dtype == np.float32
    assert 1e-4 < np.abs(np.subtract(states, fitted.encode(*ids)))[ids[1]].max() < 0.3


# Rows stand alone

SAMPLES = {"do_sample": True, "max_new_tokens": 11, "temperature": 2.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"num_beams": 3, "length_penalty": 2.0, "max_new_tokens": 11}, SAMPLES | {"seed": 5}],
    ids=["greedy", "beam", "sample"],
)
def test_rows_do_not_depend_on_batch_mates_padding_or_history(fitted, ids, options):
    input_ids, mask = ids
    together = fitted.generate(input_ids, mask, **options)
    assert len({tuple(row) for row in together.tolist()}) == 3
    alone = fitted.generate(input_ids[1:2, :41], mask[1:2, :41], **options)[
        0
    ]  # padded to 64, not to 128
    np.testing.assert_array_equal(alone, together[1][: len(alone)])
    assert (together[1][len(alone) :] == 0).all()
    wider = np.pad(input_ids, ((0, 0), (0, 50))), np.pad(mask, ((0, 0), (0, 50)))
    np.testing.assert_array_equal(fitted.generate(*wider, **options), together)
    order = [2, 0, 1]
    np.testing.assert_array_equal(
        fitted.generate(input_ids[order], mask[order], **options), together[order]
    )


def test_sampling_depends_on_the_seed(fitted, ids):
    drawn = {seed: fitted.generate(*ids, seed=seed, **SAMPLES).tolist() for seed in (0, 1)}
    assert drawn[0] != drawn[1]
    assert drawn[0] == fitted.generate(*ids, seed=0, **SAMPLES).tolist()


def test_mask_of_the_padding_is_the_default(fitted, ids):
    input_ids, mask = ids
    np.testing.assert_array_equal(
        fitted.encode(np.where(mask, input_ids, 0)), fitted.encode(input_ids, mask)
    )
    assert not np.array_equal(
        fitted.encode(input_ids, np.ones_like(mask)), fitted.encode(input_ids, mask)
    )


@pytest.mark.slow
def test_logits_with_targets_longer_than_sources(fitted, ids):
    input_ids, mask = ids
    targets = np.random.default_rng(1).integers(3, 100, (3, 71))
    logits = fitted.logits(input_ids, mask, targets)
    assert logits.shape == (3, 71, 100)
    one = fitted.logits(input_ids[2:, :9], None, targets[2:, :7])  # a prefix, without padding
    np.testing.assert_allclose(one[0], logits[2, :7], atol=1e-5)


# Summaries


@pytest.mark.slow
def test_summaries_report_what_was_read(model):
    text = "The quick brown fox jumps over the lazy dog. " * 2
    tokens = len(model.tokenizer.encode(text)) + 1
    assert 20 < tokens <= padding.BUCKET  # the same programs read all of it and its beginning
    [whole] = model.summaries(text)
    assert len(whole.coverage) == 10
    assert whole.report() == {
        "document_tokens": tokens,
        "read_tokens": tokens,
        "dropped_tokens": 0,
        "summary_tokens": 6,
        "ended": "limit",
        "unit": "tokens",
        "strategy": "direct",
        "coverage": whole.coverage,
    }
    [cut] = model.summaries(text, max_source_length=20)
    assert (cut.document_tokens, cut.read_tokens, cut.dropped_tokens) == (tokens, 20, tokens - 20)
    first_19 = model.tokenizer.encode(text)[:19]
    out = model.generate(np.array([[*first_19, model.tokenizer.eos_id]]))[0]
    assert cut.text == model.tokenizer.decode(out[1:].tolist())
    [exact] = model.summaries(text, max_source_length=tokens, on_overflow="error")
    assert exact == whole


def test_summary_that_ends_by_itself(model):
    text = "A document."
    ids = np.array([[*model.tokenizer.encode(text), model.tokenizer.eos_id]])
    first, second = model.generate(ids)[0, 1:3]
    assert first != second
    [summary] = model.summaries(text, eos_token_id=int(second))
    assert (summary.summary_tokens, summary.ended) == (2, "eos")


@pytest.mark.slow
def test_batches_of_documents_change_nothing(model):
    texts = [f"Document number {i}. " * (i + 1) for i in range(3)]
    for options in ({}, {"do_sample": True, "seed": 2}):
        singly = model.summarize(texts, **options)
        assert singly == model.summarize(texts, batch_size=2, **options)
        requests = (Request(text, "a document", None) for text in texts)
        stream = model.stream(requests, batch_size=2, **options)
        streamed = dict(result for batch in stream for result in batch)
        assert singly == [streamed[place].text for place in range(3)]
        assert singly[2] == model.summarize(texts[2], **options)[0]
    assert model.summarize([]) == []


@pytest.mark.slow
def test_several_sequences_of_every_document_by_generate(model):
    ids = np.array([[5, 6, 1], [7, 8, 1]])
    both = model.generate(ids, num_beams=2, num_return_sequences=2)
    assert both.shape[0] == 4
    for row in (0, 1):
        alone = model.generate(ids[row : row + 1], num_beams=2, num_return_sequences=2)
        np.testing.assert_array_equal(both[2 * row : 2 * row + 2, : alone.shape[1]], alone)


def test_repr_says_what_a_model_is(model, random_model):
    count = f"{model.num_parameters / 1000:.1f}K"
    assert repr(model) == (
        f"Model(locost, {count} parameters, s4d encoder attention, up to 16,777,216 tokens, "
        "float32)"
    )
    described = repr(random_model("bart", max_position_embeddings=40))
    assert "full encoder attention, up to 40 tokens, float32)" in described
    assert "full encoder attention, inputs of any length" in repr(random_model("t5"))
    segments = {"segments": {"segment_length": 40}}
    assert "segments of 40 tokens" in repr(random_model("bart", segments))


@pytest.mark.parametrize("use", [pickle.dumps, copy.copy, copy.deepcopy])
def test_pickles_and_copies_are_refused(model, use):
    with pytest.raises(InputError, match="a model cannot be pickled or copied; give processes the"):
        use(model)


def test_lengths_in_another_unit_than_those_of_the_checkpoint(random_model):
    of_new_tokens = random_model("t5", {"max_new_tokens": 9, "min_new_tokens": 4})
    options = of_new_tokens.summary_options(max_length=20, min_length=7)
    assert (options.max_new_tokens, options.min_new_tokens) == (19, 6)
    options = of_new_tokens.summary_options(max_new_tokens=3)
    assert (options.max_new_tokens, options.min_new_tokens) == (3, 3)
    with_start = random_model("t5", {"max_length": 10, "min_length": 5})
    options = with_start.summary_options(max_new_tokens=20, min_new_tokens=7)
    assert (options.max_new_tokens, options.min_new_tokens) == (20, 7)


def test_config_fingerprints_tell_models_of_the_same_weights_apart(random_model, tmp_path):
    model = random_model("t5")
    strided = [model.with_cross_attention("hepos", hepos_stride=stride) for stride in (2, 4)]
    others = [*strided, random_model("t5", {"prefix": "summarize: "})]
    assert {other.fingerprint for other in others} == {model.fingerprint}
    assert len({each.config_fingerprint for each in (model, *others)}) == 4
    others[-1].save(tmp_path / "model")
    loaded = longsum_jax.load(tmp_path / "model")
    assert loaded.config_fingerprint == others[-1].config_fingerprint


# Bad input


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda m: m.generate([[1, 1010]]), "input_ids holds 1010, outside the vocabulary of 1010"),
        (lambda m: m.generate([[1, -1]]), "input_ids holds -1, outside"),
        (lambda m: m.encode([[0.5]]), "input_ids has shape .1, 1. and type float64; give integers"),
        (lambda m: m.encode([1, 2]), "input_ids has shape .2,."),
        (lambda m: m.encode(np.zeros((1, 0), int)), "input_ids has shape .1, 0."),
        (
            lambda m: m.encode([[1, 2]], [[1]]),
            "attention_mask has shape .1, 1., input_ids .1, 2.; they must agree",
        ),
        (lambda m: m.logits([[1, 2]], None, [[1010]]), "decoder_input_ids holds 1010, outside"),
        (lambda m: m.logits([[1, 2]]), "decoder_input_ids is missing; give integers"),
        (lambda m: m.encode([[1, 2], [3]]), "input_ids has rows of different lengths; pad them"),
        (
            lambda m: m.logits([[1, 2]], None, [[1], [1]]),
            "decoder_input_ids has 2 rows, input_ids 1; they must agree",
        ),
        (
            lambda m: m.generate([[1]], num_beam=2),
            'unknown option "num_beam"; did you mean "num_beams"',
        ),
        (lambda m: m.summarize("x", query="y"), 'option "query"; did you mean "queries"'),
        (lambda m: m.summarize("x", batch=2), 'option "batch"; did you mean "batch_size"'),
        (
            lambda m: m.summarize(["x", " \n"]),
            "document 2 is empty; give it some text or leave it out",
        ),
        (
            lambda m: m.summarize(["x", "y " * 30], max_source_length=9, on_overflow="error"),
            r"document 2 has \d\d tokens, more than max_source_length=9; raise it, or allow "
            "on_overflow=truncate",
        ),
        (lambda m: m.summarize("x", batch_size=0), "batch_size=0 must be at least 1"),
        (lambda m: m.summarize("x", seed=2**63), "seed=9223372036854775808 must be below"),
        (lambda m: m.summarize("x", seed=None), "seed=None must be a whole number, at least 0"),
        (lambda m: m.summarize("x", batch_size="4"), 'batch_size="4"; give a number, or "auto"'),
        (
            lambda m: m.summarize("x", max_source_length=100.5),
            "max_source_length=100.5 must be a whole number, at least 2",
        ),
        (
            lambda m: m.summarize("x", segment_length="100"),
            "segment_length='100' must be a whole number",
        ),
        (lambda m: m.encode([[5]], bucket=0), "bucket=0 must be at least 1"),
        (lambda m: m.encode([[5]], layer=1.0), "layer=1.0 must be a whole number, at least 0"),
        (lambda m: m.encode([[5]], layer=99), r"layer=99, but this \w+ encoder has \d layers"),
        (lambda m: m.summaries(["x"], queries="why?"), "queries is a text; give a list of one"),
        (
            lambda m: m.summarize("x", on_overflow="eror"),
            'on_overflow="eror" is not known; did you mean "error"',
        ),
        (
            lambda m: m.logits([[5, 6]], [[1], [1, 1]], [[1]]),
            "attention_mask has rows of different lengths; pad them to one",
        ),
        (lambda m: m.stream([], batch_size=0), "batch_size=0 must be at least 1"),
        (lambda m: m.stream([], on_segment=print), 'or "memory", not for "auto"'),
        (
            lambda m: m.summarize(["x", "y"], num_beams=2, num_return_sequences=2),
            "num_return_sequences=2: a document gets one summary; use generate for several",
        ),
        (
            lambda m: m.encode(np.ones((1, 2**24 + 1), int)),
            "input_ids has 16,777,217 tokens, but state-space layers read at most 16,777,216; sho",
        ),
        (lambda m: m.summarize("x", max_source_length=1), "max_source_length=1 must be at least 2"),
    ],
)
def test_bad_arguments(model, call, problem):
    with pytest.raises(InputError, match=problem):
        call(model)


def test_documents_that_kernels_are_not_exact_for_are_refused(model, monkeypatch):
    monkeypatch.setattr(padding, "MAX_LENGTH", 1000)
    problem = (
        r"long.txt has \d,\d+ tokens, but state-space layers read at most 1,000; read its "
        r"beginning with max_source_length=16777216 \(--max_source_length=16777216\), or choose"
    )
    names = ["x.txt", "long.txt"]
    with pytest.raises(InputError, match=problem):
        model.summarize(["x", "y z " * 1000], names=names, strategy="direct")


@pytest.fixture(scope="module")
def random_model(tiny_tokenizer, draw_params):
    """random_model(family, **config): a tiny model with random weights and `tiny_tokenizer`."""
    from longsum_jax.models.registry import model_config, preset
    from longsum_jax.summarization.model import Model

    def make(name, summarization=None, **values):
        rows = {"vocab_size": tiny_tokenizer.vocab_size}
        family, config = model_config(preset(name, "tiny", **rows, **values))
        params = draw_params(family.init_params(config))
        return Model(family, config, params, tiny_tokenizer, {"max_new_tokens": 5}, summarization)

    return make


@pytest.mark.slow
def test_what_the_checkpoint_asks_for_when_summarising(
    random_model, tiny_tokenizer, tmp_path, with_programs_of
):
    """A prefix before every document and options of its own, both of which come along when
    saved."""
    plain = random_model("t5", tie_word_embeddings=False)
    own = {"prefix": "summarize: ", "max_length": 4, "num_beams": 2}
    asking = with_programs_of(plain, random_model("t5", own, tie_word_embeddings=False))
    text = "A language reference describes syntax."
    options = asking.summary_options()
    assert (options.max_new_tokens, options.num_beams) == (3, 2)
    assert asking.summary_options(num_beams=1, max_new_tokens=7).max_new_tokens == 7
    assert asking.generation_options().num_beams == 1  # of generate alone
    expected = plain.summaries("summarize: " + text, max_new_tokens=3, num_beams=2)
    assert asking.summaries(text) == expected
    assert expected[0].document_tokens == len(tiny_tokenizer.encode("summarize: " + text)) + 1
    asking.save(tmp_path / "copy")
    assert longsum_jax.load(tmp_path / "copy").summaries(text) == expected
    plain.summarization["prefix"] = "summarize: "  # also after the first summary
    assert plain.summaries(text, max_new_tokens=3, num_beams=2) == expected


@pytest.mark.slow
def test_inputs_end_where_the_positions_do(random_model):
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    model = random_model("bart", max_position_embeddings=40, **layers)
    ids = np.full((1, 41), 5)
    message = (
        "input_ids: 41 tokens, but this model has positions for 40; "
        ".*convert SRC DST --max_source_length=41"
    )
    with pytest.raises(InputError, match=message):
        model.encode(ids)
    assert model.encode(ids[:, :40]).shape == (1, 40, 64)
    with pytest.raises(InputError, match=r"max_new_tokens: 41 tokens.* give at most 40"):
        model.generate(ids[:, :4], max_new_tokens=41)
    with pytest.raises(InputError, match="decoder_input_ids: 41 tokens"):
        model.logits(ids[:, :4], None, ids)
    with pytest.raises(InputError, match="max_source_length: 41 tokens"):
        model.summaries("words " * 50, max_source_length=41, strategy="direct")
    (summary,) = model.summaries("words " * 50, strategy="direct")
    assert (summary.read_tokens, summary.dropped_tokens) == (40, summary.document_tokens - 40)
    longer = model.extended(60)
    assert longer.encode(ids).shape == (1, 41, 64)


@pytest.mark.parametrize(
    ("family", "call", "problem"),
    [
        (
            "bert",
            lambda m, ids: m.generate(ids),
            r"this model \(bert, head masked_lm\) cannot generate; use encode or logits",
        ),
        (
            "bert",
            lambda m, ids: m.logits(ids, None, ids),
            r"decoder_input_ids is given, but this model \(bert, head masked_lm\) computes logits",
        ),
        (
            "t5",
            lambda m, ids: m.encode(ids, token_type_ids=ids),
            "token_type_ids is given, but t5 .* does not support it",
        ),
        (
            "bert",
            lambda m, ids: m.encode(ids, token_type_ids=ids - ids[0, 0] - 1),
            "token_type_ids holds -1, but this model has type_vocab_size=2; give types from 0 to 1",
        ),
        (
            "roberta",
            lambda m, ids: m.encode(ids, token_type_ids=ids // ids),
            "token_type_ids holds 1, but this model has type_vocab_size=1; give types from 0 to 0",
        ),
        (
            "led",
            lambda m, ids: m.encode(ids, global_attention_mask=ids[:, :2]),
            r"global_attention_mask has shape \(1, 2\)",
        ),
        (
            "bart",
            lambda m, ids: m.encode(ids, global_attention_mask=ids),
            "bart with this attention does not support it",
        ),
    ],
)
def test_inputs_of_other_families(random_model, family, call, problem):
    with pytest.raises(InputError, match=problem):
        call(random_model(family), np.full((1, 4), 5))


def test_summaries_need_a_tokenizer(published):
    with pytest.raises(InputError, match="holds no tokenizer; load it with tokenizer=PATH"):
        longsum_jax.load(published()).summarize("text")


def test_no_text_begins_without_a_tokenizer(published):
    assert longsum_jax.load(published()).first_id is None


def test_tokenizer_larger_than_the_vocabulary(published, tiny_tokenizer, tmp_path):
    tiny_tokenizer.save(tmp_path / "tokenizer")
    with pytest.raises(
        InputError, match="the tokenizer has 1000 pieces but the checkpoint 100 embedding rows"
    ):
        longsum_jax.load(published(), tokenizer=tmp_path / "tokenizer")


def test_paths_that_are_no_model(tmp_path):
    (tmp_path / "file").write_text("")
    problems = {
        "nowhere": "no such directory; give a model directory or a training workdir",
        "file": "is a file; give its directory",
    }
    for name, problem in problems.items():
        with pytest.raises(InputError, match=f"{tmp_path / name}: {problem}"):
            longsum_jax.load(tmp_path / name)


def test_unknown_name_in_the_package():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = longsum_jax.no_such_name
