"""The models of a server, which requests choose by name."""

import collections
from collections.abc import Iterator
from typing import Any

from starlette.exceptions import HTTPException

from longsum_jax.errors import InputError
from longsum_jax.serving.engine import Engine
from longsum_jax.serving.jobs import Jobs


class ServedModels:
    """The engines of a server by the name of their model.

    Args:
        *engines: engines with different names; the first one summarizes for
            requests that name no model.

    Raises:
        InputError: if there is no engine, or two have one name.
    """

    def __init__(self, *engines: Engine) -> None:
        if not engines:
            raise InputError("an application needs at least one engine; got 0")
        names = collections.Counter(engine.name for engine in engines)
        [(name, count)] = names.most_common(1)
        if count > 1:
            raise InputError(
                f"{count} engines are named {name!r}; give each its own name"
            )
        self._jobs = {engine.name: Jobs(engine) for engine in engines}

    def __iter__(self) -> Iterator[Engine]:
        for jobs in self._jobs.values():
            yield jobs.engine

    def take(self, fields: dict[str, Any]) -> Jobs:
        """Removes ``model`` from the fields of a body, and returns its jobs.

        Raises:
            HTTPException: 404 for a name that no model has.
        """
        name = fields.pop("model", None)
        if name is None:
            name = next(iter(self._jobs))
        return self._jobs_of(name)

    def _jobs_of(self, name: Any) -> Jobs:
        # other types of JSON may be unhashable
        if not isinstance(name, str) or name not in self._jobs:
            raise HTTPException(
                404,
                f"model={str(name)[:100]!r} is not served here; give one of "
                f"{', '.join(self._jobs)}",
            )
        return self._jobs[name]

    def entry(self, name: str) -> dict[str, Any]:
        """Returns the entry of a model, in OpenAI's format.

        ``is_extractive`` is true for the bundled ranker.

        Raises:
            HTTPException: 404 for a name that no model has.
        """
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "longsum",
            "is_extractive": self._jobs_of(name).engine.model is None,
        }

    def entries(self) -> list[dict[str, Any]]:
        """Returns the entries of all models, the default first."""
        return [self.entry(engine.name) for engine in self]
