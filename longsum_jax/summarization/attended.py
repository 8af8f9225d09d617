"""Finds the sources of a summary's sentences by the model's cross-attention."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.inference.padding import padded_length
from longsum_jax.layers.attention.cross import SourceAttention
from longsum_jax.ops.attention.dense import (
    Scale,
    masked_softmax,
    repeat_heads,
    scaled_scores,
)
from longsum_jax.ops.attention.key_sets import KeySet
from longsum_jax.ops.losses import shift_right
from longsum_jax.summarization.summary import Request, Summary
from longsum_jax.text.alignment import MAX_SOURCES
from longsum_jax.text.prompts import PromptedIds
from longsum_jax.text.statements import SourceSentence, Statement
from longsum_jax.text.support import PlacedSentences
from longsum_jax.training.mesh import MeshJit
from longsum_jax.typing import Array

if TYPE_CHECKING:
    from longsum_jax.summarization.model import Model

# minimum share of the attention for all sources except the first
LEAST_SHARE = 0.1
# the number of summary sentences is rounded up to a multiple of this
_GROUPS_AT_ONCE = 8
_WEIGHTS = "cross_attention_weights"


def attended_sources(model: "Model", summary: Summary) -> list[Statement]:
    """Returns each sentence of a summary with the document sentences that the model attended to.

    The decoder runs once more over the summary. The score of a document
    sentence is the share of cross-attention that its tokens receive, averaged
    over layers, heads and the tokens of the summary sentence. Support and flags
    are copied from ``Summary.sources``, which uses words.

    Args:
        model: model with ``full`` cross-attention.
        summary: summary by that model, with its document, which it read in one
            input.

    Raises:
        InputError: a model of another kind, or a document that it cannot read
            in one input.
    """
    check_attends(model)
    request = summary.request
    if request is None:
        raise InputError(
            "the summary has no document; summarize the document with this model"
        )
    if summary.strategy != "direct":
        raise InputError(
            "sources by attention need a document that was read in one piece, but this one was "
            f'read with strategy="{summary.strategy}"; use sources by shared words'
        )
    if not summary.sources:
        return []
    ids, owners, placed = _read_document(model, request, summary)
    targets, groups = _read_summary(model, summary)
    # [statements, ids], the mean over each statement's tokens
    weights = cross_attention_weights(
        model, ids[None], targets[None], groups[None]
    )[0]
    statements = []
    for number, statement in enumerate(summary.sources):
        inside = owners >= 0
        # Attention to each document sentence, without prefix and query.
        # [sentences], the summed weights of each sentence's tokens
        mass = np.bincount(
            owners[inside], weights[number][inside], len(placed.sentences)
        )
        sources = _strongest(mass / max(mass.sum(), 1e-12), placed)
        statements.append(statement._replace(sources=sources))
    return statements


def check_attends(model: "Model") -> None:
    """Raises InputError unless a model has full cross-attention to a whole document."""
    how = ""
    if model.config.head != "language_model":
        how = f"has the head {model.config.head}"
    elif "segments" in model.summarization or model.config.pages.page_decoding:
        how = "reads segments or pages"
    elif model.config.cross_attention != "full":
        how = f"reads by {model.config.cross_attention}"
    if how:
        raise InputError(
            "sources by attention need full cross-attention to a whole document, but this model "
            f"{how}; use sources by shared words"
        )


def _read_document(
    model: "Model", request: Request, summary: Summary
) -> tuple[np.ndarray, np.ndarray, PlacedSentences]:
    """Returns the ids that a model read, and the sentence index of each, -1 for none."""
    from longsum_jax.models.registry import max_input_length

    tokenizer, prompt = model.tokenizer.plain, summary.prompt
    # Truncate the document as for the summary.
    read = None
    if summary.dropped_tokens:
        read = summary.read_tokens
    prompted = prompt.encode(tokenizer, request.text, request.query)
    ids = prompt.source(tokenizer, prompted, read)
    longest = max_input_length(model.config)
    if longest is not None and len(ids) > longest:
        raise InputError(
            f"{request.name} has {len(ids)} tokens, but sources by attention need a document that "
            f"the model reads in one piece, of up to {longest}; use sources by shared words"
        )
    placed = PlacedSentences.of(request.text, request.outline)
    lasts = prompt.document_ends(tokenizer, request.text, request.query)
    owners = _owners(lasts, placed.ends)
    sentence_indices = np.full(len(ids), -1)
    start = prompt.num_before(tokenizer)
    num_after = (
        len(prompt.source(tokenizer, PromptedIds([], prompted.tail))) - start
    )
    stop = len(ids) - num_after
    # Special tokens and the text after the document belong to no sentence.
    sentence_indices[start:stop] = owners[: stop - start]
    return np.array(ids, np.int32), sentence_indices, placed


def _read_summary(
    model: "Model", summary: Summary
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of a summary, and the weights that average them over each sentence.

    The weights are float32 [ids, sentences]; columns sum to 1.
    """
    tokenizer = model.tokenizer
    limit = model.config.max_target_length
    ids = tokenizer.add_special_tokens(tokenizer.encode(summary.text), limit)
    ends = np.array([statement.end for statement in summary.sources])
    owners = _owners([end for _, end in tokenizer.spans(summary.text)], ends)
    # One column per sentence, nonzero on its tokens.
    groups = np.zeros((len(ids), len(ends)), np.float32)
    start = len(tokenizer.prefix_ids)
    for row, owner in enumerate(owners[: len(ids) - start], start):
        # tokens without characters belong to no sentence
        groups[row, owner] = owner >= 0
    return np.array(ids, np.int32), groups / np.maximum(groups.sum(0), 1)


