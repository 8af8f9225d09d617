"""A callable with the interface of transformers' former summarization pipeline."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.inference.arguments import listed
from longsum_jax.summarization.loading import load

if TYPE_CHECKING:
    from longsum_jax.summarization.model import Model

_TASKS = ("summarization",)
# Values of ``truncation`` and the options that have the same effect.
_TRUNCATION: dict[Any, dict[str, Any]] = {
    None: {},
    False: {},
    "do_not_truncate": {},
    True: {"strategy": "direct", "on_overflow": "truncate"},
    "longest_first": {"strategy": "direct", "on_overflow": "truncate"},
    "only_first": {"strategy": "direct", "on_overflow": "truncate"},
}
# Options of the pipeline and their only values: a text is returned unchanged.
_FIXED: dict[str, tuple[Any, ...]] = {
    "clean_up_tokenization_spaces": (None, False),
    "return_tensors": (None, False),
    "return_text": (None, True),
}


def pipeline_options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of ``Model.summaries`` for parameters of the pipeline.

    Args:
        parameters: arguments of the pipeline, or ``parameters`` of a request in
            the format of the Hub's inference API: ``truncation``, options of
            generation, also in ``generate_parameters`` or ``generate_kwargs``,
            and options of ``Model.summaries``.

    Raises:
        InputError: a value without an equivalent.
    """
    options = dict(parameters)
    for name in ("generate_parameters", "generate_kwargs"):
        generation = options.pop(name, None) or {}
        if not isinstance(generation, Mapping):
            raise InputError(f"{name} must be an object of options")
        options |= generation
    for name, values in _FIXED.items():
        value = options.pop(name, None)
        if not any(value is allowed for allowed in values):
            raise InputError(f"{name}={value!r} is not supported; leave it out")
    truncation = options.pop("truncation", None)
    if not isinstance(truncation, bool | str | None) or (
        truncation not in _TRUNCATION
    ):
        raise InputError(
            f"truncation={truncation!r} must be true, to read only the beginning of "
            "a long document, or false, to read all of it"
        )
    return _TRUNCATION[truncation] | options


class SummarizationPipeline:
    """Summarizes texts like transformers' former ``SummarizationPipeline``.

    Args:
        model: loaded model.
        **parameters: defaults of the parameters of calls.

    Raises:
        InputError: a parameter without an equivalent.
    """

    def __init__(self, model: "Model", **parameters: Any) -> None:
        pipeline_options(parameters)
        self.model = model
        self._parameters = parameters

    def __call__(
        self, documents: str | Sequence[str], **parameters: Any
    ) -> list[dict[str, str]]:
        """Returns ``[{"summary_text": ...}]``, one dictionary for each document.

        Args:
            documents: one or more texts.
            **parameters: see ``pipeline_options``. Unlike in transformers, long
                documents are read completely unless ``truncation`` is True.

        Raises:
            InputError: an invalid text or parameter.
        """
        options = pipeline_options({**self._parameters, **parameters})
        texts = listed(documents, "documents")
        summaries = self.model.summaries(texts, **options)
        return [{"summary_text": summary.text} for summary in summaries]


def pipeline(
    task: str, model: "str | Path | Model", **parameters: Any
) -> SummarizationPipeline:
    """Returns a summarization pipeline with the interface of transformers 4.

    Args:
        task: "summarization".
        model: model directory, name on the Hugging Face Hub, or loaded model.
        **parameters: defaults of the parameters of calls, see
            ``SummarizationPipeline.__call__``.

    Raises:
        InputError: another task, a model that cannot be loaded, or a parameter
            without an equivalent.
    """
    if task not in _TASKS:
        hint = did_you_mean(str(task), _TASKS)
        raise InputError(f'task="{task}" is not supported; {hint}')
    if isinstance(model, str | Path):
        model = load(model)
    return SummarizationPipeline(model, **parameters)
