"""longsum prepare: converts a data set to training shards, once."""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from longsum_jax.commands import console, flags
from longsum_jax.commands.help_format import true_or_false
from longsum_jax.data.tasks import TASKS, Task, get_task
from longsum_jax.errors import InputError, counted

EXAMPLES = """\
  # the documentation inside Python, as bytes; nothing is downloaded
  longsum prepare --task=embedded --split=train --tokenizer=bytes --out=data/embedded/train

  # C4 as released in json.gz files
  longsum prepare --task=c4 --source='json:/data/c4/en/c4-train.*.json.gz' --split=train \\
      --tokenizer=spiece.model --out=data/c4/train --num_shards=1024 --workers=32

  # novels, one JSON object with "text" per line, in pieces that fit 4,096 tokens
  longsum prepare --task=c4 --source=json:novels.jsonl --piece_words=3000 --split=train \\
      --tokenizer=spiece.model --out=data/novels/train

  # the same with a runner of Apache Beam, here in four processes of this machine
  longsum prepare --task=c4 --split=train --tokenizer=spiece.model --out=data/c4/train \\
      --beam='--direct_running_mode=multi_processing --direct_num_workers=4'

  # your own reports, one JSON object per line
  longsum prepare --task=govreport --source='json:reports/{split}.jsonl' \\
      --document_key=report --summary_key=highlights --max_source_length=16384 \\
      --tokenizer=spiece.model --out=data/reports/train

  # reports in segments (configs/awesome.py:json), with the sentences that an extractor selects
  longsum prepare --task=summaries --source='json:reports/{split}.jsonl' \\
      --objective=summarize_segments --max_source_length=1024 --max_target_length=512 \\
      --max_parts=128 --salient=text --extractor=runs/extractor --tokenizer=bart-large \\
      --out=data/reports/segments --workers=8

Training reads the directory in random order, without TensorFlow, and from any position. Examples
that exceed the lengths are counted in OUT/metadata.json, and their number is printed at the end.
"""

# Flags in the short help.
EVERYDAY = (
    *(
        "task",
        "source",
        "split",
        "tokenizer",
        "out",
        "objective",
        "document_key",
        "summary_key",
    ),
    *("max_source_length", "max_target_length", "num_shards", "workers"),
)
TASK_OPTIONS = {
    **{name: (str, text) for name, text in flags.SOURCE_FLAGS.items()},
    "objective": (
        str,
        "gap_sentences (no summaries needed), summarize, summarize_segments or prefer",
    ),
    "rejected_key": (str, "field that contains the rejected summary"),
    "max_source_length": (
        int,
        "maximum tokens of the source, including the end of sequence",
    ),
    "max_target_length": (
        int,
        "maximum tokens of the target, including the end of sequence",
    ),
    "max_parts": (int, "maximum segments of a document"),
    "held_out": (
        float,
        "fraction of the documents of a single file that is reserved for evaluation",
    ),
    "half": (
        str,
        "half of the split train: first or second; default: all of it",
    ),
    "prefix": (str, "text put before every source"),
    "piece_words": (
        int,
        "gap sentences: documents with more words are cut into parts of about this many",
    ),
}
GAP_SENTENCE_OPTIONS = {
    "ratio": (float, "fraction of the sentences that becomes the target"),
    "strategy": (str, "independent, sequential, lead or random"),
    "mask_token": (
        str,
        "text that replaces each selected sentence; default: sentences are removed",
    ),
    "short_documents": (
        str,
        'documents for which the ratio selects no sentence: skip, or "one" to select one sentence',
    ),
}


