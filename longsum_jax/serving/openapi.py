"""The OpenAPI document of the server, and a readable page of it."""

import dataclasses
import html
import types
import typing
from functools import cache
from typing import Any, Literal

from longsum_jax import __version__
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.schema import field_docs
from longsum_jax.summarization.summary import REPORTED, Summary
from longsum_jax.summarization.summary_options import (
    SummaryOptions,
    strategy_names,
)

_TYPES = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    type(None): "null",
}
_JSON = "application/json"
_EVENTS = "text/event-stream"
_TEXT = {"type": "string"}
_INTEGER = {"type": "integer"}
_BOOLEAN = {"type": "boolean", "default": False}
_ERRORS = {
    "400": "The body is malformed.",
    "401": "The API key is missing or wrong.",
    "404": "No model has this name.",
    "408": "The body arrived too slowly.",
    "413": "The body or a document is too large.",
    "415": "The content type is not accepted.",
    "422": "A document or an option is invalid.",
    "429": "The queue is full; see Retry-After.",
    "504": "The request took too long.",
}


def option_schemas() -> dict[str, Any]:
    """Returns the JSON schemas of the options of a summary by name."""
    schemas: dict[str, Any] = {}
    for config in (SummaryOptions, GenerationOptions):
        descriptions = field_docs(config)
        hints = typing.get_type_hints(config)
        for field in dataclasses.fields(config):
            if field.name in ("batch_size", "generation"):
                continue
            schema = _schema(hints[field.name])
            if field.name == "strategy":  # its type accepts names of others
                schema = {"enum": strategy_names()}
            if field.name in descriptions:
                schema["description"] = descriptions[field.name]
            schemas[field.name] = schema
    return schemas


def _schema(hint: Any) -> dict[str, Any]:
    """Returns the JSON schema of a type."""
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin in (typing.Union, types.UnionType):
        schemas = [
            _schema(item)
            for item in arguments
            if not dataclasses.is_dataclass(item)
        ]
        return {"anyOf": schemas}
    return _TEXT.copy()


def summary_schema() -> dict[str, Any]:
    """Returns the JSON schema of the answer of ``/v1/summaries`` for a document.

    A document that fails has ``error`` and ``status`` in place of a summary.
    """
    hints = typing.get_type_hints(Summary)
    descriptions = field_docs(Summary)
    reported = {
        name: {**_schema(hints[name]), "description": descriptions[name]}
        for name in REPORTED
    }
    return _object(
        {
            "document": _TEXT,
            "summary": _TEXT,
            **reported,
            "sources": {"type": "array", "items": {"type": "object"}},
            "document_text": _TEXT,
            **_error_schema()["properties"],
            "status": _INTEGER,
        }
    )


def _error_schema() -> dict[str, Any]:
    return _object({"error": _object({"message": _TEXT})})


def _answers() -> dict[str, Any]:
    """Returns the JSON schemas of the answers of POST requests, by path."""
    seconds = {"read": {"type": "number"}, "summarize": {"type": "number"}}
    summaries = {
        "model": _TEXT,
        "summaries": {"type": "array", "items": summary_schema()},
        "seconds": _object(seconds),
    }
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    choice = {
        "index": _INTEGER,
        "message": _object({"role": _TEXT, "content": _TEXT}),
        "finish_reason": {"enum": ["stop", "length"]},
    }
    chat = {
        "id": _TEXT,
        "object": _TEXT,
        "created": _INTEGER,
        "model": _TEXT,
        "choices": {"type": "array", "items": _object(choice)},
        "usage": _object(dict.fromkeys(names, _INTEGER)),
    }
    pipeline = _object({"summary_text": _TEXT})
    return {
        "/v1/summaries": _object(summaries),
        "/v1/chat/completions": _object(chat),
        "/summarization": {"type": "array", "items": pipeline},
    }


