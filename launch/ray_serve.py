"""Serves summaries on a Ray cluster: replicas of the application of ``longsum serve``.

    pip install 'longsum_jax[serve,ray]'
    serve run launch.ray_serve:application flags="--model=/models/reports" replicas=4 gpus=1

Ray's proxies listen, spread the requests over the replicas and restart what dies; every replica
loads the model and has a queue of its own. All machines must have the same paths.
"""

import shlex
from typing import TYPE_CHECKING, Any

from ray import serve

if TYPE_CHECKING:
    from starlette.applications import Starlette

DEFAULTS = {"flags": "", "replicas": 1, "cpus": 1, "gpus": 0}


def application(arguments: dict[str, Any]) -> serve.Application:
    """Returns the application for ``serve run``.

    Args:
        arguments: ``flags`` of ``longsum serve``, of which --host and --port have no effect;
            ``replicas``; ``cpus`` and ``gpus`` of a replica.

    Raises:
        SystemExit: another argument.
    """
    if unknown := sorted(arguments.keys() - DEFAULTS.keys()):
        raise SystemExit(f"{unknown[0]} must be one of {', '.join(DEFAULTS)}")
    values = DEFAULTS | arguments
    argv = shlex.split(values["flags"])

    def make_replica() -> "Starlette":
        from longsum_jax.commands.serve import make_application

        return make_application(argv)[0]

    deployment = serve.deployment(
        name="longsum",
        num_replicas=int(values["replicas"]),
        ray_actor_options={"num_cpus": float(values["cpus"]), "num_gpus": float(values["gpus"])},
        max_ongoing_requests=1000,  # the application refuses requests by itself, with status 429
        graceful_shutdown_timeout_s=301,  # --max_request_seconds, and one more
    )
    return deployment(serve.ingress(make_replica)()).bind()
