"""The model card README.md of a run, with the metadata that the Hugging Face Hub reads."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from longsum_jax import atomic
from longsum_jax.data.mixture import SCHEME, parse_mixture
from longsum_jax.errors import without_controls
from longsum_jax.files import MAX_ROWS_BYTES, read_bytes

CARD = "README.md"  # file in a workdir or a model directory
# A card without this line belongs to its author, and is never replaced.
MARK = "<!-- Training replaces this card. Delete this line to keep your changes. -->"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_TITLES = {
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rouge3": "ROUGE-3",
    "rougeL": "ROUGE-L",
    "rougeLsum": "ROUGE-Lsum",
    "mean_rouge": "mean ROUGE",
}
# Prefix of the scores of a baseline -> heading, for kinds of objectives.
_BASELINES: Sequence[Mapping[str, str]] = (
    {"lead_": "lead", "random_": "random sentences"},
    {"majority_": "majority"},
    {"chance_": "chance"},
)
# Objective -> pipeline tag of the Hub.
_PIPELINES = {
    "summarize": "summarization",
    "summarize_segments": "summarization",
    "prefer": "summarization",
    "classify": "text-classification",
    "classify_pairs": "text-classification",
    "claims": "text-classification",
    "mlm": "fill-mask",
    "lm": "text-generation",
    "answer": "question-answering",
    "cloze": "question-answering",
    "tag": "token-classification",
}


class CardFacts(NamedTuple):
    """The content of a model card.

    Attributes:
        name: name of the model.
        family: model family, such as "locost".
        objective: objective of the task, such as "summarize".
        base: model that the run started from; "" for none.
        task: name of the task.
        source: source of the documents, such as "hf:org/name@commit"; "" if the
            task has none.
        split: split of the evaluation.
        steps: step of the evaluated checkpoint; 0 without one.
        num_parameters: number of parameters; 0 if unknown.
        record: evaluation of that checkpoint, from
            ``experiment.evaluation_log``; None without one.
        settings: names and values of the most important settings.
        hardware: description of the devices.
        versions: package -> version.
    """

    name: str
    family: str
    objective: str
    base: str
    task: str
    source: str
    split: str
    steps: int
    num_parameters: int
    record: Mapping[str, Any] | None
    settings: Mapping[str, str]
    hardware: str
    versions: Mapping[str, str]


def best_record(
    records: Sequence[Mapping[str, Any]], metric: str | None
) -> Mapping[str, Any] | None:
    """Returns the last evaluation with the highest ``metric``; None without evaluations.

    Of equal checkpoints, the last one is kept and loaded.

    Args:
        records: evaluations in order.
        metric: name of the score; None for the last evaluation.
    """
    if not records:
        return None
    if metric is None:
        return records[-1]

    def rank(record: Mapping[str, Any]) -> float:
        value = record["scores"].get(metric)
        return float("-inf") if value is None else value

    return max(reversed(records), key=rank)


def write_card(path: Path, facts: CardFacts) -> bool:
    """Writes a model card, unless the existing card has no ``MARK``.

    Args:
        path: path of the card.
        facts: content of the card.

    Returns:
        True if the card was written.

    Raises:
        OSError: the file cannot be written.
    """
    if path.exists():
        text = read_bytes(path, MAX_ROWS_BYTES).decode(errors="replace")
        if MARK not in text:
            return False
    card = model_card(facts)
    atomic.write_text(path, card.encode(errors="replace").decode())
    return True


def copy_card(source: Path, target: Path) -> None:
    """Copies the model card of a training run, if it exists, without ``MARK``.

    Args:
        source: training workdir.
        target: directory of a model made from the run.
    """
    card = source / CARD
    if card.is_file():
        text = read_bytes(card, MAX_ROWS_BYTES).decode(errors="replace")
        atomic.write_text(target / CARD, text.replace(f"{MARK}\n", ""))


def model_card(facts: CardFacts) -> str:
    """Returns the text of a model card: metadata in YAML, and sections in Markdown.

    Local paths are reduced to their last component.
    """
    lines = ["---", *_metadata(facts), "---", MARK, f"# {_inline(facts.name)}"]
    parameters = ""
    if facts.num_parameters:
        parameters = f" with {facts.num_parameters:,} parameters"
    start = " trained from scratch"
    if facts.base:
        start = f" that continues {_inline(_public(facts.base))}"
    use = ["```python", 'model = longsum_jax.load("ORG/NAME")', "```"]
    if _PIPELINES.get(facts.objective) == "summarization":
        command = "longsum summarize --model=ORG/NAME report.txt"
        use = ["```bash", command, "```"]
    lines += [
        "",
        f"A {facts.family} model{parameters}{start}, made with longsum_jax.",
        "",
        "## Use",
        "",
        "ORG/NAME is a repository of the Hub, or the path of this directory.",
        "",
        *use,
        "",
        "## Data",
        "",
        f"- task: {_inline(facts.task)}",
        f"- objective: {_inline(facts.objective)}",
    ]
    if facts.source:
        lines.append(f"- source: {_inline(_public(facts.source))}")
    lines += ["", "## Scores", "", *_scores(facts)]
    lines += ["", "## Training", ""]
    settings = {"steps": f"{facts.steps:,}"} | dict(facts.settings)
    lines += [
        f"- {_inline(name)}: {_inline(value)}"
        for name, value in settings.items()
    ]
    versions = ", ".join(f"{name} {v}" for name, v in facts.versions.items())
    lines += [
        f"- hardware: {_inline(facts.hardware)}",
        f"- versions: {_inline(versions)}",
    ]
    return "\n".join(lines) + "\n"


def _metadata(facts: CardFacts) -> list[str]:
    """Returns the lines of the YAML header; JSON strings are valid YAML."""
    lines = ['library_name: "longsum_jax"']
    pipeline = _PIPELINES.get(facts.objective)
    if pipeline:
        lines.append(f"pipeline_tag: {_yaml(pipeline)}")
    if _HUB_NAME.fullmatch(facts.base) and not Path(facts.base).exists():
        lines.append(f"base_model: {_yaml(facts.base)}")
    dataset = _dataset(facts.source)
    if dataset:
        lines.append(f"datasets: [{_yaml(dataset)}]")
    tags = ["longsum_jax", "jax", "long-documents", facts.family]
    lines.append(f"tags: {_yaml(tags)}")
    if facts.record is not None and pipeline:
        lines += _model_index(facts, facts.record, pipeline, dataset)
    return lines


def _model_index(
    facts: CardFacts,
    record: Mapping[str, Any],
    pipeline: str,
    dataset: str,
) -> list[str]:
    """Returns the results in the Hub's layout."""
    source = {
        "name": facts.task,
        "type": dataset or facts.task,
        "split": facts.split,
    }
    revision = _revision(facts.source)
    if revision:
        source["revision"] = revision
    metrics = [
        {
            "type": "rouge" if "rouge" in name.lower() else name,
            "name": _TITLES.get(name, name),
            "value": round(value, 4),
        }
        for name, value in _model_scores(record).items()
    ]
    result = {"task": {"type": pipeline}, "dataset": source, "metrics": metrics}
    index = [{"name": facts.name, "results": [result]}]
    return [f"model-index: {_yaml(index)}"]


