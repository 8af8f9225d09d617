"""The format of OpenAI's chat completions."""

import time
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

from longsum_jax.serving.bodies import boolean
from longsum_jax.summarization.summary import Request, Summary

# Fields without effect on a summary.
_IGNORED = (
    *(
        "metadata",
        "store",
        "user",
        "safety_identifier",
        "service_tier",
    ),
    *("prompt_cache_key", "parallel_tool_calls", "stream", "stream_options"),
    *("reasoning_effort", "verbosity"),
)
# The fields of sampling: without effect on a ranker, which does not sample.
_SAMPLING = ("temperature", "top_p", "seed")
# Fields that would change the answer, with the values that do not.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "stop": ([],),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "logprobs": (False,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "top_logprobs": (0,),
}


class ChatRequest(NamedTuple):
    """The parts of a body of ``/v1/chat/completions``.

    Attributes:
        document: the user message.
        options: arguments of ``Model.summaries``.
        streams: True if the answer is sent in chunks.
        includes_usage: True if the last chunk counts tokens.
    """

    document: Request
    options: dict[str, Any]
    streams: bool
    includes_usage: bool


def parse_chat(fields: Mapping[str, Any], *, has_model: bool) -> ChatRequest:
    """Returns the document and the options of a body.

    A temperature above 0 samples with it, 0 does not sample; null or no
    temperature leaves the choice to the model's config. Options of
    ``Model.summaries`` and ``query`` may be added to the body. The ranker counts
    words instead of tokens, and does not sample.

    Args:
        fields: body without the name of the model.
        has_model: True for a model, False for the bundled ranker.

    Raises:
        HTTPException: 422 for messages without a single user message, and for
            fields that summaries do not have.
    """
    options = dict(fields)
    text = _user_message(options.pop("messages", None))
    for name, values in _NEUTRAL.items():
        value = options.pop(name, None)
        if value is not None and value not in values:
            raise HTTPException(
                422, f"{name} is not supported by this server; leave it out"
            )
    stream_options = options.get("stream_options") or {}
    if not isinstance(stream_options, dict):
        raise HTTPException(422, "stream_options must be an object")
    includes_usage = boolean(stream_options, "include_usage")
    streams = boolean(options, "stream")
    for name in _IGNORED:
        options.pop(name, None)
    for name in ("max_tokens", "max_completion_tokens"):
        limit = options.pop(name, None)
        if limit is None:
            continue
        if type(limit) is not int or limit < 1:
            raise HTTPException(
                422, f"{name} must be a whole number, at least 1"
            )
        if has_model:
            options["max_new_tokens"] = limit
        else:
            options.setdefault("length", limit)
    if not has_model:
        for name in _SAMPLING:
            options.pop(name, None)
    temperature = options.pop("temperature", None)
    if temperature:
        options |= {"temperature": temperature, "do_sample": True}
        # Beams and drafts cannot be sampled. In the model's config they are
        # defaults; in the body they are refused.
        for name, value in (("num_beams", 1), ("prompt_lookup_num_tokens", 0)):
            if options.get(name) is None:
                options[name] = value
    elif temperature is not None and has_model:
        options["do_sample"] = False
    query = options.pop("query", None)
    options = {
        name: value for name, value in options.items() if value is not None
    }
    document = Request(text, "the user message", query)
    return ChatRequest(document, options, streams, includes_usage)


def _user_message(messages: Any) -> Any:
    """Returns the text of the user message; system messages are ignored."""
    if not isinstance(messages, list) or not all(
        isinstance(item, dict) for item in messages
    ):
        raise HTTPException(422, "messages must be a list of objects")
    contents = [
        item.get("content") for item in messages if item.get("role") == "user"
    ]
    if len(contents) != 1:
        raise HTTPException(
            422, "messages must hold one user message, the document"
        )
    [content] = contents
    if not isinstance(content, list):
        return content
    texts = []
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            raise HTTPException(
                422, "the parts of a message must be of type text"
            )
        texts.append(part["text"])
    return "".join(texts)


class ChatAnswer:
    """Builds the answer or its chunks.

    Args:
        model: name of the model.
        kind: "chat.completion" or "chat.completion.chunk".
    """

    def __init__(self, model: str, kind: str) -> None:
        self._fields: dict[str, Any] = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, summary: Summary) -> dict[str, Any]:
        """Returns the answer with the whole summary."""
        message = {"role": "assistant", "content": summary.text}
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": _reason(summary),
        }
        return {**self._fields, "choices": [choice], "usage": _usage(summary)}

    def chunk(
        self, summary: Summary | None = None, **delta: str
    ) -> dict[str, Any]:
        """Returns a chunk: the part in ``delta``, or the end of a summary."""
        if summary is None:
            reason = None
        else:
            reason = _reason(summary)
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {**self._fields, "choices": [choice]}

    def usage(self, summary: Summary) -> dict[str, Any]:
        """Returns the chunk that counts tokens."""
        return {**self._fields, "choices": [], "usage": _usage(summary)}


def _reason(summary: Summary) -> str:
    return "stop" if summary.ended == "eos" else "length"


def _usage(summary: Summary) -> dict[str, int]:
    return {
        "prompt_tokens": summary.read_tokens,
        "completion_tokens": summary.summary_tokens,
        "total_tokens": summary.read_tokens + summary.summary_tokens,
    }
