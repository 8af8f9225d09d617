"""longsum serve: answers requests for summaries over HTTP."""

import argparse
import contextlib
import dataclasses
import errno
import ipaddress
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longsum_jax.commands import console, flags
from longsum_jax.errors import InputError

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from longsum_jax.readers import ReadOptions
    from longsum_jax.serving.replicas import Replica

_MAX_EXPANSION = 8  # size of unpacked files in sizes of a body
_MAX_PAGES = 2000
# Flags: default, maximum, help.
_COUNTS = {
    "max_queue": (
        64,
        2**20,
        "maximum number of unfinished documents of each model",
    ),
    "max_body_bytes": (2**25, 2**40, "maximum bytes of a request"),
    "max_tokens": (2**18, 2**24, "maximum tokens of a document to read"),
    "max_new_tokens": (
        2**12,
        2**16,
        "maximum tokens of a summary that a request may set",
    ),
    "warm_up_tokens": (
        2**12,
        2**24,
        "length up to which programs are compiled before /health/ready answers 200",
    ),
}
# Devices of a replica: help.
_MESH = {
    "mesh.fsdp": "devices of a replica over which every parameter is sharded, for models that "
    "do not fit on one; default: 1",
    "mesh.tensor": "devices of a replica over which heads, feed-forward layers and vocabulary "
    "are sharded, which also shortens each step; default: 1",
}
# Flags in the short help.
EVERYDAY = (
    "model",
    "host",
    "port",
    "api_keys",
    "max_queue",
    "max_request_seconds",
    "replicas",
)
EXAMPLES = """\
  # the bundled ranker, for programs on this machine
  longsum serve

  # a model, for other machines, whose requests need an API key
  longsum serve --model=runs/reports --host=0.0.0.0 --api_keys=keys.txt

  # two models, which requests choose by name and the page compares
  longsum serve --model=runs/reports --model=runs/letters

  # a model that takes two devices, as often as there are devices for it
  longsum serve --model=runs/large --mesh.tensor=2 --replicas=auto

  # a request
  curl localhost:8000/v1/summaries -F file=@report.pdf -F length="100 words"
"""


def make_application(
    argv: Sequence[str],
) -> "tuple[Starlette, argparse.Namespace]":
    """Returns the application for the flags of the command, and their values.

    Args:
        argv: flags of ``longsum serve``; --host and --port have no effect on
            the application.

    Raises:
        InputError: a flag, the model or the file of keys is invalid, or an
            extra is missing.
    """
    args = _parse(argv)
    return _application(args), args


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Returns the values of the flags."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.model is None:
        flags.refuse_idle(args, parser, flags.LOAD_FLAGS, "without --model")
    limits = {"port": 65535} | {
        name: largest for name, (_, largest, _) in _COUNTS.items()
    }
    for name, largest in limits.items():
        if not 1 <= getattr(args, name) <= largest:
            raise InputError(
                f"--{name}={getattr(args, name)} must be from 1 to {largest:,}"
            )
    if not 0 < args.max_request_seconds < float("inf"):
        raise InputError(
            f"--max_request_seconds={args.max_request_seconds} must be a number above 0"
        )
    if args.sandbox is False:
        raise InputError(
            "--no_sandbox is for files that you trust; leave it out of serve"
        )
    return args


def _application(args: argparse.Namespace) -> "Starlette":
    keys = _keys(args.api_keys)
    options = _read_options(args)
    try:
        # A missing extra is reported before the model is loaded.
        import uvicorn  # noqa: F401

        from longsum_jax.serving.app import make_app
        from longsum_jax.serving.guard import Limits
    except ImportError:
        raise InputError("to serve, pip install 'longsum_jax[serve]'") from None
    from longsum_jax.serving.engine import BUILT_IN, Engine

    request_limits = Limits(
        max_bytes=args.max_body_bytes,
        max_seconds=args.max_request_seconds,
        api_keys=keys,
        origins=args.cors_origin,
        warm_up_tokens=args.warm_up_tokens,
    )
    # The ranker needs no memory, so that every server has it.
    replicas: dict[str, Sequence[Replica]] = {**_replicas(args), BUILT_IN: ()}
    engines = [
        Engine(
            name=name,
            replicas=copies,
            max_queue=args.max_queue,
            max_tokens=args.max_tokens,
            max_new_tokens=args.max_new_tokens,
        )
        for name, copies in replicas.items()
    ]
    return make_app(*engines, limits=request_limits, options=options)


def main(argv: Sequence[str]) -> None:
    """Serves until SIGTERM or Ctrl-C; unfinished requests are answered first.

    Raises:
        InputError: the port is in use, or as ``make_application``.
    """
    args = _parse(argv)
    _check_port(args.host, args.port)
    app = _application(args)
    import uvicorn

    from longsum_jax.serving.connections import TimedProtocol

    logging.basicConfig(
        level=logging.WARNING,
        format="%(levelname)s: %(message)s",
        force=True,  # replaces the handler of ``console.run_process``
    )
    logging.getLogger("longsum_jax.serving").setLevel(logging.INFO)
    if args.api_keys is None and not _is_loopback(args.host):
        logging.warning(
            "--host=%s without --api_keys accepts requests from everyone who "
            "can reach it",
            args.host,
        )
    uvicorn.run(
        app,
        host=args.host,
        port=args.port,
        log_level="info",
        access_log=False,  # it would contain queries of URLs
        http=TimedProtocol,
        # Unfinished requests end at their time limit at the latest.
        timeout_graceful_shutdown=int(args.max_request_seconds) + 1,
    )


