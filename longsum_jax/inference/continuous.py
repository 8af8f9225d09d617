"""Continuous batching: when a document is finished, the next one takes its slot.

A few slots are decoded together. When one is done, its summary is returned, the
next document is encoded into the slot, and the same compiled program continues
with all slots:

    slot 0   document 0 -----------> document 4 --------> ...
    slot 1   document 1 --> document 3 ------------> document 5 -> ...
    slot 2   document 2 -----------------> document 6 ---> ...

The longest documents come first. All slots have the same length: the longest
length among their documents, rounded up to a power of two. So there are few
programs, and slots get shorter over time.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.decoding.decoder import TokenLimits
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Generated
from longsum_jax.inference.padding import PaddedInputs
from longsum_jax.inference.programs import Programs
from longsum_jax.layers.decoder_cache import (
    DecoderSource,
    max_cross_cache_bytes,
)
from longsum_jax.typing import Params

# (ids [batch, length], mask) -> both, padded to one of a few compiled lengths
Pad = Callable[[np.ndarray, np.ndarray], PaddedInputs]
# (index of a document that is not finished, its sequences so far on the host)
OnProgress = Callable[[int, Generated], None]


class Arrived(NamedTuple):
    """The documents that leave and enter slots.

    Attributes:
        cancelled: indices of documents that leave.
        inputs: new documents.
        limits: numbers of tokens of their sequences, scalars.
        are_more: True if others enter before the next decoding step.
    """

    cancelled: set[int]
    inputs: Sequence[Any]
    limits: Sequence[TokenLimits]
    are_more: bool = False


# (indices in slots, number of slots) -> new documents as (ids, mask)
Arrivals = Callable[[Sequence[int], int], Arrived]
# On CPUs, a matrix product with 32 rows takes twice as long as one with 16.
MAX_SLOTS = 16
# decoding steps after which documents that have arrived enter
_STEPS_BETWEEN_ARRIVALS = 8


def num_slots(config: Any, lengths: Sequence[int]) -> int:
    """Returns the number of documents to decode together, a power of two.

    It is at most ``MAX_SLOTS``, and small enough to store the keys and values
    of the longest document in every slot.

    Args:
        config: config of the model.
        lengths: token count of each document.
    """
    stack = config.decoder_stack
    width = stack.kv_heads * stack.d_kv * jnp.dtype(stack.dtype).itemsize
    # Keys and values of all layers, for one slot.
    bytes_of_longest = 2 * stack.num_layers * width * max(lengths, default=1)
    count = min(
        MAX_SLOTS, len(lengths), max_cross_cache_bytes() // bytes_of_longest
    )
    # The largest power of two up to count.
    return 1 << (max(count, 1).bit_length() - 1)


class ContinuousBatch:
    """Decodes documents in a fixed number of slots.

    Args:
        programs: programs of the model.
        params: parameters of the model.
        pad: function that pads ids and masks.
        variables: function from padded inputs to the parameters and cached
            kernels of their length.
        batch_size: number of slots.
        options: generation options.
        seed: random seed for sampling; a document's samples do not depend on
            when it enters.
    """

    def __init__(
        self,
        programs: Programs,
        params: Params,
        *,
        pad: Pad,
        variables: Callable[[PaddedInputs], Mapping[str, Any]],
        batch_size: int,
        options: GenerationOptions,
        seed: int,
    ) -> None:
        self._programs = programs
        self._params = params
        self._weights = programs.search.weights(params)
        self._pad = pad
        self._variables = variables
        self._batch_size = batch_size
        self._options = options
        self._keys = None
        if options.do_sample:
            # The same key for all slots, so that samples do not depend on the
            # slot.
            self._keys = jnp.broadcast_to(jax.random.key(seed), (batch_size,))
        # shapes of the encoded slots by slot length
        self._shapes: dict[int, DecoderSource] = {}

    def decode(
        self, documents: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> Iterator[tuple[int, Generated]]:
        """Yields the index of each document with its sequences on the host, in order of completion.

        Args:
            documents: ids and mask [1, length] of each document, longest first.
        """
        # Pad first, because slot lengths depend on the padded lengths.
        rows = [self._pad(ids, mask) for ids, mask in documents]
        lengths = self._slot_lengths([row.ids.shape[1] for row in rows])
        # Keys and values of the longest documents may be too large to store,
        # see ``Decoder.read_source``. These documents use other programs, so all of them
        # must finish before others enter.
        kinds = itertools.groupby(
            range(len(rows)), lambda i: self._stores_states(lengths[i])
        )
        for _, same_kind in kinds:
            turns = self._decode_kind(rows, lengths, deque(same_kind))
            yield from itertools.chain.from_iterable(turns)

    def decode_arriving(
        self,
        length: int,
        arrivals: Arrivals,
        on_progress: OnProgress | None = None,
    ) -> Iterator[list[tuple[int, Generated]]]:
        """Decodes documents that arrive while others are decoded, until no document remains.

        Documents enter within ``_STEPS_BETWEEN_ARRIVALS`` tokens if a slot is
        free. The slots keep their length. Between two items of the iterator a
        caller may decode other batches.

        Args:
            length: slot length in tokens, at least the padded length of every
                document.
            arrivals: function from the indices of the documents in slots and
                the number of slots to cancelled and new documents. New ones are
                ids and masks [1, length], numbered in order of arrival. Their
                limits replace the options' limits, and are at most as large.
            on_progress: callback for each unfinished document after some steps;
                beam search has no sequences before a document is finished.

        Yields:
            Indices of the documents that are finished after some steps, often
            none, with their sequences on the host; [] without a step if more
            documents arrive before it.
        """
        return self._decode_kind([], [], deque(), arrivals, length, on_progress)

    def _decode_kind(
        self,
        rows: Sequence[PaddedInputs],
        lengths: Sequence[int],
        waiting: deque[int],
        arrivals: Arrivals | None = None,
        length: int = 0,
        on_progress: OnProgress | None = None,
    ) -> Iterator[list[tuple[int, Generated]]]:
        """Decodes documents that use the same programs; yields the finished ones after some steps.

        Args:
            rows: padded inputs of all documents; empty with ``arrivals``.
            lengths: slot length of each document; empty with ``arrivals``.
            waiting: indices of the documents to decode; emptied by this call.
            arrivals: source of the documents, see ``decode_arriving``.
            length: slot length for ``arrivals``.
            on_progress: callback for unfinished documents.
        """
        slots, sizes = self._programs.slots, {"options": self._options}
        batch_size = self._batch_size
        limits: TokenLimits | None = None
        if arrivals is not None:
            # of slots without a document
            zero = np.zeros((), np.int32)
            limits = TokenLimits(zero, zero)
        length = lengths[waiting[0]] if waiting else length
        # All slots are empty at first.
        source = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype), self._shapes_of(length)
        )
        state = slots.begin(
            self._params, source, limits, batch_size=batch_size, **sizes
        )
        # Three documents in two slots; a slot that is done takes the next one:
        #
        #   slot 0   A A A A A A A
        #   slot 1   B B B C C C C C C
        inside: dict[int, int] = {}  # slot -> document
        # slots that still decode a cancelled document
        cancelled: set[int] = set()
        num_arrived = 0
        # documents that arrived and have no slot yet
        new_rows: dict[int, tuple[PaddedInputs, TokenLimits]] = {}
        while True:
            if arrivals is not None:
                arrived = arrivals(list(inside.values()), batch_size)
                dropped = arrived.cancelled
                cancelled |= {
                    slot for slot in inside if inside[slot] in dropped
                }
                inside = {
                    slot: i for slot, i in inside.items() if i not in dropped
                }
                for (ids, mask), new_limits in zip(
                    arrived.inputs, arrived.limits, strict=True
                ):
                    new_rows[num_arrived] = self._pad(ids, mask), new_limits
                    waiting.append(num_arrived)
                    num_arrived += 1
            # The sequences of cancelled documents need not finish.
            if not waiting and not inside:
                return
            if arrivals is None:
                longest = min([*inside.values(), *itertools.islice(waiting, 1)])
                # The longest documents are finished: continue with shorter
                # slots.
                if lengths[longest] < length:
                    length = lengths[longest]
                    shapes = self._shapes_of(length)
                    source, state = slots.shrink(
                        source, state, batch_size=batch_size, shapes=shapes
                    )
            # Fill the free slots with the next documents.
            free = [slot for slot in range(batch_size) if slot not in inside]
            for slot in free[: len(waiting)]:
                inside[slot] = waiting.popleft()
                cancelled.discard(slot)
                if arrivals is None:
                    row = rows[inside[slot]]
                else:
                    row, limits = new_rows.pop(inside[slot])
                # All slots store the same kind of arrays, whatever the length
                # of this row.
                read = self._read(row, stores_states=source.states is not None)
                source, state = slots.enter(
                    source, state, read, np.int32(slot), limits, **sizes
                )
            if arrivals is not None and arrived.are_more:
                yield []
                continue
            # Stop as soon as one slot is done; if no document is waiting, only
            # when all are.
            num_running = len(inside) + len(cancelled)
            stops_early = waiting or arrivals is not None
            if stops_early:
                num_done = batch_size - num_running + 1
            else:
                num_done = batch_size
            if arrivals is None:
                max_steps = None
            else:
                max_steps = np.int32(_STEPS_BETWEEN_ARRIVALS)
            arguments = source, state, self._keys, np.int32(num_done), max_steps
            state, out = slots.advance(
                self._params, self._weights, *arguments, **sizes
            )
            # A single transfer for all slots.
            done, out = jax.device_get((state.done, out))
            cancelled = {slot for slot in cancelled if not done[slot]}
            if on_progress is not None:
                for slot, index in inside.items():
                    if not done[slot]:
                        on_progress(index, self._of_slot(out, slot))
            finished = [slot for slot in inside if done[slot]]
            yield [
                (inside.pop(slot), self._of_slot(out, slot))
                for slot in finished
            ]

    def _read(self, row: PaddedInputs, *, stores_states: bool) -> DecoderSource:
        return self._programs.read(
            self._variables(row), *row, stores_states=stores_states
        )

    def _of_slot(self, out: Generated, slot: int) -> Generated:
        count = self._options.num_return_sequences
        # Each slot has num_return_sequences adjacent rows.
        return jax.tree.map(lambda x: x[slot * count : (slot + 1) * count], out)

    def _slot_lengths(self, lengths: Sequence[int]) -> list[int]:
        """Returns each document's length rounded up to a power of two, at most the longest one."""
        return [
            # Powers of two, so that slots shrink rarely: every length is a
            # program.
            min(1 << (length - 1).bit_length(), lengths[0])
            for length in lengths
        ]

    def _stores_states(self, length: int) -> bool:
        """Returns True if slots of this length store encoder states instead of keys and values."""
        return self._shapes_of(length).states is not None

    def _shapes_of(self, length: int) -> DecoderSource:
        """Returns the shapes of the encoded documents in slots of this length."""
        if length not in self._shapes:
            # Only shapes are computed, so the values do not matter.
            ids = np.zeros((self._batch_size, length), np.int32)
            padded = self._pad(ids, ids == 0)
            read = self._programs.read
            self._shapes[length] = read.eval_shape(
                {"params": self._params}, *padded
            )
        return self._shapes[length]
