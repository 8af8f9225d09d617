"""Summaries segment by segment against a search that knows no cache; what is read, kept and
said."""

import dataclasses
import functools
import itertools
import json
import os
import shutil

import huggingface_hub
import jax
import numpy as np
import pytest

from longsum_jax import checksums
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Generated
from longsum_jax.errors import InputError
from longsum_jax.inference.auxiliary import load_auxiliary
from longsum_jax.inference.continuous import ContinuousBatch
from longsum_jax.models.registry import get_family
from longsum_jax.models.salient_vectors import empty_vectors, gather_vectors, store_vectors
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.model import Model
from longsum_jax.summarization.segments import _said
from longsum_jax.summarization.summary import Request
from longsum_jax.text.joining import num_words
from longsum_jax.text.prompts import NO_PROMPT
from longsum_jax.text.segment_inputs import SegmentInputOptions, read_segment_inputs

LONGEST = 6  # tokens of a segment's summary
SEGMENTS = {"segment_length": 48, "min_tokens": 16, "max_tokens": 24}
SIZES = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
}
SIZES |= {
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "max_position_embeddings": 64,
    "memory_size": 8,
}
SIZES |= {
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
    "init_std": 0.5,
    "memory_layers": "last1",
}
KINDS = {
    "attentive": ({"memory": "attentive"}, {"salient": "text"}),
    "compressive": (
        {"memory": "compressive", "memory_compression": 2, "salient_vectors": 40},
        {"salient": "vectors"},
    ),
}
ALL_KINDS = KINDS | {"none": ({"memory_layers": None}, {"salient": "text"})}


@pytest.fixture(scope="module")
def model(tiny_tokenizer, draw_params):
    @functools.cache
    def make(kind):
        options, reading = ALL_KINDS[kind]
        family = get_family("bart")
        config = family.config(SIZES | options | {"vocab_size": tiny_tokenizer.vocab_size})
        params = draw_params(family.init_params(config))
        reading = SEGMENTS | reading | {"num_vectors": config.memory.salient_vectors}
        return Model(
            family,
            config,
            params,
            tiny_tokenizer,
            {"max_new_tokens": LONGEST},
            {"segments": reading},
        )

    return make


@pytest.fixture(scope="module")
def texts(topics):
    """Documents of several, of many and of one segment."""
    return [
        " ".join(topics[0].split()[:70]),
        " ".join(topics[3].split()[:130]),
        "One sentence. And another.",
    ]


@functools.cache
def compiled_apply(model):
    def apply(params, *args, method, **inputs):
        return model.module.apply({"params": params}, *args, method=method, **inputs)

    compiled = jax.jit(apply, static_argnames="method")
    return functools.partial(compiled, model.params)


def likeliest(module, *arguments):
    """Tokens after those of a target, best first, and the memory with the target."""
    written, memory = module.write_segment(*arguments)
    return (-module.output_logits(written)).argsort(-1), memory


def ngrams(ids, size):
    return {tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)}