def _check_port(host: str, port: int) -> None:
    """Raises InputError if the port is in use, before models are loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            # As uvicorn does; on Windows, it would share the port.
            if os.name == "posix":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, TypeError) as error:
        # uvicorn reports other problems, such as an unknown host
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise InputError(
                f"--port={port} is in use on {host}; stop the other server or give another --port"
            ) from None


def _is_loopback(host: str) -> bool:
    """Returns True if only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _names(models: Sequence[str]) -> list[str]:
    """Returns the names of models in requests: the last parts of their paths.

    Raises:
        InputError: a name that another model has.
    """
    from longsum_jax.serving.engine import BUILT_IN

    names: list[str] = []
    for model in models:
        # of "." and ".." too
        name = Path(os.path.abspath(model)).name
        if name in (*names, BUILT_IN):
            raise InputError(
                f'--model={model} has the name "{name}", as another model of this server; '
                "rename the directory"
            )
        names.append(name)
    return names


def _replicas(args: argparse.Namespace) -> "dict[str, list[Replica]]":
    """Returns every model on its devices, by its name.

    Raises:
        InputError: an invalid model, or a number that does not fit the devices.
    """
    sizes = {name: getattr(args, name) for name in _MESH}
    text = args.replicas
    if text != "auto" and not text.isdecimal():
        raise InputError(f'--replicas={text} must be a number or "auto"')
    if args.model is None:
        wrong = {"replicas": text} if text not in ("auto", "1") else {}
        wrong |= {name: size for name, size in sizes.items() if size != 1}
        for name, value in wrong.items():
            raise InputError(
                f"--{name}={value} is for a model; give --model or leave it out"
            )
        return {}
    names = _names(args.model)
    import jax

    from longsum_jax.serving.replicas import count_replicas, make_replicas
    from longsum_jax.summarization.loading import load

    mesh = {name.removeprefix("mesh."): size for name, size in sizes.items()}
    # Before the model is loaded, which may take minutes.
    count = count_replicas(text if text == "auto" else int(text), **mesh)
    host = None
    if set(sizes.values()) != {1}:
        # Parameters that do not fit on a device are read into host memory,
        # unless JAX_PLATFORMS excludes it.
        with contextlib.suppress(RuntimeError):
            host = jax.local_devices(backend="cpu")[0]
    replicas = {}
    for name, path in zip(names, args.model, strict=True):
        with jax.default_device(host):
            model = load(path, **flags.load_options(args))
        head = model.config.head
        if head != "language_model":
            raise InputError(
                f'--model={path} has the head "{head}", which writes no summaries; give a model '
                "that does"
            )
        replicas[name] = make_replicas(model, count, **mesh)
    return replicas


def _read_options(args: argparse.Namespace) -> "ReadOptions":
    """Returns the options of reading files; by default with the limits of a request."""
    options = flags.read_options(args)
    limits: dict[str, Any] = {}
    if args.max_bytes is None:
        limits["max_bytes"] = _MAX_EXPANSION * args.max_body_bytes
    if args.max_pages is None:
        limits["max_pages"] = _MAX_PAGES
    if args.max_seconds is None:
        limits["max_seconds"] = args.max_request_seconds
    return dataclasses.replace(options, **limits)


def _keys(path: str | None) -> list[str]:
    """Returns the keys in a file; an empty list without a file."""
    if path is None:
        return []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(
            f"--api_keys={path}: cannot be read ({error.strerror}); give a text file"
        ) from None
    except UnicodeError:
        raise InputError(
            f"--api_keys={path}: is not UTF-8; give a text file"
        ) from None
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise InputError(f"--api_keys={path} holds no key; write one per line")
    return keys


def _parser() -> argparse.ArgumentParser:
    parser = console.parser(
        "serve", "Answers requests for summaries over HTTP.", EXAMPLES, EVERYDAY
    )
    flags.add_model_flags(parser, required=False, repeats=True)
    flags.add_file_flags(
        parser,
        {
            "max_bytes": f"{_MAX_EXPANSION} times --max_body_bytes",
            "max_pages": f"{_MAX_PAGES:,}",
            "max_seconds": "--max_request_seconds",
        },
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="NAME",
        help="address; default: this machine only",
    )
    parser.add_argument(
        "--port", type=int, default=8000, help="port; default: 8000"
    )
    parser.add_argument(
        "--api_keys",
        metavar="FILE",
        help="file with one API key per line; requests must send one of them",
    )
    parser.add_argument(
        "--cors_origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="web pages that may send requests, such as https://example.org; may be "
        "repeated; default: none",
    )
    for name, (default, _, text) in _COUNTS.items():
        parser.add_argument(
            f"--{name}",
            type=int,
            default=default,
            help=f"{text}; default: {default:,}",
        )
    parser.add_argument(
        "--replicas",
        default="auto",
        metavar="N",
        help="number of copies of the model, each on its devices, that share the queue; "
        "default: auto, as many as there are devices",
    )
    for name, text in _MESH.items():
        parser.add_argument(
            f"--{name}", type=int, default=1, metavar="N", help=text
        )
    parser.add_argument(
        "--max_request_seconds",
        type=float,
        default=300.0,
        help="maximum seconds for a request; default: 300",
    )
    return parser
