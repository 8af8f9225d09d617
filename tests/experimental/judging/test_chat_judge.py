"""Requests for chat endpoints, and replies as chat models write them."""

import json
import re

import pytest

from longsum_jax.errors import InputError
from longsum_jax.evaluation.comparison import Prediction
from longsum_jax.evaluation.predictions import Pair
from longsum_jax.experimental.judging.chat_judge import parse_reply, read_replies, requests
from longsum_jax.experimental.judging.judging import PROTOCOLS, make_key

PAIRS = {"a": Pair("a", "A long text.", "x"), "b": Pair("b", "A meeting.", "x", "Who came?")}
SYSTEMS = {
    system: {name: Prediction(f"{system} on {name}") for name in PAIRS} for system in ("s1", "s2")
}
QUESTIONS = PROTOCOLS["locost"].of_summaries
ALL_FOUR = {"relevance": 4, "consistency": 5, "fluency": 3, "coherence": 1}


@pytest.fixture(scope="module")
def key():
    return make_key("locost", list(PAIRS.values()), SYSTEMS, documents=2)


def completion(content):
    return {"choices": [{"message": {"role": "assistant", "content": content}}]}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_every_summary_has_a_request(key):
    rows = list(requests(key, PAIRS, SYSTEMS, "some-model"))
    assert [row["custom_id"] for row in rows] == list(key.items)
    for row in rows:
        item = key.items[row["custom_id"]]
        assert re.fullmatch(r"[a-zA-Z0-9-]{1,64}", row["custom_id"])
        assert (row["method"], row["url"]) == ("POST", "/v1/chat/completions")
        assert row["body"]["model"] == "some-model"
        [message] = row["body"]["messages"]
        pair = PAIRS[item.document]
        texts = (pair.source, f"{item.system} on {item.document}")
        for text in (*texts, *(question.text for question in QUESTIONS)):
            assert message["content"].count(text) == 1
        # The order of the paper's appendix I: task, axes, document, summary, form of the reply.
        positions = [message["content"].index(text) for text in (QUESTIONS[0].text, *texts)]
        assert positions == sorted(positions)
        assert ("Who came?" in message["content"]) == (item.document == "b")


def test_the_form_in_the_prompt_is_what_replies_are_read_by(key):
    content = next(requests(key, PAIRS, SYSTEMS, "m"))["body"]["messages"][0]["content"]
    form = content.splitlines()[-4:]
    reply = "\n".join(f"{line} {value}" for line, value in zip(form, (4, 5, 3, 1), strict=True))
    assert parse_reply(reply, QUESTIONS) == ALL_FOUR


def test_a_prompt_of_the_users_replaces_ours(key):
    pairs = {name: pair._replace(source="{summary} \\1") for name, pair in PAIRS.items()}
    template = 'Rate {"x": 1} {document}|{summary}|{query}|{reference}'
    rows = requests(key, pairs, SYSTEMS, "m", prompt=template)
    for row in rows:
        item = key.items[row["custom_id"]]
        pair = pairs[item.document]
        summary = f"{item.system} on {item.document}"
        assert row["body"]["messages"][0]["content"] == (
            f'Rate {{"x": 1}} {pair.source}|{summary}|{pair.query or ""}|x'
        )


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ALL_FOUR),
        "Some thoughts {on it}.\n```json\n" + json.dumps(ALL_FOUR, indent=1) + "\n```",
        '{"Relevance": "4", "Consistency": 5.0, "Fluency": 3, "Coherence": 1, "why": "x"}',
        "Relevance: 4\nConsistency: 5\nFluency: 3\nCoherence: 1",
        "- **Relevance**: 4/5\n- **Consistency:** 5/5\n- fluency = 3 out of 5\n- Coherence - 1.",
        "Relevance (1-5): 4, Consistency (1-5): 5, Fluency (1-5): 3, Coherence (1-5): 1",
    ],
)
def test_replies_are_parsed(text):
    assert parse_reply(text, QUESTIONS) == ALL_FOUR


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("A good summary.", {}),
        ("4 5 3 1", {}),
        ("Relevance: 4.5, consistency: 6, fluency: 0, coherence: -1", {}),
        ("Relevance: 4/10\nConsistency: 5", {"consistency": 5}),
        ("Relevance: 1-5\nFluency: 2", {"fluency": 2}),
        ("Relevance: 4\nor rather\nRelevance: 2", {}),
        ("Relevance: 45", {}),
        ('{"relevance": true, "fluency": null, "coherence": 2}', {"coherence": 2}),
    ],
)
def test_what_is_not_clearly_an_answer_is_none(text, expected):
    assert parse_reply(text, QUESTIONS) == expected


def test_unparsable_and_missing_replies_are_told_apart(key, tmp_path):
    first, second, third, fourth = key.items
    text = json.dumps(ALL_FOUR)
    rows = [
        {"custom_id": third, "response": {"body": completion("Relevance: 2")}, "error": None},
        {"custom_id": first, "response": {"status_code": 200, "body": completion(text)}},
        {"custom_id": second, "response": None, "error": {"message": "too long"}},
    ]
    replies = read_replies(write(tmp_path / "answers.jsonl", rows), key)
    assert replies.answers == {first: {0: ALL_FOUR}, third: {0: {"relevance": 2}}}
    assert replies.unparsable == [third]
    assert replies.missing == [second, fourth]
    rows = [
        {"custom_id": first, "content": text},
        {"custom_id": second, "response": completion(text)},
    ]
    replies = read_replies(write(tmp_path / "plain.jsonl", rows), key)
    assert replies.answers == {first: {0: ALL_FOUR}, second: {0: ALL_FOUR}}


def test_replies_that_do_not_fit(key, tmp_path):
    row = {"custom_id": next(iter(key.items)), "content": "x"}
    with pytest.raises(InputError, match=r"answers\.jsonl:2: duplicate custom_id"):
        read_replies(write(tmp_path / "answers.jsonl", [row, row]), key)
    for other in ({"custom_id": "x-1"}, {"content": "x"}, {"custom_id": ["x"]}):
        with pytest.raises(InputError, match=r"answers\.jsonl:1: the custom_id .* not in the key"):
            read_replies(write(tmp_path / "answers.jsonl", [other]), key)


def test_replies_need_a_key_of_requests(tmp_path):
    key = make_key("awesome", list(PAIRS.values()), SYSTEMS, documents=2)
    path = write(tmp_path / "answers.jsonl", [])
    with pytest.raises(InputError, match="the key is of sheets for --protocol=awesome; read these"):
        read_replies(path, key)