def _owners(token_ends: Sequence[int], ends: np.ndarray) -> np.ndarray:
    """Returns the index of the sentence in which each token ends, -1 for ends at 0 or below."""
    lasts = np.array(token_ends, np.int64)
    # Tokens after the last sentence end belong to the last sentence.
    # ends of sentences  12      30      45
    # ends of tokens     3 8 12  17 30   36 45        owners  0 0 0  1 1  2 2
    owners = np.minimum(np.searchsorted(ends, lasts), len(ends) - 1)
    return np.where(lasts > 0, owners, -1)


def _strongest(
    shares: np.ndarray, placed: PlacedSentences
) -> tuple[SourceSentence, ...]:
    # The first source, and others with at least the minimum share.
    order = np.argsort(-shares, kind="stable")[:MAX_SOURCES].tolist()
    selected = order[:1] + [
        number for number in order[1:] if shares[number] >= LEAST_SHARE
    ]
    return tuple(
        placed.source(number, float(shares[number])) for number in selected
    )


def cross_attention_weights(
    model: "Model", ids: np.ndarray, targets: np.ndarray, groups: np.ndarray
) -> np.ndarray:
    """Returns the attention of groups of target tokens to every source token.

    Args:
        model: encoder-decoder with ``full`` cross-attention.
        ids: int [batch, length].
        targets: int [batch, target_length], teacher-forced decoder outputs.
        groups: [batch, target_length, groups], weights of the target tokens in
            each group.

    Returns:
        float32 [batch, groups, length], attention weights averaged over layers
        and heads.

    Raises:
        InputError: a process that was forked after the model was loaded.
    """
    model.check_process()  # the program below is not one of the model's
    config = model.config
    padded = model.padded_document(ids, ids != config.pad_token_id)
    length = padded_length(targets.shape[1], config.max_target_length, 0)
    count = groups.shape[2]
    # Round up all sizes, so that few programs are compiled.
    more = -count % _GROUPS_AT_ONCE
    added = length - targets.shape[1]
    targets = np.pad(
        targets, ((0, 0), (0, added)), constant_values=config.pad_token_id
    )
    groups = np.pad(groups, ((0, 0), (0, added), (0, more)))
    variables = {"params": model.params}
    weights = np.asarray(
        _weights(model.module, variables, *padded, targets, groups)
    )
    # If the decoder attends to the encoder's global tokens, they come first.
    weights = weights[..., weights.shape[-1] - padded.ids.shape[1] :]
    return weights[:, :count, : ids.shape[1]]


