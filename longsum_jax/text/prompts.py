"""Prompts: the text around a document in the input of a model.

Every input consists of the tokens before a document, of the document, and of
the tokens after it. Special tokens of a prompt are ids already, so that a
tokenizer for plain text (``Tokenizer.plain``) encodes everything else.
"""

import dataclasses
import re
from collections.abc import Iterable
from typing import NamedTuple

from longsum_jax.errors import InputError
from longsum_jax.text.joining import cut_documents, document_token_id
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.chat_template import REMEDY, render_chat

# for models with a chat template
INSTRUCTION = "Summarize the following document."
_DOCUMENT, _QUERY = "{document}", "{query}"
_FIELD = re.compile(r"(\{document\}|\{query\})")
# In place of the fields when a chat template is rendered.
_MARKS = {_DOCUMENT: "\ufdd1document\ufdd1", _QUERY: "\ufdd1query\ufdd1"}
_MARK = re.compile("|".join(_MARKS.values()))
_FIELD_OF_MARK = {mark: field for field, mark in _MARKS.items()}


class PromptedIds(NamedTuple):
    """The tokens of an input without the special tokens around it.

    Attributes:
        head: tokens up to the end of the document.
        tail: tokens after the document.
    """

    head: list[int]
    tail: list[int]


@dataclasses.dataclass(frozen=True)
class Prompt:
    """The text around a document.

    Attributes:
        before, after: parts of the text before and after the document: texts,
            ids of special tokens, and None for the query.
        query: text of the query, with the field "{query}".
        needs_query: True if every document must have a query; otherwise a
            missing query is the empty text. None if documents must not have a
            query.
        is_complete: True if no special tokens are added around the input.
    """

    before: tuple[str | int | None, ...] = (None,)
    after: tuple[str | int | None, ...] = ()
    query: str = _QUERY + "\n"
    needs_query: bool | None = False
    is_complete: bool = False

    def encode(
        self, tokenizer: Tokenizer, document: str, query: str | None
    ) -> PromptedIds:
        """Returns the tokens of an input without the special tokens around it.

        Args:
            tokenizer: tokenizer for plain text.
            document: text of the document.
            query: query of the document.

        Raises:
            InputError: the query is missing, or the prompt has no field for it.
        """
        ids, lead = self._lead(tokenizer, query)
        head = ids + tokenizer.encode(lead + self._text(document))
        ids, end = _encode_parts(tokenizer, self._texts(self.after, query))
        return PromptedIds(head, ids + tokenizer.encode(end) if end else ids)

    def document_ends(
        self, tokenizer: Tokenizer, document: str, query: str | None
    ) -> list[int]:
        """Returns the end of every token of the head in the document.

        Args:
            tokenizer, document, query: arguments of ``encode``.

        Returns:
            Character offsets; 0 and below for tokens before the document.
        """
        ids, lead = self._lead(tokenizer, query)
        spans = tokenizer.spans(lead + self._text(document))
        return [0] * len(ids) + [end - len(lead) for _, end in spans]

    def source(
        self,
        tokenizer: Tokenizer,
        prompted: PromptedIds,
        limit: int | None = None,
    ) -> list[int]:
        """Returns the ids of an input, with special tokens.

        Args:
            tokenizer: tokenizer of the model.
            prompted: result of ``encode``.
            limit: maximum number of ids; the end of the document is truncated,
                or of several documents each, see ``joining.cut_documents``.

        Raises:
            InputError: the limit leaves no room for special tokens.
        """
        head, tail = prompted
        if self.is_complete:
            num_added = 0
        else:
            num_added = len(tokenizer.add_special_tokens([]))
        if limit is not None and len(head) + len(tail) + num_added > limit:
            room = limit - len(tail) - num_added
            if room < 0:
                raise InputError(
                    f"length {limit} leaves no room for the {len(tail) + num_added} tokens after a "
                    "document and around it; give a larger one"
                )
            head = cut_documents(head, document_token_id(tokenizer), room)
        ids = head + tail
        if self.is_complete:
            return ids
        return tokenizer.add_special_tokens(ids)

    def num_before(self, tokenizer: Tokenizer) -> int:
        """Returns the number of special tokens before the head."""
        if self.is_complete:
            return 0
        return len(tokenizer.prefix_ids)

    def _text(self, document: str) -> str:
        # Chat templates strip messages.
        if self.is_complete:
            return document.rstrip()
        return document

    def _lead(
        self, tokenizer: Tokenizer, query: str | None
    ) -> tuple[list[int], str]:
        """Returns the ids before the document, and the text directly before it."""
        self._check_query(query)
        return _encode_parts(tokenizer, self._texts(self.before, query))

    def _texts(
        self, parts: Iterable[str | int | None], query: str | None
    ) -> Iterable[str | int]:
        if query:
            text = self.query.replace(_QUERY, query)
        else:
            text = ""
        return [text if part is None else part for part in parts]

    def _check_query(self, query: str | None) -> None:
        if self.needs_query is None and query:
            raise InputError(
                f'the prompt has no {_QUERY} for the query "{query[:60]}"; add it to the prompt'
            )
        if self.needs_query and not query:
            raise InputError(
                f"the prompt contains {_QUERY}, but the document has no query; give one"
            )