def slow_summary(model, text, query=None, size=0):
    """Greedy search that gives the decoder the whole target for every token, with memories for one
    document, and of the n-grams of a size says none again in a later segment."""
    config, params, tokenizer = model.config, model.params, model.tokenizer
    options = SegmentInputOptions(**model.summarization["segments"])
    reading = read_segment_inputs(text, tokenizer, options, query=query)
    apply = compiled_apply(model)
    arrays = [np.array([source + [0] * (48 - len(source))]) for source in reading.sources]
    masks = [np.arange(48)[None] < len(source) for source in reading.sources]
    retained, (slots, reads) = empty_vectors(config, 1), reading.vectors(options)
    if config.memory.salient_vectors:
        for ids, mask, slot in zip(arrays, masks, slots, strict=True):
            retained = apply(retained, ids, mask, slot[None], method=store_vectors)
    memory, said = model.module.apply({"params": params}, 1, 48, LONGEST, method="init_memory"), []
    spent = set()
    for ids, mask, read in zip(arrays, masks, reads, strict=True):
        inputs = (
            {"salient": gather_vectors(retained, read[None])}
            if config.memory.salient_vectors
            else {}
        )
        states, memory = apply(ids, mask, memory, method="read_segment", **inputs)
        target = np.zeros((1, LONGEST + 1), np.int32)
        for t in range(LONGEST):
            count = np.arange(LONGEST)[None] <= t
            following, after = apply(target[:, :-1], count, states, mask, memory, method=likeliest)
            before = tuple(target[0, t + 2 - size : t + 1]) if t + 2 > size else None
            best = [
                token
                for token in following[0, t].tolist()
                if before is None or (*before, token) not in spent
            ]
            target[0, t + 1] = best[0]
            if target[0, t + 1] == config.eos_token_id:
                break
        memory = after
        ids = target[0, 1 : t + 2].tolist()
        if size:
            spent |= ngrams([each for each in ids if each != config.eos_token_id], size)
        said.append(tokenizer.decode(ids).strip())
    return " ".join(part for part in said if part), len(reading.sources)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_summaries_equal_a_search_without_cache(model, texts, kind, monkeypatch):
    model = model(kind)
    result = model.summaries(texts, batch_size=2)
    counts = []
    for text, summary in zip(texts, result, strict=True):
        expected, count = slow_summary(model, text)
        counts.append(count)
        assert summary.text == expected
        num_tokens = len(model.tokenizer.encode(text)) + 1  # end of sequence
        assert summary.document_tokens == summary.read_tokens == num_tokens
        assert summary.summary_tokens <= count * LONGEST
    assert counts[0] > 2 < counts[1]
    assert counts[2] == 1
    # Three programs for documents of every length.
    by = model.segment_summarizer
    searches = []
    of_options = by._search.program._of

    def noted(sizes):
        searches.append(of_options(sizes).jitted)
        return of_options(sizes)

    monkeypatch.setattr(by._search.program, "_of", noted)
    assert model.summarize(texts[1], batch_size=2) == [result[1].text]
    programs = by._read_segment, *searches, by._write_segment
    assert {program._active()._cache_size() for program in programs} == {1}
    assert len(set(map(id, searches))) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), [("attentive", 2), ("compressive", 1), ("none", 2)])
def test_ngrams_of_earlier_segments_are_not_said_again(model, texts, kind, size, monkeypatch):
    model = model(kind)
    options = {"segments_no_repeat_ngram_size": size, "batch_size": 2}
    result = [summary.text for summary in model.summaries(texts, **options)]
    assert result == [slow_summary(model, text, size=size)[0] for text in texts]
    assert result[:2] != model.summarize(texts[:2], batch_size=2)
    assert result[2:] == model.summarize(texts[2:], batch_size=2)  # one segment
    by, outputs = model.segment_summarizer, []
    search = by._search

    def recorded(*arguments, **sizes):
        outputs.append(search(*arguments, **sizes))
        return outputs[-1]

    monkeypatch.setattr(by, "_search", recorded)
    for other in ({"num_beams": 2}, {"prompt_lookup_num_tokens": 2}, {"do_sample": True}):
        outputs.clear()
        again = model.summarize(texts[:2], **options | other)
        assert len(outputs) > 2
        for row in range(2):
            said = [out.sequences[row, 1 : 1 + out.lengths[row]] for out in outputs]
            ids = [[token for token in each.tolist() if token != 1] for each in said]
            of_each = [ngrams(each, size) for each in ids]
            assert sum(map(len, of_each)) == len(set.union(*of_each)) > 4
        if "prompt_lookup_num_tokens" in other:
            assert again == result[:2]


def test_tokens_around_every_summary_may_be_said_again(model):
    """Such as the start of BART's, which would else forbid every first word but its own."""
    options = GenerationOptions(
        max_new_tokens=4, decoder_start_token_id=2, eos_token_id=2, forced_bos_token_id=0
    )
    special = model("none").segment_summarizer._special_ids(options)
    assert {0, 1, 2} == special  # the tokenizer's end is 1
    sequences = np.array([[2, 0, 7, 8, 2], [2, 0, 9, 5, 6]])
    lengths = np.array([4, 3])
    out = Generated(sequences, lengths, ended=lengths == 4, scores=np.zeros(2))
    said = _said([out], 2, 3, 4, special)
    first = [[0, 8, 9, 0, 0], [0, 10, 6, 0, 0]]
    assert said.reshape(2, 4, 5)[:, 0].tolist() == first
    assert not said.reshape(2, 4, 5)[:, 1:].any()


