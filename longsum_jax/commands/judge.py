"""longsum judge: judgements of summaries by people and by chat models."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longsum_jax import atomic
from longsum_jax.commands import console, flags
from longsum_jax.errors import InputError, counted
from longsum_jax.files import json_text
from longsum_jax.readers.paths import short_names

if TYPE_CHECKING:
    from longsum_jax.evaluation.comparison import Prediction
    from longsum_jax.evaluation.predictions import Pair
    from longsum_jax.experimental.judging.judgements import (
        Correlation,
        Judged,
        Judgements,
    )
    from longsum_jax.experimental.judging.judging import Key
    from longsum_jax.experimental.judging.sheets import Answers

EXAMPLES = """\
  # sheets for three judges, 25 documents of two systems; give people/sheets to the judges
  longsum judge sheets lead.jsonl random.jsonl --references=test.jsonl --protocol=awesome \\
      --out=people

  # AWESOME's figure 2 from the filled sheets, and the correlation of ROUGE with it
  longsum score lead.jsonl --against=random.jsonl --references=test.jsonl --out=scores
  longsum judge aggregate people/key.json judge-1-filled.csv judge-2-filled.csv \\
      judge-3-filled.csv --scores=scores/scores.jsonl

  # Hepos' table 6 and figure 5, on PubMed
  longsum judge sheets full.jsonl hepos.jsonl --references=pubmed.jsonl --aspects=pubmed --out=hepos
  longsum judge aggregate hepos/key.json judge-1-filled.csv judge-2-filled.csv

  # a chat model as judge, as in LOCOST: send chat/requests.jsonl to an endpoint, read its answers
  longsum judge prompts lead.jsonl random.jsonl --references=test.jsonl --model=NAME --out=chat
  longsum judge answers chat/key.json answers.jsonl
