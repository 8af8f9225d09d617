"""Chat templates: the text of a conversation for instruction-tuned models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from longsum_jax.errors import InputError, first_line
from longsum_jax.schema import shortened

REMEDY = (
    "correct chat_template.jinja, or chat_template in tokenizer_config.json, "
    "or remove it"
)


def default_template(value: Any, where: str | Path) -> str | None:
    """Returns the chat template in a tokenizer's config, None without one.

    Args:
        value: template, or a list of named templates, of which the one with the
            name "default" is used.
        where: name of the file, for error messages.

    Raises:
        InputError: a value of another type.
    """
    if isinstance(value, list):
        named = [
            entry.get("template")
            for entry in value
            if isinstance(entry, Mapping) and entry.get("name") == "default"
        ]
        value = named[-1] if named else None
    if value is None or isinstance(value, str):
        return value
    raise InputError(
        f"{where}: chat_template must be a string, got {shortened(value)}"
    )


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, str]],
    tokens: Mapping[str, str],
) -> str:
    """Returns a conversation up to the beginning of the model's answer.

    The template runs in a sandbox, with the settings of transformers'
    ``apply_chat_template``.

    Args:
        template: Jinja template.
        messages: messages with the keys "role" and "content".
        tokens: texts of the named special tokens, such as "bos_token".

    Raises:
        InputError: the template is invalid or fails, or jinja2 is not
            installed.
    """
    try:
        from jinja2 import TemplateError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise InputError(
            "the model has a chat template, which needs jinja2; pip install 'longsum_jax[hf]'"
        ) from None

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.globals["raise_exception"] = raise_exception
    # A template of a file may raise anything.
    try:
        return environment.from_string(template).render(
            messages=messages,
            tools=None,
            documents=None,
            add_generation_prompt=True,
            **tokens,
        )
    except Exception as error:
        raise InputError(
            f"the model's chat template fails ({first_line(error)}); {REMEDY}"
        ) from error
