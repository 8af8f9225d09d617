"""What a model becomes that is converted to LSG attention and reads more than it was trained on.

    python benchmarks/lsg_study.py embeddings --model=DIR --documents=FILE[,FILE] \
        --out=lsg_embeddings.json
    python benchmarks/lsg_study.py masked_lm --model=DIR --train=FILE --documents=FILE --work=DIR \
        --out=FILE

"embeddings": a BERT that embeds texts of at most 512 tokens, not trained any further. Every variant
reads the first 512, 2,048 and 4,096 tokens of each document; its mean state is compared, by the
cosine, with the mean of the original's embeddings of chunks of 512 tokens. For scale:
the original that reads the first 512 tokens alone, and two different documents.

"masked_lm": the same BERT with a new masked-language-model head, trained here at 512 tokens on the
documents of --train. Every variant guesses the same hidden tokens of the same texts, as it is and
after some steps of training at 4,096 tokens; the original reads the texts in chunks of 512. The
trained model is kept in --work and used again. --checkpoints are further masked language models,
such as a published Longformer or BigBird, read as they are; tokens are their own, so that texts of
one length in tokens are not of one length in words.

Variants are the selections of LSG attention, blocks of 128 tokens with every fourth token a sparse
key ("128/4 norm"; "128/2 norm" with every second, as in table 1 of the paper), or blocks of 256
without ("256/none"); "full" is full attention, "longformer" (window 512, whose maps of global
tokens begin as copies), "bigbird" (blocks of 64), "linear", "efficient" and "performer" have the
same weights with another attention. The tables of positions are repeated for all of them. Started
again with the same flags, it goes on with the next variant.
"""

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import lsg_options, print_table, rows_before, write_report

import longsum_jax
from longsum_jax.experiment.warm_start import WarmStart
from longsum_jax.inference.model import Model
from longsum_jax.ops.losses import token_cross_entropy
from longsum_jax.ops.masking import mask_tokens
from longsum_jax.text.documents import read_json_lines
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.typing import IGNORED_LABEL

SHORT = 512  # what the original reads
SELECTIONS = ("norm", "pooling", "stride", "block_stride", "bos_pooling", "lsh")
VARIANTS = ("full", "256/none", *(f"128/4 {kind}" for kind in SELECTIONS), "128/2 norm")
PEERS: dict[str, dict[str, Any]] = {
    "longformer": {"encoder_attention": "longformer", "attention_window": (512,)},
    "bigbird": {"encoder_attention": "bigbird", "block_size": 64, "num_random_blocks": 3},
    **{kind: {"encoder_attention": kind} for kind in ("linear", "efficient", "performer")},
}
# The masked language model.
BATCH_TOKENS = 2048
TRAINING = {"learning_rate": 5e-4, "schedule": "linear", "warmup_steps": 20}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
FINE_TUNING = {"learning_rate": 3e-4, "schedule": "linear", "warmup_steps": 5}


def converted(model: Model, variant: str, length: int, **options: Any) -> Model:
    """``model`` with positions for ``length`` tokens and the attention of ``variant``."""
    if variant == "full" or variant in PEERS:
        longer = model if length <= model.config.max_source_length else model.extended(length)
        return longer if variant == "full" else with_attention(longer, **PEERS[variant])
    longer_than = None if length <= SHORT else length
    return model.to_lsg(longer_than, **lsg_options(variant), **options)


def with_attention(model: Model, **options: Any) -> Model:
    """``model`` with another attention; maps that it lacks are copies of those for all tokens."""
    config = dataclasses.replace(model.config, **options)
    flat = flax.traverse_util.flatten_dict(model.params, sep="/")
    for path in model.family.parameter_shapes(config):
        flat.setdefault(path, flat.get(path.replace("_global/", "/")))
    params = flax.traverse_util.unflatten_dict(flat, sep="/")
    return Model(model.family, config, params, model.tokenizer)


def long_texts(model: Model, files: str, count: int, length: int) -> list[list[int]]:
    """Ids of ``length`` tokens of different documents, no special ones, ``count`` from each file at
    most.

    Raises:
        SystemExit: no document is that long.
    """
    texts = []
    for path in files.split(","):
        found: dict[str, list[int]] = {}
        for document in read_json_lines(path, document_key="text|document", require_summary=False):
            ids = model.tokenizer.encode(document.document[: 12 * length])
            if len(ids) >= length:
                found.setdefault(document.document, ids[:length])
            if len(found) == count:
                break
        texts += found.values()
    if not texts:
        raise SystemExit(
            f"--documents={files}: none has {length} tokens of this model; give longer documents, "
            "or lower --lengths"
        )
    return texts


# Embeddings


def embed(model: Model, texts: Sequence[Sequence[int]], length: int) -> np.ndarray:
    """Mean states of length 1, float32 [texts, D]; every text is padded to ``length`` tokens."""
    rows = []
    for text in texts:
        ids = np.full((1, length), model.config.pad_token_id)
        closed = model.tokenizer.add_special_tokens(text)
        ids[0, : len(closed)] = closed
        mask = np.arange(length) < len(closed)
        mean = np.asarray(model.encode(ids, mask[None]))[0, mask].mean(0)
        rows.append(mean / np.linalg.norm(mean))
    return np.stack(rows)


