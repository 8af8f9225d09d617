"""Chat models as judges: requests for any endpoint, and parsed replies from a file.

LOCOST prompts GPT-3.5 to rate a summary on four axes from 1 to 5 (Le Bronnec et
al., 2024, appendix I). The prompt here has the same parts in the same order, in
our own words.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from longsum_jax.errors import InputError
from longsum_jax.evaluation.comparison import Prediction
from longsum_jax.evaluation.predictions import Pair
from longsum_jax.experimental.judging.judging import Key, Question, instructions
from longsum_jax.experimental.judging.sheets import SUMMARY, Answers
from longsum_jax.files import parse_json
from longsum_jax.text.rows import read_rows

PROTOCOL = "locost"
# placeholders of prompts
REQUIRED, OPTIONAL = ("document", "summary"), ("query", "reference")


class Replies(NamedTuple):
    """The parsed replies of a chat model.

    Attributes:
        answers: answers by item, in the format of human judges' sheets.
        unparsable: items whose reply lacks the answer to a question.
        missing: items without a reply, or with a failed request.
    """

    answers: Answers
    unparsable: list[str]
    missing: list[str]


def requests(
    key: Key,
    pairs: Mapping[str, Pair],
    systems: Mapping[str, Mapping[str, Prediction]],
    model: str,
    temperature: float = 0.0,
    prompt: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Yields one request per item, in the batch format of OpenAI's chat endpoint.

    Args:
        key: key of the items, whose names become custom_id.
        pairs: documents by id.
        systems: predictions by id, by system name.
        model: model name for the endpoint.
        temperature: sampling temperature.
        prompt: message with the placeholders ``REQUIRED`` and ``OPTIONAL``;
            None for the default.
    """
    for name, item in key.items.items():
        pair = pairs[item.document]
        summary = systems[item.system][item.document].text
        template = prompt or default_prompt(key, has_query=bool(pair.query))
        yield {
            "custom_id": name,
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": model,
                "temperature": temperature,
                "messages": [
                    {
                        "role": "user",
                        "content": _filled(template, pair, summary),
                    }
                ],
            },
        }


def default_prompt(key: Key, has_query: bool = False) -> str:
    """Returns the prompt for a key: task, axes, document, summary, reply format."""
    parts = [instructions(key), "Document: {document}"]
    if has_query:
        parts.append("The summary should answer: {query}")
    parts.append("Summary: {summary}")
    parts.append("Reply in this form, with a number in every line:")
    parts.append(
        "\n".join(
            f"{question.name.capitalize()}:" for question in key.of_summaries
        )
    )
    return "\n\n".join(parts)


def _filled(template: str, pair: Pair, summary: str) -> str:
    """Returns a template with all placeholders replaced at once, as texts may contain braces."""
    values = {
        "document": pair.source,
        "summary": summary,
        "query": pair.query or "",
        "reference": pair.reference,
    }
    names = "|".join(values)
    return re.sub(rf"\{{({names})\}}", lambda match: values[match[1]], template)


def read_replies(path: str | Path, key: Key) -> Replies:
    """Reads the replies to ``requests``, in any order.

    Rows are {"custom_id", "response"} of OpenAI's batches, in which the
    response or its body is a chat completion, or {"custom_id", "content"} with
    the text of the reply.

    Raises:
        InputError: a key of judging sheets, a row without custom_id, an unknown
            or duplicate item.
    """
    if key.protocol != PROTOCOL:
        raise InputError(
            f"the key is of sheets for --protocol={key.protocol}; read these with longsum judge "
            "aggregate"
        )
    replies: dict[str, str | None] = {}
    for number, row in read_rows(path):
        item = row.get("custom_id")
        if not isinstance(item, str) or item not in key.items:
            raise InputError(
                f'{path}:{number}: the custom_id "{item}" is not in the key; give the key.json '
                "that was written with the requests"
            )
        if item in replies:
            raise InputError(
                f'{path}:{number}: duplicate custom_id "{item}"; keep one'
            )
        replies[item] = _reply(row)
    result = Replies({}, [], [])
    for item in key.items:
        text = replies.get(item)
        if text is None:
            result.missing.append(item)
            continue
        answers = parse_reply(text, key.of_summaries)
        result.answers[item] = {SUMMARY: answers}
        if len(answers) < len(key.of_summaries):
            result.unparsable.append(item)
    return result


def parse_reply(text: str, questions: Sequence[Question]) -> dict[str, float]:
    """Returns the answers in a reply; ambiguous or missing ones are omitted.

    The last JSON object in the text is used, otherwise "name: number", "name =
    number" or "**name** - number", also with "(1-5)" before or "/5" after it. A
    number that is not a valid answer is ignored, as are two different numbers.
    """
    values = _json_values(text)
    answers = {}
    for question in questions:
        if values is not None:
            value = values.get(question.name)
        else:
            value = _named(text, question)
        if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,9}\s*", value):
            value = int(value)
        is_number = isinstance(value, int | float) and not isinstance(
            value, bool
        )
        if is_number and value in question.answers:
            answers[question.name] = float(value)
    return answers


def _json_values(text: str) -> dict[str, Any] | None:
    """Returns the last JSON object in a text, which may follow reasoning."""
    for content in reversed(re.findall(r"\{[^{}]*\}", text)):
        try:
            values = parse_json(content)
        except ValueError:
            continue
        return {
            str(name).strip().lower(): value for name, value in values.items()
        }
    return None


def _named(text: str, question: Question) -> float | None:
    """Returns the number after the name of a question; None unless there is exactly one."""
    name = re.escape(question.name).replace("_", "[_ ]")
    highest = question.answers[-1]
    # but not the start of a range like 1-5
    number = r"(-?\d+(?:\.\d+)?)(?!\d|\.\d|\s*-\s*\d)"
    scale = r"(?:\s*(?:/|out of)\s*(\d+))?"
    pattern = rf"\b{name}\b(?:\s*\([^)]*\))?[\s*]*[:=-][\s*]*{number}{scale}"
    numbers = set()
    for value, out_of in re.findall(pattern, text, re.IGNORECASE):
        if out_of and int(out_of) != highest:
            return None
        numbers.add(float(value))
    return numbers.pop() if len(numbers) == 1 else None


def _reply(row: Mapping[str, Any]) -> str | None:
    """Returns the text of a row's reply; None if the request failed."""
    if isinstance(row.get("content"), str):
        return row["content"]
    response = row.get("response")
    if not isinstance(response, dict):
        return None
    completion = response.get("body", response)
    try:
        text = completion["choices"][0]["message"]["content"]
    except (IndexError, KeyError, TypeError):
        return None
    return text if isinstance(text, str) else None