def test_a_model_keeps_its_option_for_segments(model, texts, monkeypatch):
    """Written in one piece, its text has nothing to repeat; asked for there, it is refused."""
    trained = model("none")
    ids = np.arange(3, 15)[None]
    before = trained.generate(ids).tolist(), trained.summarize(texts, strategy="direct")
    own = {**trained.generation_config, "segments_no_repeat_ngram_size": 2}
    monkeypatch.setattr(trained, "generation_config", own)
    assert trained.summary_options().segments_no_repeat_ngram_size == 2
    assert (trained.generate(ids).tolist(), trained.summarize(texts, strategy="direct")) == before
    option = {"segments_no_repeat_ngram_size": 3}
    with pytest.raises(InputError, match=r"=3 is for strategy=.memory. .* not for generate"):
        trained.generate(ids, **option)
    with pytest.raises(InputError, match=r'=3 is for strategy=.memory. .* not for "segments"'):
        trained.summaries([], strategy="segments", **option)


@pytest.mark.slow
def test_segments_that_are_read_in_order_are_stored_as_others(model, texts):
    trained = model("none")
    stored = Model(
        trained.family,
        trained.config,
        trained.params,
        trained.tokenizer,
        trained.generation_config,
        trained.summarization,
        decoder_storage="int8",
    )
    said = []
    [[(_, summary)]] = stored.stream([Request(texts[1], "it", None)], on_segment=said.append)
    assert [summary.text] == stored.summarize(texts[1], batch_size=2)
    assert stored.segment_summarizer._search._stored is not None


@pytest.mark.parametrize("kind", ["attentive", "none"])
def test_forked_processes_are_told_so(model, texts, kind, monkeypatch):
    model = model(kind)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(InputError, match="this process was forked after the model was loaded"):
        model.summarize(texts[2])


@pytest.mark.slow
def test_segments_without_memory_are_decoded_in_slots(model, texts, monkeypatch):
    """Segments of all documents together; summaries are those of segments one after the other."""
    model = model("none")
    # As they come, segments go through the programs of memories.
    said = []
    requests = [Request(text, "a document", None) for text in texts]
    alone = [next(model.stream([each], on_segment=said.append))[0][1] for each in requests]
    sizes, decode = [], ContinuousBatch.decode

    def recorded(slots, documents):
        sizes.append(len(documents))
        return decode(slots, documents)

    monkeypatch.setattr(ContinuousBatch, "decode", recorded)
    assert model.summaries(texts, batch_size=4) == alone
    assert sizes == [len(said)]
    streamed = dict(itertools.chain(*model.stream(requests, batch_size=4)))
    assert [streamed[i] for i in range(len(texts))] == alone


@pytest.mark.slow
def test_beams_share_the_memory_and_the_best_one_is_remembered(model, texts):
    options = {"num_beams": 3, "no_repeat_ngram_size": 2}
    result = model("attentive").summarize(texts[0], **options)
    assert result != model("attentive").summarize(texts[0], batch_size=2)
    assert result == model("attentive").summarize(texts[0], **options)
    # The same segment by segment, as they come.
    said = []
    requests = [Request(texts[0], "first", None), Request(" ", "blank", None)]
    stream = model("attentive").stream(requests, on_segment=said.append, **options)
    [(place, summary)] = next(stream)
    assert (place, [summary.text]) == (0, result)
    assert len(said) > 2
    assert " ".join(filter(None, said)) == summary.text
    [(_, error)] = next(stream)
    assert str(error).startswith("blank is empty")
    with pytest.raises(InputError, match="batch_size=auto, but segments are shown"):
        model("attentive").stream([], on_segment=print, batch_size="auto")


@pytest.mark.slow
def test_segments_draw_anew_and_documents_that_have_ended_are_done(model, texts, monkeypatch):
    model = model("attentive")
    by, calls = model.segment_summarizer, []
    search = by._search

    def recorded(params, source, keys, *, is_done, **options):
        calls.append((jax.random.key_data(keys).tolist(), np.asarray(is_done).tolist()))
        return search(params, source, keys, is_done=is_done, **options)

    monkeypatch.setattr(by, "_search", recorded)
    model.summaries([texts[0], texts[2]], batch_size=2, do_sample=True)
    assert [is_done for _, is_done in calls] == [[False, False]] + [[False, True]] * len(calls[1:])
    assert len(calls) > 2
    assert all(keys[0] == keys[1] for keys, _ in calls)
    assert len({tuple(keys[0]) for keys, _ in calls}) == len(calls)