@partial(MeshJit, static_argnums=0)
def _weights(
    module: Any,
    variables: Any,
    ids: Array,
    mask: Array,
    inputs: Any,
    targets: Array,
    groups: Array,
) -> Array:
    c = module.config
    # Teacher forcing: the decoder reads the summary shifted by one.
    decoder_ids = shift_right(
        targets, start_id=c.decoder_start_token_id, pad_id=c.pad_token_id
    )
    with nn.intercept_methods(partial(_keep_weights, groups)):
        _, intermediates = module.apply(
            variables,
            ids,
            mask,
            decoder_ids,
            mutable=["intermediates"],
            **inputs,
        )
    # One [batch, groups, keys] per layer; stacked layers have leading axes.
    layers = [
        leaf
        for path, leaf in jax.tree.leaves_with_path(intermediates)
        if _is_kept(path)
    ]
    return jnp.concatenate(
        [layer.reshape(-1, *layer.shape[-3:]) for layer in layers]
    ).mean(0)


def _is_kept(path: Any) -> bool:
    return any(getattr(key, "key", None) == _WEIGHTS for key in path)


def _keep_weights(
    groups: Array,
    call: Callable[..., Any],
    args: Any,
    kwargs: Any,
    context: Any,
) -> Any:
    """Stores the cross-attention weights alongside the layer's normal output."""
    module, method = context.module, context.method_name
    methods = ("attend", "attend_with")
    if isinstance(module, SourceAttention) and method in methods:
        x, keys = args[:2]
        others = args[3] if method == "attend_with" else ()
        # Computed again here, because fused attention never forms its weights.
        weights = _group_weights(
            module.q(x), keys, kwargs["mask"], groups, module.scale, others
        )
        # The method of the base class, which is called inside, would store them
        # again.
        module.sow(
            "intermediates",
            _WEIGHTS,
            weights,
            reduce_fn=lambda _, new: new,
            init_fn=lambda: None,
        )
    return call(*args, **kwargs)


def _group_weights(
    q: Array,
    k: Array,
    mask: Array,
    groups: Array,
    scale: Scale,
    others: Sequence[KeySet],
) -> Array:
    """Returns the weights of groups of queries, [batch, groups, length], averaged over heads.

    Args:
        q, k: [batch, queries or keys, heads, head_dim]; keys possibly with
            fewer heads.
        mask: bool [batch, 1, 1, keys].
        groups: [batch, queries, groups].
        scale: factor of the dot products, possibly with a soft cap.
        others: further keys under the same softmax, without biases.
    """
    # The keys of the source come first.
    count = k.shape[1]
    for keys in others:
        assert keys.mask is not None  # the decoder always makes one
        k = jnp.concatenate([k, keys.k], 1)
        shape = (len(q), 1, q.shape[1])
        masks = [
            jnp.broadcast_to(part, (*shape, part.shape[-1]))
            for part in (mask, keys.mask)
        ]
        mask = jnp.concatenate(masks, -1)
    repeated = repeat_heads(k, q.shape[2])

    # one head at a time to save memory
    def of_head(arrays: tuple[Array, Array]) -> Array:
        queries, keys = arrays
        # [batch, queries, keys]
        scores = jnp.einsum(
            "btk,blk->btl", queries, keys, preferred_element_type=jnp.float32
        )
        weights = masked_softmax(scaled_scores(scores, scale), mask[:, 0])
        return jnp.einsum("btl,btg->bgl", weights[..., :count], groups)

    # [heads, batch, groups, length]
    by_head = jax.lax.map(
        of_head, (jnp.moveaxis(q, 2, 0), jnp.moveaxis(repeated, 2, 0))
    )
    return by_head.mean(0)
