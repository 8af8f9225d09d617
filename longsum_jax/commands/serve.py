"""longsum serve: answers requests for summaries over HTTP."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from longsum_jax.commands import console, flags
from longsum_jax.errors import InputError

EXAMPLES = """\
  # the bundled ranker, for programs on this machine
  longsum serve

  # a model, for other machines, whose requests need an API key
  longsum serve --model=runs/reports --host=0.0.0.0 --api_keys=keys.txt

  # a request
  curl localhost:8000/v1/summaries -F file=@report.pdf -F length="100 words"
"""


def main(argv: Sequence[str]) -> None:
    """Serves until SIGTERM or Ctrl-C; unfinished requests are answered first.

    Raises:
        InputError: a flag, the model or the file of keys is invalid, or an extra is missing.
    """
    args = _parser().parse_args(argv)
    for name, largest in (("port", 65535), ("max_queue", 2**20), ("max_body_bytes", 2**40)):
        if not 1 <= getattr(args, name) <= largest:
            raise InputError(f"--{name}={getattr(args, name)} must be from 1 to {largest:,}")
    if not args.max_request_seconds > 0:
        raise InputError(f"--max_request_seconds={args.max_request_seconds} must be above 0")
    if args.sandbox is False:
        raise InputError("--no_sandbox is for files that you trust; leave it out of serve")
    keys = _keys(args.api_keys)
    options = flags.read_options(args)
    try:
        import uvicorn

        from longsum_jax.serving.app import Limits, make_app
    except ImportError:
        raise InputError("to serve, pip install 'longsum_jax[serve]'") from None
    from longsum_jax.serving.engine import Engine

    model = None
    if args.model is not None:
        from longsum_jax.inference.loading import load

        model = load(args.model, **flags.load_options(args))
    limits = Limits(
        max_bytes=args.max_body_bytes, max_seconds=args.max_request_seconds, api_keys=keys
    )
    engine = Engine(model, max_queue=args.max_queue)
    name = "longsum" if args.model is None else Path(args.model).name
    app = make_app(engine, name=name, limits=limits, options=options)
    uvicorn.run(app, host=args.host, port=args.port, log_level="info")


def _keys(path: str | None) -> list[str]:
    """Returns the keys in a file; an empty list without a file."""
    if path is None:
        return []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise InputError(f"--api_keys={path} cannot be read ({error}); give a text file") from None
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise InputError(f"--api_keys={path} holds no key; write one per line")
    return keys


def _parser() -> argparse.ArgumentParser:
    parser = console.parser("serve", "Answers requests for summaries over HTTP.", EXAMPLES)
    flags.add_model_flags(parser, required=False)
    flags.add_file_flags(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="NAME", help="address; default: this machine only"
    )
    parser.add_argument("--port", type=int, default=8000, help="port; default: 8000")
    parser.add_argument(
        "--api_keys",
        metavar="FILE",
        help="file with one API key per line; requests must send one of them",
    )
    parser.add_argument(
        "--max_queue",
        type=int,
        default=64,
        help="maximum number of unfinished documents; default: 64",
    )
    parser.add_argument(
        "--max_body_bytes",
        type=int,
        default=2**25,
        help="maximum size of a request; default: 32 MiB",
    )
    parser.add_argument(
        "--max_request_seconds",
        type=float,
        default=300.0,
        help="maximum seconds for a request; default: 300",
    )
    return parser