@pytest.mark.slow
def test_what_is_not_read_is_told(model, texts):
    model = model("attentive")
    whole = model.summaries(texts[1])[0]
    part = model.summaries(texts[1], max_source_length=60)[0]
    assert part.document_tokens == whole.document_tokens
    assert 0 < part.read_tokens <= 60 < whole.read_tokens
    assert part.dropped_tokens == part.document_tokens - part.read_tokens
    assert whole.document_tokens == len(model.tokenizer.encode(texts[1])) + 1  # end of sequence
    longest = whole.document_tokens
    [exact] = model.summaries(texts[1], max_source_length=longest, on_overflow="error")
    assert exact.text == whole.text
    with pytest.raises(InputError, match=f"has {longest} tokens, more than"):
        model.summaries(texts[1], max_source_length=longest - 1, on_overflow="error")
    with pytest.raises(
        InputError, match=r"document 1 has \d+ tokens, more than max_source_length=60"
    ):
        model.summaries(texts[1], max_source_length=60, on_overflow="error")
    with pytest.raises(InputError, match="document 2 is empty"):
        model.summaries([texts[0], " "])
    with pytest.raises(InputError, match=r'the query "why why .* leaves \d+ of 48 tokens'):
        model.summaries(texts[0], queries=["why " * 40])


def test_a_query_is_put_before_every_segment(model, texts):
    model = model("attentive")
    result = model.summaries(texts[:1], queries=["what of it?"])[0]
    assert result.text == slow_summary(model, texts[0], "what of it?")[0]


@pytest.mark.slow
def test_a_length_is_shared_out_among_the_segments(model, texts):
    model = model("attentive")
    [whole] = model.summaries(texts[0])
    assert whole.strategy == "memory"
    parts = []
    list(model.stream([Request(texts[0], "first", None)], on_segment=parts.append))
    assert " ".join(filter(None, parts)) == whole.text
    limit = num_words(whole.text) // 2
    [short] = model.summaries(texts[0], length=limit)
    assert 0 < num_words(short.text) <= max(limit, max(map(num_words, parts)))
    assert short.ended == "limit"
    assert short.summary_tokens < whole.summary_tokens
    said = []
    request = Request(texts[0], "first", None)
    [[(_, streamed)]] = list(model.stream([request], on_segment=said.append, length=limit))
    assert (" ".join(filter(None, said)), streamed) == (short.text, short)


@pytest.mark.slow
def test_other_strategies_read_each_segment_by_itself(model, texts):
    model = model("attentive")
    [direct] = model.summaries(texts[2], strategy="direct")
    ids = model.tokenizer.add_special_tokens(model.tokenizer.encode(texts[2]))
    out = model.generate(np.array([ids]))[0, 1:]
    assert direct.text == model.tokenizer.decode(out.tolist())
    [joined] = model.summaries([texts[2], texts[2]], strategy="segments", join=True)
    assert joined.strategy == "segments"
    reading = model.segment_summarizer.read(
        Request("One. Two.", "a", None, borders=(5,)), NO_PROMPT, None, "truncate"
    )
    assert [segment.start for segment in reading.document.segments] == [0, 5]


def test_a_changed_prefix_counts_from_the_next_summary_on(model, texts, monkeypatch):
    model = model("attentive")
    before = model.summaries(texts[0])
    monkeypatch.setitem(model.summarization, "prefix", "what of it? ")
    assert model.summaries(texts[0]) != before


@pytest.mark.slow
def test_saved_and_loaded_it_reads_as_before(model, texts, tmp_path, with_programs_of):
    model = model("compressive")
    model.save(tmp_path / "model")
    described = json.loads((tmp_path / "model" / "config.json").read_text())
    assert described["model_type"] == "longsum_jax/bart"
    assert described["memory"] == "compressive"
    loaded = with_programs_of(model, load(tmp_path / "model"))
    assert loaded.summarize(texts[0], batch_size=2) == model.summarize(texts[0], batch_size=2)


