"""Every family beside transformers' PyTorch class on small random models: the table of
docs/results.

    python benchmarks/parity.py --out=parity.json

The models are those of tests/parity/reference.py: every parameter far from its initial value,
float32, three rows of 77, 41 and 3 tokens. Errors are the largest difference over the largest
value. "round trip" says whether the directory that ours saves loads in PyTorch to the same tensors,
but for a pooler that BigBird's class holds and does not read.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from common import print_table, write_report

import longsum_jax

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "parity"))

import reference

LENGTH, ROWS, TARGET = 77, (77, 41, 3), 9
BEAM = {"num_beams": 4, "length_penalty": 2.0, "no_repeat_ngram_size": 3}


def error(ours: Any, theirs: Any) -> float:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def same_tensors(name: str, theirs: Any, ours: Any, directory: str) -> bool:
    ours.save(directory)
    again = type(theirs).from_pretrained(directory).state_dict()
    for key, x in theirs.state_dict().items():
        atol = 1e-6 if "embed_positions" in key else 0
        if key in reference.unused_keys(name) | reference.image_keys([key]):
            continue
        if key not in again or not torch.allclose(again[key], x, rtol=0, atol=atol):
            return False
    return True


@torch.no_grad()
def compare(name: str) -> dict[str, Any]:
    theirs = reference.make_reference(name)
    with tempfile.TemporaryDirectory() as work:
        theirs.save_pretrained(f"{work}/theirs")
        ours = longsum_jax.load(f"{work}/theirs")
        rng = np.random.default_rng(0)
        mask = np.arange(LENGTH) < np.array(ROWS)[:, None]
        ids = np.where(mask, rng.integers(5, 99, mask.shape), ours.config.pad_token_id)
        inputs = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask).long()}
        inputs |= reference.further_inputs(name, ids)
        row = {"family": name, "round_trip": same_tensors(name, theirs, ours, f"{work}/ours")}
    if name in reference.ENCODERS:
        return row | compare_encoder(theirs, ours, ids, mask, inputs)
    decoder_ids = rng.integers(5, 99, (len(ids), TARGET))
    out = theirs(**inputs, decoder_input_ids=torch.tensor(decoder_ids))
    row["states_error"] = error(
        np.asarray(ours.encode(ids, mask))[mask], out.encoder_last_hidden_state[mask]
    )
    row["logits_error"] = error(ours.logits(ids, mask, decoder_ids), out.logits)
    for kind, options in (("greedy", {}), ("beam", BEAM)):
        expected = theirs.generate(**inputs, max_new_tokens=16, **options).numpy()
        row[kind] = np.array_equal(ours.generate(ids, mask, max_new_tokens=16, **options), expected)
    return row


def compare_encoder(
    theirs: Any, ours: Any, ids: np.ndarray, mask: np.ndarray, inputs: dict[str, Any]
) -> dict[str, Any]:
    base = getattr(theirs, theirs.base_model_prefix, theirs)
    states = error(np.asarray(ours.encode(ids, mask))[mask], base(**inputs).last_hidden_state[mask])
    if ours.config.head in ("none", "pooler"):
        return {"states_error": states}
    expected, result = theirs(**inputs).logits.numpy(), np.asarray(ours.logits(ids, mask))
    where = slice(None) if expected.ndim == 2 else mask
    return {"states_error": states, "logits_error": error(result[where], expected[where])}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    # Further heads are the same encoders with another map, which the tests compare.
    further = reference.HEADS.keys() | reference.DECODERS.keys()
    encoders = [name for name in reference.ENCODERS if name not in further]
    names = [*reference.ENCODER_DECODERS, *encoders]
    rows = [compare(name) for name in names]
    print_table(rows)
    if args.out:
        write_report(args.out, rows)


if __name__ == "__main__":
    main()