NO_PROMPT = Prompt()


def prefix_prompt(prefix: str, tokenizer: Tokenizer | None = None) -> Prompt:
    """Returns the prompt of a model that reads prefix, query and document.

    Args:
        prefix: text before every query and document.
        tokenizer: tokenizer whose special tokens the prefix may contain.
    """
    parts: list[str | int] = [prefix] if prefix else []
    if tokenizer is not None:
        parts = _split_special(prefix, tokenizer)
    return dataclasses.replace(NO_PROMPT, before=(*parts, None))


def make_prompt(
    tokenizer: Tokenizer, template: str | None, prefix: str | None
) -> Prompt:
    """Returns the prompt of a model.

    Args:
        tokenizer: tokenizer of the model, possibly with a chat template.
        template: text with the field "{document}" and possibly "{query}"; with
            a chat template, the message of the user. None for the model's
            default.
        prefix: text before every document that the model was trained with; None
            if it has none.

    Raises:
        InputError: a template without "{document}" or with two, or a chat
            template that fails.
    """
    chat = None
    if prefix is None:
        chat = tokenizer.chat_template
    if template is None and chat is None:
        return prefix_prompt(prefix or "", tokenizer)
    query, needs_query = _QUERY, template is not None
    if template is None:
        template = f"{INSTRUCTION}{_QUERY}\n\n{_DOCUMENT}"
        query = f" Answer this question: {_QUERY}"
    if template.count(_DOCUMENT) != 1:
        raise InputError(
            f"the prompt must contain {_DOCUMENT} once, not {template.count(_DOCUMENT)} "
            "times; mark the position of the document"
        )
    has_query = _QUERY in template
    if chat is not None:
        template = _chat_text(tokenizer, chat, template)
    before, after = template.split(_DOCUMENT)
    return Prompt(
        tuple(_parts(before, tokenizer)),
        tuple(_parts(after, tokenizer)),
        query,
        needs_query if has_query else None,
        chat is not None,
    )


def _chat_text(tokenizer: Tokenizer, chat: str, template: str) -> str:
    """Returns a conversation whose only message is the template, with its fields."""
    content = _FIELD.sub(lambda field: _MARKS[field[0]], template)
    messages = [{"role": "user", "content": content}]
    text = render_chat(chat, messages, tokenizer.named_tokens)
    text = _MARK.sub(lambda mark: _FIELD_OF_MARK[mark[0]], text)
    if text.count(_DOCUMENT) != 1:
        raise InputError(
            f"the model's chat template changes the message of the user; {REMEDY}"
        )
    return text


def _parts(text: str, tokenizer: Tokenizer) -> list[str | int | None]:
    """Returns the texts, special tokens and query fields (None) of a part of a prompt."""
    parts: list[str | int | None] = []
    for number, literal in enumerate(text.split(_QUERY)):
        if number:
            parts.append(None)
        parts += _split_special(literal, tokenizer)
    return parts


def _split_special(text: str, tokenizer: Tokenizer) -> list[str | int]:
    """Returns the ids of the special tokens in a text, and the texts between them."""
    if not text:
        return []
    parts: list[str | int] = []
    end = 0
    tokens = zip(tokenizer.encode(text), tokenizer.spans(text), strict=True)
    for index, (start, stop) in tokens:
        if index in tokenizer.control_ids:
            parts += [text[end:start], index]
            end = stop
    parts.append(text[end:])
    return [part for part in parts if part != ""]


def _encode_parts(
    tokenizer: Tokenizer, parts: Iterable[str | int]
) -> tuple[list[int], str]:
    """Returns the ids up to the last special token, and the text after it."""
    ids: list[int] = []
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        ids += [*(tokenizer.encode(text) if text else []), part]
        text = ""
    return ids, text