# Fields of ``SegmentInputOptions``; the length of a segment is
# max_source_length.
SEGMENT_OPTIONS = {
    "min_tokens": (int, "minimum tokens of a segment"),
    "max_tokens": (int, "tokens after which a segment ends"),
    "strict": (true_or_false, "true: segments never exceed max_tokens"),
    "next_includes_sentence": (
        true_or_false,
        "true: a sentence counts as part of the text after it",
    ),
    "split_moves": (
        str,
        "text that begins the next segment: sentence, or window of sentences",
    ),
    "target_metric": (str, "precision or f1"),
    "target_stemmer": (
        true_or_false,
        "false: words of targets are compared without stemming",
    ),
    "train_tokens": (
        int,
        "maximum tokens of a document, in whole segments; 0 for no limit",
    ),
    "train_empty": (
        true_or_false,
        "true: train segments without a target on an empty summary",
    ),
    "salient": (str, "important sentences: none, text or vectors"),
    "salient_order": (str, "document or current_first"),
    "salient_source": (str, "predicted or oracle"),
    "num_vectors": (int, "salient_vectors of the model"),
    "extractor": (
        str,
        "directory of the model that selects important sentences",
    ),
    "sentence_encoder": (str, "directory of the model that compares sentences"),
}
# Flags that have an effect only with some objectives. Gap sentences also serve
# as summaries.
_OBJECTIVES = {
    **dict.fromkeys(
        GAP_SENTENCE_OPTIONS,
        ("gap_sentences", "summarize_segments", "extract", "cloze"),
    ),
    **dict.fromkeys(SEGMENT_OPTIONS, ("summarize_segments",)),
    "summary_key": (
        "summarize",
        "summarize_segments",
        "extract",
        "cloze",
        "prefer",
    ),
    "rejected_key": ("prefer",),
    "max_target_length": (
        "gap_sentences",
        "summarize",
        "summarize_segments",
        "prefer",
    ),
    "max_parts": ("summarize_segments", "extract", "choose"),
}
GROUPS: Mapping[str, Mapping[str, tuple[Any, str]]] = {
    "task": TASK_OPTIONS,
    "gap sentences": GAP_SENTENCE_OPTIONS,
    "segments": SEGMENT_OPTIONS,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Prepares one split of a task.

    Raises:
        InputError: options or data are invalid.
    """
    args = _parser().parse_args(argv)

    from longsum_jax.data.preparation import write_prepared
    from longsum_jax.tokenizers.loading import load_tokenizer

    task = _task(args)
    beam = _beam_flags(args)
    auxiliary: dict[str, Any] = {}
    if task.base_objective == "summarize_segments":
        # A local import, because jax takes a second to import and other
        # objectives do not need it.
        from longsum_jax.inference.auxiliary import (
            auxiliary_functions,
            load_auxiliary,
        )

        models = load_auxiliary(task.segments)
        auxiliary = {
            "auxiliary": auxiliary_functions(models),
            "fingerprints": models.fingerprints(),
        }
    metadata = write_prepared(
        args.out,
        task,
        load_tokenizer(args.tokenizer, vocab_size=args.vocab_size),
        args.split,
        args.num_shards,
        seed=args.seed,
        workers=args.workers,
        overwrite=args.overwrite,
        beam=beam,
        progress=not args.quiet,
        **auxiliary,
    )
    console.print_stdout(_report(args.out, metadata))


def _beam_flags(args: argparse.Namespace) -> list[str] | None:
    """Returns the flags in --beam; None without it.

    Raises:
        InputError: Beam is not installed or has no such flag, or --workers is
            given as well.
    """
    if args.beam is not None and args.workers != 1:
        raise InputError(
            f"--workers={args.workers} has no effect with --beam, whose flags set the number; "
            "leave it out"
        )
    return flags.beam_flags(args)


def _task(args: argparse.Namespace) -> Task:
    """Returns the task described by the flags.

    Raises:
        InputError: an option is invalid.
    """
    options = flags.given(args, TASK_OPTIONS)
    task = get_task(args.task, **options)
    _check_flags(args, task)
    gap_options = flags.given(args, GAP_SENTENCE_OPTIONS)
    if gap_options:
        options["gap_sentences"] = (
            dataclasses.asdict(task.gap_sentences) | gap_options
        )
    segment_options = flags.given(args, SEGMENT_OPTIONS)
    if task.base_objective == "summarize_segments":
        segments = dataclasses.asdict(task.segments) | segment_options
        options["segments"] = segments | {
            "segment_length": task.max_source_length
        }
    return get_task(args.task, **options)


def _check_flags(args: argparse.Namespace, task: Task) -> None:
    """Refuses flags that have no effect with the objective or the source of the task."""
    for name in flags.given(args, _OBJECTIVES):
        if task.base_objective not in _OBJECTIVES[name]:
            raise InputError(
                f"--{name} is for --objective={' or '.join(_OBJECTIVES[name])}, not for "
                f"{task.objective}; leave it out"
            )
    flags.check_half(args)
    for name in ("data_dir", "cache_dir"):
        if getattr(args, name) and not task.source.startswith(
            ("tfds:", "mix:")
        ):
            raise InputError(
                f"--{name} is for --source=tfds:NAME, not for {task.source}; leave it out"
            )


def _parser() -> argparse.ArgumentParser:
    lines = "\n".join(map(_task_line, TASKS.values()))
    tasks = f"tasks (name, objective, maximum tokens of source -> target, data):\n{lines}"
    description = "Processes the texts of a task once, and writes shards that training reads fast."
    parser = console.parser(
        "prepare", description, f"{EXAMPLES}\n{tasks}", EVERYDAY
    )
    parser.add_argument(
        "--task", required=True, help="task; --help-all lists all names"
    )
    parser.add_argument(
        "--split", default="train", help="split of the task; default: train"
    )
    parser.add_argument(
        "--tokenizer",
        required=True,
        help='.model file, tokenizer directory, or "bytes"',
    )
    parser.add_argument(
        "--vocab_size",
        type=int,
        help="rows of the model's embedding; default: the tokenizer's",
    )
    parser.add_argument(
        "-o",
        "--out",
        required=True,
        help="directory to create, for this split only",
    )
    parser.add_argument(
        "--num_shards",
        type=int,
        default=8,
        help="number of files to write; default: 8",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help="number of processes, which does not affect the result",
    )
    flags.add_beam_flag(
        parser, "make the examples with Apache Beam instead of --workers"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="random seed for --strategy=random; default: 0",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace existing shards in --out",
    )
    parser.add_argument(
        "--quiet", action="store_true", help="print no progress"
    )
    for title, options in GROUPS.items():
        group = parser.add_argument_group(title)
        for name, (value_type, text) in options.items():
            if "default: " in text:
                default = ""
            else:
                default = "; default: the task's"
            group.add_argument(
                f"--{name}", type=value_type, help=text + default
            )
    return parser


def _task_line(task: Task) -> str:
    lengths = f"{task.max_source_length}"
    if task.writes_summaries:
        lengths += f" -> {task.max_target_length}"
    return f"{task.name:17} {task.objective:14} {lengths:12} {task.source}"


def _report(out: str, metadata: dict[str, Any]) -> str:
    counts = metadata["counts"]
    pieces = ""
    if counts["pieces"] != counts["read"]:
        pieces = f" and cut into {counts['pieces']} pieces"
    identical = ""
    if counts["identical_pairs"]:
        identical = f"; {counted(counts['identical_pairs'], 'pair')} of identical summaries"
    return (
        f"{counted(metadata['examples'], 'example')} in {out} "
        f"({counted(metadata['num_shards'], 'shard')}); "
        f"{counted(counts['read'], 'document')} read{pieces}, {counts['too_short']} too short; "
        f"truncated: {counted(counts['truncated_sources'], 'source')} "
        f"({counts['dropped_source_tokens']} of {counts['source_tokens']} tokens dropped), "
        f"{counted(counts['truncated_targets'], 'target')} "
        f"({counts['dropped_target_tokens']} of {counts['target_tokens']}){identical}"
    )