def _scores(facts: CardFacts) -> list[str]:
    record = facts.record
    if record is None:
        return ["Not evaluated."]
    scores = record["scores"]
    prefixes = _baselines_of(scores)
    note = ""
    if record["intervals"]:
        note = "; 95% intervals by bootstrap over documents"
    lines = [
        f"Step {record['step']:,}, {record['documents']:,} documents of the split "
        f'"{_inline(facts.split)}"{note}.',
        "",
        f"| score | value | interval | {' | '.join(prefixes.values())} |",
        f"|---|---:|---|{'---:|' * len(prefixes)}",
    ]
    for name, value in _model_scores(record).items():
        ends = record["intervals"].get(name)
        interval = f"{ends[0]:.4g} to {ends[1]:.4g}" if ends else ""
        baselines = [
            f"{scores[key]:.4g}" if isinstance(scores.get(key), float) else ""
            for key in (f"{prefix}{name}" for prefix in prefixes)
        ]
        cells = [
            _inline(_TITLES.get(name, name)),
            f"{value:.4g}",
            interval,
            *baselines,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _baselines_of(scores: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns the prefixes and headings of the baselines that an evaluation has."""
    for baselines in _BASELINES:
        if any(name.startswith(tuple(baselines)) for name in scores):
            return baselines
    return _BASELINES[0]


def _model_scores(record: Mapping[str, Any]) -> dict[str, float]:
    """Returns the model's scores that have intervals; if none has, all but the baselines'."""
    scores = record["scores"]
    prefixes = tuple(_baselines_of(scores))
    names = record["intervals"] or [
        name for name in scores if not name.startswith(prefixes)
    ]
    return {
        name: float(scores[name])
        for name in names
        if isinstance(scores.get(name), int | float)
    }


def _dataset(source: str) -> str:
    """Returns the repository of a source on the Hub, else ""."""
    scheme, _, rest = source.partition(":")
    if scheme != "hf":
        return ""
    return "/".join(rest.partition("@")[0].split("/")[:2])


def _revision(source: str) -> str:
    return source.partition("@")[2] if source.startswith("hf:") else ""


def _public(source: str) -> str:
    """Returns a source or a model without the directories of local paths."""
    if source.startswith(f"{SCHEME}:"):
        parts = [
            f"{float(part.rate):g}*{_public(part.source)}"
            for part in parse_mixture(source)
        ]
        return f"{SCHEME}:{'+'.join(parts)}"
    scheme, colon, rest = source.rpartition(":")
    is_name = _HUB_NAME.fullmatch(source) and not Path(source).exists()
    if scheme in ("hf", "tfds", "seqio") or is_name:
        return source
    return f"{scheme}{colon}{Path(rest).name}"


def _inline(text: str) -> str:
    """Returns a text in one line, with characters of Markdown and HTML escaped."""
    line = " ".join(without_controls(text).split())
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", line)


def _yaml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