def embed_chunks(model: Model, text: Sequence[int]) -> np.ndarray:
    """The mean of the embeddings of chunks [D], each counted by its tokens: the last one may be
    short."""
    chunks = [text[start : start + SHORT - 2] for start in range(0, len(text), SHORT - 2)]
    return np.average(embed(model, chunks, SHORT), axis=0, weights=[len(chunk) for chunk in chunks])


def cosines(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """Of rows of ``a`` with rows of ``b``; those of ``a`` have length 1."""
    values = (a * b).sum(-1) / np.linalg.norm(b, axis=-1)
    return {"cosine": float(values.mean()), "lowest": float(values.min())}


def study_embeddings(args: argparse.Namespace, done: set[str]) -> Iterator[dict[str, Any]]:
    """Rows of the table; all of them anew, as they take minutes."""
    del done
    model = longsum_jax.load(args.model)
    lengths = [int(x) for x in args.lengths.split(",")]
    texts = long_texts(model, args.documents, args.count, max(lengths))
    for length in lengths:
        cut = [text[: length - 2] for text in texts]
        wanted = np.stack([embed_chunks(model, text) for text in cut])
        between = cosines(
            wanted / np.linalg.norm(wanted, axis=-1, keepdims=True), np.roll(wanted, 1, axis=0)
        )
        start = embed(model, [text[: SHORT - 2] for text in cut], SHORT)
        row = {"length": length, "documents": len(texts)}
        yield row | {"variant": "another document"} | between
        yield row | {"variant": "first 512 tokens"} | cosines(start, wanted)
        for variant in args.variants.split(","):
            longer = converted(model, variant, length, mask_first_token=args.mask_first_token)
            yield row | {"variant": variant} | cosines(embed(longer, cut, length), wanted)


# A masked language model


def hide(model: Model, key: Any, texts: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What is read and what is to be guessed of texts [B, L], as in BERT."""
    t = model.tokenizer
    words = np.setdiff1d(np.arange(t.vocab_size), [t.pad_id, t.eos_id, t.mask_id, *t.prefix_ids])
    return mask_tokens(
        key, texts, jnp.ones(texts.shape, bool), mask_id=t.mask_id, replacements=jnp.asarray(words)
    )


def closed(model: Model, inputs: Any, labels: Any) -> tuple[jax.Array, jax.Array]:
    """Rows of texts [B, L] between the special tokens that every input has: [B, L + 2] each."""
    ends = (*model.tokenizer.prefix_ids, model.tokenizer.eos_id)
    around = lambda x, ends: jnp.pad(x, ((0, 0), (1, 1)), constant_values=((0, 0), ends))  # noqa: E731
    return around(inputs, ends), around(labels, (IGNORED_LABEL,) * 2)


def scores(model: Model, texts: np.ndarray, length: int, seed: int) -> dict[str, float]:
    """Bits per hidden token of texts [n, T], and the share of them that is guessed, read in pieces
    of ``length`` tokens; equal seeds hide equal tokens."""
    hidden = jax.vmap(
        lambda i, x: hide(model, jax.random.fold_in(jax.random.key(seed), i), x[None])
    )
    inputs, labels = (
        np.asarray(x)[:, 0] for x in hidden(jnp.arange(len(texts)), jnp.asarray(texts))
    )
    sums, size = [], length - 2
    for start in range(0, texts.shape[1], size):
        for part in zip(
            inputs[:, None, start : start + size],
            labels[:, None, start : start + size],
            strict=True,
        ):
            ids, wanted = closed(model, *part)
            sums.append(loss_and_right(model.logits(ids, np.ones(ids.shape, bool)), wanted))
    total, count, right = np.sum(sums, axis=0)
    return {"bits": float(total / count / math.log(2)), "accuracy": float(right / count)}


@jax.jit
def loss_and_right(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, ...]:
    """Loss and number of hidden tokens, and how many of them are the most likely ones."""
    return *token_cross_entropy(logits, labels), (logits.argmax(-1) == labels).sum()


def train(model: Model, texts: np.ndarray, options: dict[str, Any], steps: int, seed: int) -> Model:
    """``model`` after ``steps`` batches of rows of texts [n, T], drawn with new masks each time."""
    optimizer = make_optimizer(OptimizerOptions("adamw", total_steps=steps, **options))
    size = max(1, BATCH_TOKENS // (texts.shape[1] + 2))

    def loss_of(params: Any, key: Any, rows: jax.Array) -> jax.Array:
        inputs, labels = closed(model, *hide(model, key, rows))
        logits = model.module.apply(
            {"params": params}, inputs, jnp.ones_like(inputs), False, rngs={"dropout": key}
        )
        total, count = token_cross_entropy(logits, labels)
        return total / count

    @jax.jit
    def step(params: Any, state: Any, key: Any, rows: jax.Array) -> tuple[Any, Any, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(params, key, rows)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    params, state, rng = model.params, optimizer.init(model.params), np.random.default_rng(seed)
    for i in range(steps):
        rows = texts[rng.integers(len(texts), size=size)]
        params, state, loss = step(params, state, jax.random.fold_in(jax.random.key(seed), i), rows)
        if i % 25 == 0 or i == steps - 1:
            print(f"step {i}: {float(loss) / math.log(2):.3f} bits", file=sys.stderr, flush=True)
    return Model(model.family, model.config, params, model.tokenizer)


def pieces(model: Model, path: str, size: int) -> np.ndarray:
    """All texts of a file in rows of ``size`` tokens, int [n, size]; what is left over of each is
    dropped."""
    rows = []
    for document in read_json_lines(path, document_key="text|document", require_summary=False):
        ids = np.asarray(model.tokenizer.encode(document.document))
        rows.append(ids[: len(ids) // size * size].reshape(-1, size))
    return np.concatenate(rows)


def trained_model(args: argparse.Namespace) -> Model:
    """The model of 512 positions, from the directory that an earlier run left or trained now."""
    directory = Path(args.work) / "model"
    if directory.exists():
        return longsum_jax.load(directory)
    start = longsum_jax.load(args.model)
    family, config = start.family, dataclasses.replace(start.config, head="masked_lm", **NO_DROPOUT)
    params = WarmStart(args.model, family, config, args.seed).params
    model = Model(family, config, params, start.tokenizer)
    begun = time.perf_counter()
    model = train(model, pieces(model, args.train, SHORT - 2), TRAINING, args.steps, args.seed)
    print(f"trained in {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    model.save(directory)
    return model


def study_masked_lm(args: argparse.Namespace, done: set[str]) -> Iterator[dict[str, Any]]:
    """Rows of the table but for those of variants that are done."""
    model, lengths = trained_model(args), [int(x) for x in args.lengths.split(",")]
    long = max(lengths)
    texts = np.array(long_texts(model, args.documents, args.count, long - 2))
    original = "original, in chunks of 512"
    for length in lengths if original not in done else ():
        found = scores(model, texts[:, : length - 2], SHORT, args.seed)
        yield {"length": length, "documents": len(texts), "variant": original, **found}
    further = pieces(model, args.train, long - 2) if args.fine_tuning_steps else None
    for variant in args.variants.split(","):
        if variant in done:
            continue
        longer = converted(model, variant, long)
        row = {"documents": len(texts), "variant": variant}
        plain = {
            length: scores(longer, texts[:, : length - 2], length, args.seed) for length in lengths
        }
        if further is not None:
            longer = train(longer, further, FINE_TUNING, args.fine_tuning_steps, args.seed)
        found = []
        for length, before in plain.items():
            found.append({"length": length, **row, **before})
            if further is not None:
                after = scores(longer, texts[:, : length - 2], length, args.seed)
                found[-1] |= {f"{name}_fine_tuned": value for name, value in after.items()}
        yield from found
    for path in filter(None, args.checkpoints.split(",")):
        if path not in done:
            yield from checkpoint_rows(path, lengths, args)


def checkpoint_rows(
    path: str, lengths: Sequence[int], args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Rows of a pre-trained model as it is, by the tokens of its own vocabulary."""
    model = longsum_jax.load(path)
    texts = np.array(long_texts(model, args.documents, args.count, max(lengths) - 2))
    row = {"documents": len(texts), "variant": path}
    for length in lengths:
        yield {"length": length, **row, **scores(model, texts[:, : length - 2], length, args.seed)}


STUDIES: dict[str, Callable[[argparse.Namespace, set[str]], Iterator[dict[str, Any]]]] = {
    "embeddings": study_embeddings,
    "masked_lm": study_masked_lm,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument(
        "--documents", required=True, help="JSON lines that hold long documents, comma-separated"
    )
    parser.add_argument("--count", type=int, default=6, help="documents of each file; default: 6")
    parser.add_argument("--lengths", default="2048,4096", help="tokens; default: 2048,4096")
    parser.add_argument(
        "--variants",
        default=",".join([*VARIANTS, *PEERS]),
        help="comma-separated; default: all",
    )
    parser.add_argument(
        "--checkpoints",
        default="",
        help="masked_lm: further masked language models for long texts, comma-separated",
    )
    parser.add_argument("--model", required=True, help="directory of a BERT")
    parser.add_argument(
        "--mask_first_token", action="store_true", help="embeddings: global token 0 in its place"
    )
    parser.add_argument("--train", help="masked_lm: JSON lines to train on")
    parser.add_argument("--work", help="masked_lm: directory for the trained model")
    parser.add_argument(
        "--steps", type=int, default=150, help="masked_lm: of training at 512 tokens"
    )
    parser.add_argument(
        "--fine_tuning_steps", type=int, default=10, help="masked_lm: at the longest length"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args()

    options = dict(vars(args))
    rows = rows_before(args.out, options=options) if args.study == "masked_lm" else []
    done = {row["variant"] for row in rows}
    for row in STUDIES[args.study](args, done):
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
        if args.out:
            write_report(args.out, rows, options=options)
    print_table(rows)


if __name__ == "__main__":
    main()
