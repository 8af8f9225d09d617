"""What a model becomes that is converted to LSG attention and reads more than it was trained on.

    python studies/lsg_study.py embeddings --model=DIR --documents=FILE[,FILE] \
        --out=lsg_embeddings.json
    python studies/lsg_study.py masked_lm --model=DIR --steps=0 --fine_tuning_steps=0 \
        --documents=FILE --out=FILE
    python studies/lsg_study.py masked_lm --model=DIR --train=FILE --documents=FILE --work=DIR \
        --out=FILE

"embeddings": a BERT that embeds texts of at most 512 tokens, not trained any further. Every variant
reads the first 512, 2,048 and 4,096 tokens of each document; its mean state is compared, by the
cosine, with the mean of the original's embeddings of chunks of 512 tokens. For scale:
the original that reads the first 512 tokens alone, and two different documents.

"masked_lm": a masked language model. Every variant guesses the same hidden tokens of the same
texts, untrained and after --fine_tuning_steps at the longest length; the original reads the texts
in chunks of 512. `bits` is the loss of a hidden token in bits, which the paper calls BPC. With
--steps=0 the model of --model is read with its own head, as in table 1 of the paper; otherwise it
gets a new head and is trained here at 512 tokens on the documents of --train, kept in --work and
used again. --checkpoints are further masked language models, such as a published Longformer or
BigBird, with their own weights and tokens, so that texts of one length in tokens are not of one
length in words.

Variants have the weights of the model and another attention. "128/4 norm" is LSG attention with
blocks of 128 tokens and every fourth token a sparse key, "128/2 norm" with every second one (table
1), "256/none" with blocks of 256 and no sparse keys. "full" is full attention, "longformer" has
windows of 512 (its maps of global tokens are copies), "bigbird" blocks of 64; "linear", "efficient"
and "performer" are kernels. "linformer" has 128 projections, drawn here because no model has them.
"reformer" is the attention `lsh` of the library: Reformer's hashing without its reversible layers,
vectors that are queries and keys at once (the mean of both maps of the model), 4 rounds, chunks of
64 tokens and two buckets for every chunk. Tables of positions are repeated for longer texts.
Started again with the same flags, it goes on with the next variant.
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

import benchmarks_path  # noqa: F401
import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import lsg_options, print_table, rows_before, write_report

import longsum_jax
from longsum_jax.experiment.warm_start import WarmStart
from longsum_jax.ops.losses import token_cross_entropy
from longsum_jax.ops.masking import mask_tokens
from longsum_jax.summarization.model import Model
from longsum_jax.text.documents import read_json_lines
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.typing import IGNORED_LABEL

SHORT = 512  # what the original reads
SELECTIONS = ("norm", "pooling", "stride", "block_stride", "bos_pooling", "lsh")
VARIANTS = ("full", "256/none", *(f"128/{n} {kind}" for n in (4, 2) for kind in SELECTIONS))
PEERS = ("longformer", "bigbird", "linear", "efficient", "performer", "linformer", "reformer")
LSH_CHUNK = 64
# The masked language model.
BATCH_TOKENS = 2048
TRAINING = {"learning_rate": 5e-4, "schedule": "linear", "warmup_steps": 20}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
FINE_TUNING = {"learning_rate": 3e-4, "schedule": "linear", "warmup_steps": 5}


def converted(model: Model, variant: str, length: int, **options: Any) -> Model:
    """``model`` with positions for ``length`` tokens and the attention of ``variant``."""
    if variant == "full" or variant in PEERS:
        longer = model if length <= model.config.max_source_length else model.extended(length)
        if variant == "full":
            return longer
        return with_attention(longer, **peer_options(variant, length))
    longer_than = None if length <= SHORT else length
    return model.to_lsg(longer_than, **lsg_options(variant), **options)


def peer_options(variant: str, length: int) -> dict[str, Any]:
    """Options of an attention of ``PEERS`` that reads ``length`` tokens."""
    options: dict[str, dict[str, Any]] = {
        "longformer": {"attention_window": (512,)},
        "bigbird": {"block_size": 64, "num_random_blocks": 3},
        "linformer": {"linformer_size": 128, "linformer_max_length": length},
        "reformer": {
            "encoder_attention": "lsh",
            "lsh_num_hashes": 4,
            "lsh_chunk_length": LSH_CHUNK,
            "lsh_num_buckets": 2 * max(length // LSH_CHUNK, 1),
        },
    }
    return {"encoder_attention": variant} | options.get(variant, {})


def with_attention(model: Model, **options: Any) -> Model:
    """``model`` with another attention. Maps for global tokens that it lacks are copies of its maps
    for all tokens; other parameters that it lacks are drawn."""
    config = model.config.replace(**options)
    flat = flax.traverse_util.flatten_dict(model.params, sep="/")
    init, shapes = model.family.init_params(config), model.family.parameter_shapes(config)
    sources = {path: path.replace("_global/", "/") for path in shapes}
    missing = [path for path, source in sources.items() if source not in flat]

    def draw(key: jax.Array) -> dict[str, jax.Array]:
        drawn = flax.traverse_util.flatten_dict(nn.meta.unbox(init(key)), sep="/")
        return {path: drawn[path] for path in missing}

    flat |= jax.jit(draw)(jax.random.key(0)) if missing else {}
    params = {path: flat.get(path, flat.get(source)) for path, source in sources.items()}
    tree = flax.traverse_util.unflatten_dict(params, sep="/")
    return Model(model.family, config, tree, model.tokenizer)


def long_texts(model: Model, files: str, count: int, length: int) -> list[list[int]]:
    """Ids of ``length`` tokens of different documents, no special ones, ``count`` from each file at
    most.

    Raises:
        SystemExit: no document is that long.
    """
    texts = []
    for path in files.split(","):
        result: dict[str, list[int]] = {}
        for document in read_json_lines(path, document_key="text|document", require_summary=False):
            ids = model.tokenizer.encode(document.document[: 12 * length])
            if len(ids) >= length:
                result.setdefault(document.document, ids[:length])
            if len(result) == count:
                break
        texts += result.values()
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
        expected = np.stack([embed_chunks(model, text) for text in cut])
        between = cosines(
            expected / np.linalg.norm(expected, axis=-1, keepdims=True),
            np.roll(expected, 1, axis=0),
        )
        start = embed(model, [text[: SHORT - 2] for text in cut], SHORT)
        row = {"length": length, "documents": len(texts)}
        yield row | {"variant": "another document"} | between
        yield row | {"variant": "first 512 tokens"} | cosines(start, expected)
        for variant in args.variants.split(","):
            longer = converted(model, variant, length, mask_first_token=args.mask_first_token)
            yield row | {"variant": variant} | cosines(embed(longer, cut, length), expected)


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
            ids, expected = closed(model, *part)
            sums.append(loss_and_right(model.logits(ids, np.ones(ids.shape, bool)), expected))
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


def original_model(args: argparse.Namespace) -> Model:
    """The masked language model of --model, or with --steps the one that is trained from it: from
    the directory that an earlier run left, or now.

    Raises:
        SystemExit: the model has no head for masked language models.
    """
    if not args.steps:
        model = longsum_jax.load(args.model)
        if getattr(model.config, "head", None) != "masked_lm":
            raise SystemExit(
                f"--model={args.model} is not a masked language model; give one, or train a head "
                "with --steps=150, --train and --work"
            )
        return model
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
    model, lengths = original_model(args), [int(x) for x in args.lengths.split(",")]
    long = max(lengths)
    texts = np.array(long_texts(model, args.documents, args.count, long - 2))
    original = "original, in chunks of 512"
    for length in lengths if original not in done else ():
        result = scores(model, texts[:, : length - 2], SHORT, args.seed)
        yield {"length": length, "documents": len(texts), "variant": original, **result}
    further = pieces(model, args.train, long - 2) if args.fine_tuning_steps else None
    for variant in args.variants.split(","):
        if variant in done:
            continue
        row = {"documents": len(texts), "variant": variant}
        plain = {}
        for length in lengths:
            longer = converted(model, variant, length)
            plain[length] = scores(longer, texts[:, : length - 2], length, args.seed)
        if further is not None:
            longer = converted(model, variant, long)
            longer = train(longer, further, FINE_TUNING, args.fine_tuning_steps, args.seed)
        result = []
        for length, before in plain.items():
            result.append({"length": length, **row, **before})
            if further is not None:
                after = scores(longer, texts[:, : length - 2], length, args.seed)
                result[-1] |= {f"{name}_fine_tuned": value for name, value in after.items()}
        yield from result
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
        "--steps",
        type=int,
        default=150,
        help="masked_lm: steps of training at 512 tokens; 0: the model has a head; default: 150",
    )
    parser.add_argument(
        "--fine_tuning_steps",
        type=int,
        default=10,
        help="masked_lm: steps of training at the longest length; default: 10",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args()
    if args.study == "masked_lm":
        trains = args.steps or args.fine_tuning_steps
        if trains and not args.train:
            parser.error("--steps and --fine_tuning_steps need --train, or give 0 for both")
        if args.steps and not args.work:
            parser.error("--steps needs --work, a directory for the trained model")

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