"""


def main(argv: Sequence[str]) -> None:
    """Runs one subcommand.

    Raises:
        InputError: files or settings are invalid.
    """
    args = _parser().parse_args(argv)
    args.run(args)


def _parser() -> argparse.ArgumentParser:
    parser = console.parser(
        "judge", "Lets people and chat models judge summaries.", EXAMPLES
    )
    commands = parser.add_subparsers(
        required=True, metavar="sheets|aggregate|prompts|answers"
    )
    sheets = commands.add_parser(
        "sheets", help="blinded sheets for people, CSV and HTML"
    )
    _add_summaries(
        sheets, prompt="instructions for the judges, a text file; default: ours"
    )
    sheets.add_argument(
        "--protocol",
        default="hepos",
        help="questions and numbers: hepos, awesome or locost; default: hepos",
    )
    sheets.add_argument(
        "--judges",
        type=int,
        metavar="N",
        help="judges of every summary; default: the protocol's",
    )
    sheets.add_argument(
        "--aspects",
        metavar="NAME",
        help="aspects of sentences for hepos: govreport, pubmed, or a comma-separated "
        "list; default: govreport",
    )
    sheets.set_defaults(run=_sheets)
    aggregate = commands.add_parser(
        "aggregate", help="shares, means and agreement of filled sheets"
    )
    aggregate.add_argument(
        "key", metavar="KEY", help="key.json that belongs to the sheets"
    )
    aggregate.add_argument(
        "answers", nargs="+", metavar="FILE", help="filled sheets, CSV"
    )
    _add_results(aggregate)
    aggregate.set_defaults(run=_aggregate)
    prompts = commands.add_parser(
        "prompts", help="requests for a chat endpoint, JSON lines"
    )
    _add_summaries(
        prompts,
        prompt="message to the model, a text file with {document} and {summary}, also {query} and "
        "{reference}; default: ours",
    )
    prompts.add_argument(
        "--model",
        required=True,
        metavar="NAME",
        help="name of the model in the requests",
    )
    prompts.add_argument(
        "--temperature",
        type=float,
        default=0.0,
        help="sampling temperature of the model; default: 0",
    )
    prompts.set_defaults(run=_prompts)
    answers = commands.add_parser(
        "answers", help="means of a chat model's answers"
    )
    answers.add_argument(
        "key", metavar="KEY", help="key.json that belongs to the requests"
    )
    answers.add_argument(
        "answers", metavar="FILE", help="JSON lines with custom_id and response"
    )
    _add_results(answers)
    answers.set_defaults(run=_answers)
    return parser


def _add_summaries(parser: argparse.ArgumentParser, prompt: str) -> None:
    parser.add_argument(
        "predictions",
        nargs="+",
        metavar="FILE",
        help="predictions of a system: JSON lines with id and prediction",
    )
    parser.add_argument(
        "--references",
        required=True,
        metavar="FILE",
        help="JSON lines with id, document and summary, plain or compressed, or a glob",
    )
    flags.add_prediction_flags(parser)
    parser.add_argument("--prompt_file", metavar="FILE", help=prompt)
    parser.add_argument(
        "--documents",
        type=int,
        metavar="N",
        help="number of documents to sample; default: the protocol's",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="random seed of the sample and of the orders; default: 0",
    )
    parser.add_argument(
        "-o",
        "--out",
        required=True,
        metavar="DIR",
        help="new directory for key.json and all other files",
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scores",
        metavar="FILE",
        help="scores.jsonl of longsum score --out, to correlate metrics with the judges",
    )
    flags.add_sampling_flags(parser, "bootstrap rounds for the intervals")
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="JSON file for the results"
    )


def _sheets(args: argparse.Namespace) -> None:
    from longsum_jax.experimental.judging.judging import read_prompt, write_key
    from longsum_jax.experimental.judging.sheets import write_sheets

    prompt = None
    if args.prompt_file:
        prompt = read_prompt(args.prompt_file)
    key, pairs, systems = _sample(
        args, args.protocol, judges=args.judges, aspects=args.aspects
    )
    out = Path(args.out)
    try:
        with atomic.new_directory(out) as work:
            (work / "sheets").mkdir()
            pages = write_sheets(work / "sheets", key, pairs, systems, prompt)
            write_key(work / "key.json", key)
    except OSError as error:
        raise console.unwritable(out, error) from error
    for page in pages:
        console.print_stdout(
            f"{out / 'sheets' / page.name} and {page.stem}.csv"
        )
    console.print_stdout(
        f"{out / 'key.json'} names the systems: keep it from the judges"
    )


def _prompts(args: argparse.Namespace) -> None:
    from longsum_jax.experimental.judging.chat_judge import (
        OPTIONAL,
        PROTOCOL,
        REQUIRED,
        requests,
    )
    from longsum_jax.experimental.judging.judging import read_prompt, write_key

    prompt = None
    if args.prompt_file:
        prompt = read_prompt(args.prompt_file, REQUIRED, OPTIONAL)
    key, pairs, systems = _sample(args, PROTOCOL)
    out = Path(args.out)
    try:
        with atomic.new_directory(out) as work:
            with atomic.open_text(work / "requests.jsonl") as file:
                rows = requests(
                    key, pairs, systems, args.model, args.temperature, prompt
                )
                for request in rows:
                    file.write(json_text(request) + "\n")
            write_key(work / "key.json", key)
    except OSError as error:
        raise console.unwritable(out, error) from error
    console.print_stdout(
        f"{out / 'requests.jsonl'}: {counted(len(key.items), 'request')}"
    )


def _sample(
    args: argparse.Namespace, protocol: str, **options: Any
) -> tuple["Key", dict[str, "Pair"], dict[str, dict[str, "Prediction"]]]:
    """Returns the key, documents and predictions selected by the flags."""
    from longsum_jax.evaluation.comparison import (
        common_documents,
        read_predictions,
    )
    from longsum_jax.evaluation.predictions import read_pairs
    from longsum_jax.experimental.judging.judging import make_key

    if len({str(Path(path).resolve()) for path in args.predictions}) < len(
        args.predictions
    ):
        raise InputError(
            f"{' '.join(args.predictions)}: a file is named twice; give each once"
        )
    names = short_names(args.predictions)
    systems = {
        name: read_predictions(path, prediction_key=args.prediction_key)
        for name, path in zip(names, args.predictions, strict=True)
    }
    pairs = read_pairs(
        args.references,
        document_key=args.document_key,
        summary_key=args.summary_key,
    )
    common = common_documents(pairs, systems, args.on_missing)
    key = make_key(
        protocol,
        common,
        systems,
        documents=args.documents,
        seed=args.seed,
        **options,
    )
    return key, pairs, systems


def _aggregate(args: argparse.Namespace) -> None:
    from longsum_jax.experimental.judging.judgements import missing_judges
    from longsum_jax.experimental.judging.judging import read_key
    from longsum_jax.experimental.judging.sheets import read_sheets

    inputs = [args.key, *args.answers, args.scores]
    flags.refuse_input("out", args.out, inputs)
    key = read_key(args.key)
    answers = read_sheets(args.answers, key)
    absent = missing_judges(key, answers)
    _report(args, key, answers, {"missing_judges": absent})
    if absent:
        console.print_stdout(
            f"no sheet of judge {', '.join(map(str, absent))} of {key.judges}"
        )


def _answers(args: argparse.Namespace) -> None:
    from longsum_jax.experimental.judging.chat_judge import read_replies
    from longsum_jax.experimental.judging.judging import read_key

    inputs = [args.key, args.answers, args.scores]
    flags.refuse_input("out", args.out, inputs)
    key = read_key(args.key)
    replies = read_replies(args.answers, key)
    extra = {
        "unparsable": replies.unparsable,
        "missing_replies": replies.missing,
    }
    _report(args, key, replies.answers, extra)
    console.print_stdout(
        f"{len(key.items)} requests: {len(replies.missing)} without a reply, "
        f"{len(replies.unparsable)} replies that leave questions open"
    )


def _report(
    args: argparse.Namespace,
    key: "Key",
    answers: "Answers",
    extra: Mapping[str, Any],
) -> None:
    """Prints values, agreement and correlations, and writes them to --out."""
    from longsum_jax import __version__
    from longsum_jax.evaluation.comparison import Sampling
    from longsum_jax.evaluation.tables import score_table
    from longsum_jax.experimental.judging.judgements import (
        aggregate_answers,
        correlations,
        read_scores,
    )

    sampling = Sampling(rounds=args.rounds, level=args.level, seed=args.seed)
    judgements = aggregate_answers(key, answers, sampling)
    followed = {}
    if args.scores:
        followed = correlations(key, answers, read_scores(args.scores, key))
    if args.out:
        result = {
            "protocol": key.protocol,
            "judges": key.judges,
            "documents": len(key.documents),
            "systems": _plain(judgements.systems),
            "aspects": _plain(judgements.aspects),
            "without_aspect": judgements.without_aspect,
            "agreement": {
                name: row._asdict()
                for name, row in judgements.agreement.items()
            },
            "correlations": _plain(followed),
            "sampling": {
                "rounds": args.rounds,
                "level": args.level,
                "seed": args.seed,
            },
            **extra,
            "longsum_jax": __version__,
        }
        _write(Path(args.out), json.dumps(result, indent=2) + "\n")
    console.print_stdout(score_table(key.systems, _rows(judgements)))
    documents, judges = (
        counted(len(key.documents), "document"),
        counted(key.judges, "judge"),
    )
    console.print_stdout(
        f"{documents}, {judges}, {_percent(args.level)} intervals"
    )
    if judgements.aspects:
        console.print_stdout("\nby aspect, as most judges see it")
        console.print_stdout(score_table(key.systems, _aspect_rows(judgements)))
        console.print_stdout()
    for name, agreement in judgements.agreement.items():
        if agreement.alpha is not None:
            alpha = f"{agreement.alpha:.2f}"
        else:
            alpha = "none"
        if agreement.no_alpha:
            reason = f" ({agreement.no_alpha})"
        else:
            reason = ""
        units = counted(agreement.units, "unit")
        missing = counted(agreement.missing, "answer")
        console.print_stdout(
            f"{name}: Krippendorff's alpha {alpha}{reason} over {units}, {missing} missing"
        )
    for name, columns in followed.items():
        console.print_stdout(
            f"\n{name}, over {next(iter(columns.values())).summaries} summaries"
        )
        heads = ("pearson", "spearman", "kendall")
        console.print_stdout(
            score_table(
                heads, {column: _cells(row) for column, row in columns.items()}
            )
        )


def _percent(level: float) -> str:
    return f"{100 * level:g} %"


def _plain(table: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns a table of named tuples as JSON objects."""
    return {
        name: {column: cell._asdict() for column, cell in row.items()}
        for name, row in table.items()
    }


