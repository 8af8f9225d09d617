"""The choice of how a run computes its training step, made when it starts."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from longsum_jax.errors import InputError

# Keys that may be chosen: they determine how the update is computed, and do not
# change it.
_KEYS = {
    "model": ("remat", "length_chunk", "page_recompute"),
    "training": ("accumulation",),
    "mesh": ("preset", "batch", "fsdp", "tensor", "sequence"),
}


def keep_choice(config: Mapping[str, Any], workdir: str) -> dict[str, Any]:
    """Returns the config with the choice that the checkpoints of ``workdir`` were made with.

    Args:
        config: nested dictionaries of a config; without checkpoints, or with
            training.tune=False, they are returned as they are.
        workdir: directory of the run.

    Raises:
        InputError: the description of the run cannot be read.
    """
    from longsum_jax.experiment.config_files import with_changes
    from longsum_jax.files import read_json
    from longsum_jax.training.workdir import has_checkpoint

    record = Path(workdir) / "run.json"
    values: dict[str, Any] = {}
    if _is_tuned(config) and has_checkpoint(Path(workdir)) and record.exists():
        began = read_json(record)
        for section, keys in _KEYS.items():
            # The description of another version may lack a section.
            for key in keys:
                if key in began.get(section, {}):
                    values[f"{section}.{key}"] = began[section][key]
    return with_changes(config, values)


def choose(
    config: Mapping[str, Any], workdir: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """Returns the config with which the training step fits and has the least roofline time.

    Candidates are compiled, but not run. A run with a checkpoint keeps its
    choice, see ``keep_choice``.

    Args:
        config: nested dictionaries of a config; with training.tune=False, they
            are returned as they are.
        workdir: directory of the run.
        say: function that prints a line.

    Raises:
        InputError: the config is invalid, or the choice of a run with a
            checkpoint is for other devices.
    """
    from longsum_jax.commands.plan import fastest_changes
    from longsum_jax.experiment.config import run_config
    from longsum_jax.experiment.config_files import with_changes
    from longsum_jax.training.distributed import require_agreement
    from longsum_jax.training.mesh import make_mesh
    from longsum_jax.training.workdir import has_checkpoint

    if not _is_tuned(config):
        return dict(config)
    if has_checkpoint(Path(workdir)):
        mesh = run_config(config).mesh
        try:
            make_mesh(mesh)
        except InputError as error:
            raise InputError(
                f"{error}, with training.tune=False, because tuned runs keep their mesh"
            ) from None
        return dict(config)
    values = fastest_changes(run_config(config), say)
    require_agreement(values, "training.tune")
    return with_changes(config, values)


def _is_tuned(config: Mapping[str, Any]) -> bool:
    return bool(config.get("training", {}).get("tune"))
