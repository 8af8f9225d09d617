"""Damaged files: what is found before it is used, and what changes nothing.

    python benchmarks/reliability.py --minutes=10 --out=reliability.json

Single bits are flipped and files cut short, over all files of a model directory, a training
checkpoint and prepared shards. Each damage must be found (by an InputError) before the content is
used, or be harmless: what was read is bit for bit what was written. "wrong" counts what was
neither, "crashed" other exceptions than the sentence.

Trials are drawn from --seed and their number, which repeats a wrong one. Rows that are complete in
--out are not made again.
"""

import argparse
import json
import random
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from common import print_table, rows_before, write_report

from longsum_jax.errors import InputError

OUTCOMES = ("found", "harmless", "wrong", "crashed")
FLIP_SHARE = 0.7  # of the trials; the others cut files short


class Subject(ABC):
    """Something that this library writes and reads.

    Attributes:
        name: in the table.
        directory: that holds it.
    """

    name: str

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.write()
        self._expected = self.read()
        self._files = sorted(path for path in directory.rglob("*") if path.is_file())

    @abstractmethod
    def write(self) -> None:
        """Makes the directory."""

    @abstractmethod
    def read(self) -> dict[str, np.ndarray]:
        """Returns everything that its user would have, by name."""

    def trial(self, rng: random.Random) -> str:
        """Damages one file, reads, and mends it; returns one of ``OUTCOMES``."""
        path = rng.choice(self._files)
        content = path.read_bytes()
        path.write_bytes(_damaged(content, rng))
        try:
            found = self.read()
        except InputError:
            return "found"
        except Exception:
            return "crashed"
        finally:
            path.write_bytes(content)
        return "harmless" if _are_equal(found, self._expected) else "wrong"


class ModelDirectory(Subject):
    name = "model directory"

    def write(self) -> None:
        from flax.traverse_util import unflatten_dict

        from longsum_jax.inference.model import Model
        from longsum_jax.models.registry import get_family, preset
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

        from longsum_jax.inference.loading import load

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
        found = checkpoints.restore(*jax.tree.map(abstract, self._trees()))
        checkpoints.close()
        leaves, _ = jax.tree_util.tree_flatten_with_path((found.params, found.state))
        arrays = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
        return {"data": np.array(json.dumps(found.data, sort_keys=True)), **arrays}


class PreparedShards(Subject):
    name = "prepared shards"

    def write(self) -> None:
        from longsum_jax.data.prepared import write_prepared
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

        found = PreparedExamples(self.directory)
        arrays = {"metadata": np.array(json.dumps(found.metadata, sort_keys=True))}
        for number, example in enumerate(found):
            arrays |= {f"{number}/{key}": np.asarray(value) for key, value in example.items()}
        return arrays


SUBJECTS = (ModelDirectory, TrainingCheckpoint, PreparedShards)


def _damaged(content: bytes, rng: random.Random) -> bytes:
    """Returns content with one bit flipped, or without its end."""
    if rng.random() < FLIP_SHARE and content:
        flipped = bytearray(content)
        bit = rng.randrange(8 * len(content))
        flipped[bit // 8] ^= 1 << bit % 8
        return bytes(flipped)
    return content[: rng.randrange(max(1, len(content)))]


def _are_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    if found.keys() != expected.keys():
        return False
    return all(found[name].tobytes() == expected[name].tobytes() for name in expected)


def _row(subject: type[Subject], seed: int, trials: int, end: float) -> dict[str, Any]:
    """Makes the trials of one subject, or as many as there is time for."""
    counts = Counter()
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        made = subject(Path(folder) / "written")
        for number in range(trials):
            if time.monotonic() > end:
                break
            outcome = made.trial(random.Random(f"{seed} {subject.name} {number}"))
            counts[outcome] += 1
            if outcome in ("wrong", "crashed"):
                failures.append(number)
    row = {"what": subject.name, "trials": counts.total()}
    return row | {outcome: counts[outcome] for outcome in OUTCOMES} | {"failed_trials": failures}


def main() -> None:
    """Prints a table and writes a report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--trials", type=int, default=400, help="of each subject")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", metavar="FILE")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    settings = {"trials": args.trials, "seed": args.seed}
    rows = [row for row in rows_before(args.out, **settings) if row["trials"] == args.trials]
    finished = {row["what"] for row in rows}
    for subject in SUBJECTS:
        if subject.name not in finished and time.monotonic() < end:
            rows.append(_row(subject, args.seed, args.trials, end))
            if args.out:
                write_report(args.out, rows, **settings)
    print_table(rows)


if __name__ == "__main__":
    main()