def test_segments_that_are_no_options_are_refused_when_they_are_used(model, texts, tmp_path):
    model("attentive").save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    described = json.loads(path.read_text())
    described["task_specific_params"]["summarization"]["segments"] = ["segment_length", 48]
    path.write_text(json.dumps(described))
    checksums.write(tmp_path / "model")
    loaded = load(tmp_path / "model")  # which can still encode, and be saved
    with pytest.raises(InputError, match=r"config\.json: segments: expected the keys"):
        loaded.summarize(texts[0])
    loaded.save(tmp_path / "copy")
    assert load(tmp_path / "copy").summarization == loaded.summarization


@pytest.fixture(scope="module")
def extractor_directory(tiny_tokenizer, draw_params, tmp_path_factory):
    """A saved extractor that also serves as sentence encoder."""
    family = get_family("bert")
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"num_hidden_layers": 1, "max_sentence_length": 24, "head": "extraction"}
    sizes["vocab_size"] = tiny_tokenizer.vocab_size
    config = dataclasses.replace(family.presets["tiny"], **sizes)
    params = draw_params(family.init_params(config))
    directory = tmp_path_factory.mktemp("auxiliary") / "extractor"
    Model(family, config, params, tiny_tokenizer).save(directory)
    return directory


@pytest.mark.slow
def test_extractor_and_sentence_encoder_travel_with_their_model(
    model, texts, extractor_directory, tmp_path, monkeypatch, with_programs_of
):
    plain = model("attentive")
    shutil.copytree(extractor_directory, tmp_path / "runs" / "extractor")
    monkeypatch.chdir(tmp_path)
    names = {"extractor": "runs/extractor", "sentence_encoder": str(extractor_directory)}
    segments = plain.summarization["segments"] | names
    parts = plain.family, plain.config, plain.params, plain.tokenizer, plain.generation_config
    auxiliary = load_auxiliary(SegmentInputOptions(**segments))
    with_models = with_programs_of(plain, Model(*parts, {"segments": segments}, auxiliary))
    expected = with_models.summarize(texts[0], batch_size=2)
    assert expected != plain.summarize(texts[0], batch_size=2)
    # They read before the model writes, and have left its device.
    for name in names:
        leaves = jax.tree.leaves(getattr(auxiliary, name)().params)
        assert {type(leaf) for leaf in leaves} == {np.ndarray}

    with_models.save("saved")
    described = json.loads((tmp_path / "saved" / "config.json").read_text())
    saved = described["task_specific_params"]["summarization"]["segments"]
    assert (saved["extractor"], saved["sentence_encoder"]) == ("extractor", "sentence_encoder")
    (tmp_path / "saved").rename(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    loaded = with_programs_of(plain, load(tmp_path / "elsewhere"))
    assert loaded.summarize(texts[0], batch_size=2) == expected
    loaded.save("again")
    for name in ("config.json", "extractor/model.safetensors", "sentence_encoder/config.json"):
        saved_again = (tmp_path / "empty" / "again" / name).read_bytes()
        assert saved_again == (tmp_path / "elsewhere" / name).read_bytes()


def test_auxiliary_models_are_never_asked_of_the_hub(model, texts, tmp_path, monkeypatch):
    def fetch(*args, **kwargs):
        raise AssertionError("asked the hub")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    plain = model("attentive")
    plain.save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    described = json.loads(path.read_text())
    segments = described["task_specific_params"]["summarization"]["segments"]
    segments["extractor"] = "runs/extractor"
    path.write_text(json.dumps(described))
    checksums.write(tmp_path / "model")
    loaded = load(tmp_path / "model")  # which can still encode
    message = r'config.json: segments.extractor names "runs/extractor", and there is no such'
    for use in (lambda: loaded.summarize(texts[0]), lambda: loaded.save(tmp_path / "copy")):
        with pytest.raises(InputError, match=message):
            use()
    assert not (tmp_path / "copy").exists()
    parts = plain.family, plain.config, plain.params, plain.tokenizer, plain.generation_config
    without = Model(*parts, loaded.summarization)
    with pytest.raises(
        InputError, match=r"segments\.extractor is runs/extractor, but the model was"
    ):
        without.summarize(texts[0])


def test_one_sequence_for_every_document(model, texts):
    with pytest.raises(InputError, match="num_return_sequences=2: a document gets one summary"):
        model("attentive").summarize(texts[:2], num_beams=2, num_return_sequences=2)