@cache
def openapi() -> dict[str, Any]:
    """Returns the OpenAPI 3.1 document."""
    options = option_schemas()
    answers: dict[str, Any] = {
        name: _BOOLEAN for name in ("sources", "document_text", "stream")
    }
    answers |= {"model": _TEXT, "query": _TEXT}
    texts = {"type": "array", "items": _TEXT}
    documents = {"text": _TEXT, "documents": texts}
    file = {"type": "string", "contentMediaType": "application/octet-stream"}
    message = {"role": {"enum": ["system", "user"]}, "content": _TEXT}
    chat = {
        "model": _TEXT,
        "messages": {"type": "array", "items": _object(message)},
        "max_tokens": _INTEGER,
        "max_completion_tokens": _INTEGER,
        "temperature": {"type": "number"},
        "stream": _BOOLEAN,
        "query": _TEXT,
    }
    inputs = {
        "model": _TEXT,
        "inputs": {"anyOf": [_TEXT, texts]},
        "parameters": _object(options),
    }
    summaries = _object({**documents, **answers, **options})
    form = _object({"file": file, **answers, **options})
    posts: dict[str, tuple[str, dict[str, Any]]] = {
        "/v1/summaries": (
            "Summarizes documents",
            {_JSON: summaries, "multipart/form-data": form},
        ),
        "/v1/chat/completions": (
            "Summarizes the user message, in the format of OpenAI",
            {_JSON: _object({**chat, **options}, "messages")},
        ),
        "/summarization": (
            "Summarizes texts, in the format of the Hub's inference API",
            {_JSON: _object(inputs, "inputs")},
        ),
    }
    answer_schemas = _answers()
    paths = {
        **{
            path: _post(summary, bodies, answer_schemas[path])
            for path, (summary, bodies) in posts.items()
        },
        "/": _get("Shows the page for people"),
        "/v1/models": _get("Lists the models"),
        "/v1/models/{name}": _get("Describes a model", "name"),
        "/health/live": _get("Answers while the process runs"),
        "/health/ready": _get("Answers 200 when the programs are compiled"),
        "/metrics": _get("Reports numbers in the text format of Prometheus"),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "longsum_jax", "version": __version__},
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}
        },
        # A server without --api_keys needs none.
        "security": [{}, {"key": []}],
    }


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema


def _post(
    summary: str, bodies: dict[str, Any], answer: dict[str, Any]
) -> dict[str, Any]:
    answers = {_JSON: answer}
    # A request without "stream" has no events.
    if any("stream" in body["properties"] for body in bodies.values()):
        answers[_EVENTS] = _TEXT
    responses = {"200": _described("The answer.", answers)}
    responses |= {
        status: _described(text, {_JSON: _error_schema()})
        for status, text in _ERRORS.items()
    }
    body = {"required": True, "content": _content(bodies)}
    return {
        "post": {
            "summary": summary,
            "requestBody": body,
            "responses": responses,
        }
    }


def _described(text: str, schemas: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": _content(schemas)}


def _content(schemas: dict[str, Any]) -> dict[str, Any]:
    """Returns the content of a body by media type."""
    return {name: {"schema": schema} for name, schema in schemas.items()}


def _get(summary: str, *parameters: str) -> dict[str, Any]:
    """Returns the description of a GET endpoint; ``parameters`` are parts of its path."""
    kind = {"in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "get": {
            "summary": summary,
            "parameters": [{"name": name, **kind} for name in parameters],
            "responses": {"200": {"description": "The answer."}},
        }
    }


@cache
def docs_page() -> str:
    """Returns the endpoints and options as HTML without scripts."""
    document = openapi()
    endpoints = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            endpoints.append(
                _row(f"{method.upper()} {path}", operation["summary"])
            )
    options = []
    for name, schema in option_schemas().items():
        options.append(_row(name, _kind(schema), schema.get("description", "")))
    errors = [_row(status, text) for status, text in _ERRORS.items()]
    tables = {"Endpoints": endpoints, "Options": options, "Errors": errors}
    body = ""
    for name, rows in tables.items():
        body += f"<h2>{name}</h2><table>{''.join(rows)}</table>"
    style = (
        "body{font:16px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em}"
        "td{border-top:1px solid #8886;padding:.3em .8em .3em 0;vertical-align:top}"
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>longsum_jax</title><style>{style}</style><h1>longsum_jax {__version__}</h1>"
        f'<p>The same as OpenAPI: <a href="openapi.json">openapi.json</a></p>{body}</html>'
    )


def _row(name: str, *cells: str) -> str:
    texts = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
    return f"<tr><td><code>{html.escape(name)}</code></td>{texts}</tr>"


def _kind(schema: dict[str, Any]) -> str:
    """Returns the type of an option in words."""
    if "anyOf" in schema:
        return " or ".join(_kind(item) for item in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    return str(schema["type"])