def _rows(judgements: "Judgements") -> dict[str, list[str]]:
    """Returns the rows of the table: means, or three percentages for shares."""
    rows = {}
    for name, systems in judgements.systems.items():
        is_share = any(
            judged.majority is not None for judged in systems.values()
        )
        rows[f"{name} %" if is_share else name] = [
            _value(judged) for judged in systems.values()
        ]
        if is_share:
            majorities = [
                _number(judged.majority, 1) for judged in systems.values()
            ]
            any_judge = [
                _number(judged.any_judge, 1) for judged in systems.values()
            ]
            rows[f"{name}, majority %"] = majorities
            rows[f"{name}, any judge %"] = any_judge
    return rows


def _aspect_rows(judgements: "Judgements") -> dict[str, list[str]]:
    rows = {}
    for aspect, systems in judgements.aspects.items():
        values = list(systems.values())
        rows[f"{aspect}: informativeness"] = [
            _number(row.informativeness, 2) for row in values
        ]
        rows[f"{aspect}: sentences %"] = [
            _number(row.sentences, 1) for row in values
        ]
        rows[f"{aspect}: with errors %"] = [
            _number(row.errors, 1) for row in values
        ]
    counts = list(judgements.without_aspect.values())
    rows["sentences without a majority"] = [str(count) for count in counts]
    return rows


def _value(judged: "Judged") -> str:
    if judged.value is None:
        return "-"
    return f"{judged.value:.2f} [{judged.low:.2f}, {judged.high:.2f}]"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _cells(correlation: "Correlation") -> list[str]:
    values = (correlation.pearson, correlation.spearman, correlation.kendall)
    return ["-" if value is None else f"{value:.3f}" for value in values]


def _write(path: Path, text: str) -> None:
    try:
        atomic.write_text(path, text)
    except OSError as error:
        raise console.unwritable(path, error) from error
