"""Damaged files: what is found before it is used, and what changes nothing.

Single bits are flipped and files cut short, over all files of model directories, training
checkpoints, prepared shards and predictions. Each damage must be found (by an InputError) before
the content is used, or be harmless: what was read is bit for bit what was written.
"""

import json
import random
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from reliability_trials import Case, Row

from longsum_jax.errors import InputError

OUTCOMES = ("found", "harmless", "wrong", "crashed")
FLIP_SHARE = 0.7  # of the trials; the others cut files short
TRIALS = 700  # of each


class Subject(Case):
    """Something that this library writes and reads.

    Attributes:
        directory: that holds it; made at the first trial.
    """

    section = "damage"
    wanted = TRIALS
    in_a_row = 100

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files: list[Path] = []
        self._expected: dict[str, np.ndarray] = {}

    @abstractmethod
    def write(self) -> None:
        """Makes the directory."""

    @abstractmethod
    def read(self) -> dict[str, np.ndarray]:
        """Returns everything that its user would have, by name."""

    def trial(self, rng: random.Random) -> Row:
        """Damages one file, reads, and mends it."""
        if not self._files:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            self.write()
            self._expected = self.read()
            self._files = sorted(path for path in self.directory.rglob("*") if path.is_file())
        path = rng.choice(self._files)
        content = path.read_bytes()
        damaged, how = _damaged(content, rng)
        path.write_bytes(damaged)
        outcome = self._outcome()
        path.write_bytes(content)
        row: Row = {"flips": int(how == "flips"), "cuts": int(how == "cuts")}
        row |= {name: int(name == outcome) for name in OUTCOMES}
        if outcome in ("wrong", "crashed"):
            row["failures"] = [f"{outcome}, {path.relative_to(self.directory)} ({how})"]
        return row

    def _outcome(self) -> str:
        """Returns one of ``OUTCOMES``."""
        try:
            result = self.read()
        except InputError:
            return "found"
        except Exception:
            return "crashed"
        return "harmless" if _are_equal(result, self._expected) else "wrong"


class ModelDirectory(Subject):
    name = "model directory"

    def write(self) -> None:
        from flax.traverse_util import unflatten_dict

        from longsum_jax.models.registry import get_family, preset
        from longsum_jax.summarization.model import Model
        from longsum_jax.tokenizers.loading import load_tokenizer

        family = get_family("locost")
        tokenizer = load_tokenizer("bytes")
        sizes = preset("locost", "tiny") | {"vocab_size": tokenizer.vocab_size, "num_layers": 1}
        sizes.pop("family", None)
        config = family.config(sizes | {"num_decoder_layers": 1})
        rng = np.random.default_rng(0)
        shapes = family.parameter_shapes(config)
        flat = {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()}
        params = unflatten_dict(flat, sep="/")
        Model(family, config, params, tokenizer, {"num_beams": 2}).save(self.directory)

    def read(self) -> dict[str, np.ndarray]:
        from flax.traverse_util import flatten_dict

        from longsum_jax.summarization.loading import load

        model = load(self.directory)
        params = flatten_dict(model.params, sep="/")
        settings = f"{model.config} {model.generation_config} {model.tokenizer.fingerprint}"
        return {"settings": np.array(settings), **{k: np.asarray(v) for k, v in params.items()}}


class TrainingCheckpoint(Subject):
    """The state of a run, read as a resume does."""

    name = "training checkpoint"

    def _trees(self) -> tuple[Any, Any]:
        import jax.numpy as jnp

        kernel = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
        params = {"layer": {"kernel": jnp.asarray(kernel)}, "bias": jnp.ones(32, jnp.bfloat16)}
        return params, {"step": jnp.int32(3), "mu": params, "nu": params}

    def write(self) -> None:
        from longsum_jax.training.checkpointing import TrainingCheckpoints

        checkpoints = TrainingCheckpoints(self.directory)
        checkpoints.save(3, *self._trees(), {"position": 17, "epoch": 1})
        checkpoints.close()

    def read(self) -> dict[str, np.ndarray]:
        import jax

        from longsum_jax.training.checkpointing import TrainingCheckpoints

        place = jax.sharding.SingleDeviceSharding(jax.devices()[0])

        def abstract(x: Any) -> Any:
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)

        checkpoints = TrainingCheckpoints(self.directory)
        result = checkpoints.restore(*jax.tree.map(abstract, self._trees()))
        checkpoints.close()
        leaves, _ = jax.tree_util.tree_flatten_with_path((result.params, result.state))
        arrays = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
        return {"data": np.array(json.dumps(result.data, sort_keys=True)), **arrays}


class PreparedShards(Subject):
    name = "prepared shards"

    def write(self) -> None:
        from longsum_jax.data.preparation import write_prepared
        from longsum_jax.data.tasks import get_task
        from longsum_jax.tokenizers.loading import load_tokenizer

        rows = [
            {"document": f"Cat {i} sat. It slept. A dog came.", "summary": f"Cat {i}."}
            for i in range(200)
        ]
        source = self.directory.with_suffix(".jsonl")
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        task = get_task("summaries", source=f"json:{source}", max_source_length=64)
        tokenizer = load_tokenizer("bytes")
        write_prepared(self.directory, task, tokenizer, "train", 2, progress=False)

    def read(self) -> dict[str, np.ndarray]:
        from longsum_jax.data.prepared import PreparedExamples

        result = PreparedExamples(self.directory)
        arrays = {"metadata": np.array(json.dumps(result.metadata, sort_keys=True))}
        for number, example in enumerate(result):
            arrays |= {f"{number}/{key}": np.asarray(value) for key, value in example.items()}
        return arrays


class Predictions(Subject):
    """What an evaluation writes, as `longsum score` and the next evaluation read it."""

    name = "predictions"

    def write(self) -> None:
        from longsum_jax import checksums

        self.directory.mkdir()
        rows = [
            {"id": f"d{i}", "prediction": f"Cat {i}.", "reference": "A cat.", "scores": {"r": 0.5}}
            for i in range(20)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.directory / "predictions.jsonl").write_text(text)
        for name in ("settings.json", "metrics.json"):
            (self.directory / name).write_text(json.dumps({"examples": len(rows)}))
        checksums.write(self.directory)

    def read(self) -> dict[str, np.ndarray]:
        from longsum_jax.evaluation.comparison import read_predictions

        result = read_predictions(self.directory / "predictions.jsonl")
        return {name: np.array(str(prediction)) for name, prediction in result.items()}


SUBJECTS = (ModelDirectory, TrainingCheckpoint, PreparedShards, Predictions)


def damage_cases(folder: Path) -> list[Case]:
    """Returns all subjects, in subdirectories of a folder."""
    return [subject(folder / subject.name / "written") for subject in SUBJECTS]


def _damaged(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Returns content with one bit flipped or without its end, and which of these."""
    if rng.random() < FLIP_SHARE and content:
        flipped = bytearray(content)
        bit = rng.randrange(8 * len(content))
        flipped[bit // 8] ^= 1 << bit % 8
        return bytes(flipped), "flips"
    return content[: rng.randrange(max(1, len(content)))], "cuts"


def _are_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    if found.keys() != expected.keys():
        return False
    return all(found[name].tobytes() == expected[name].tobytes() for name in expected)
