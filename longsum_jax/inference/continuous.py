"""Continuous batching: a document that is done makes room for the next one.

A few slots are decoded together. As soon as one is done, its summary leaves, the next document is
read into the slot, and the same compiled program goes on with all of them:

    slot 0   document 0 -----------> document 4 --------> ...
    slot 1   document 1 --> document 3 ------------> document 5 -> ...
    slot 2   document 2 -----------------> document 6 ---> ...

Documents come with the longest first. Slots have room for the longest that is in them, rounded up
to a power of two: so there are few programs, and the room shrinks while decoding goes on.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Generated
from longsum_jax.inference.padding import PaddedInputs
from longsum_jax.inference.programs import Programs, layer_views
from longsum_jax.layers.decoder import MAX_CROSS_CACHE_BYTES
from longsum_jax.layers.decoder_cache import DecoderSource
from longsum_jax.typing import Params

# (ids [batch, length], mask) -> the same at a length that is compiled once
Pad = Callable[[np.ndarray, np.ndarray], PaddedInputs]
# On CPUs a product with 32 rows takes twice as long as with 16.
MAX_SLOTS = 16


def num_slots(config: Any, lengths: Sequence[int]) -> int:
    """Returns how many documents to decode together, a power of two.

    Args:
        config: of the model.
        lengths: tokens of each document; keys and values of the longest are to be stored for all
            slots.
    """
    stack = config.decoder_stack
    width = stack.num_heads * stack.d_kv * jnp.dtype(stack.dtype).itemsize
    bytes_of_longest = 2 * stack.num_layers * width * max(lengths, default=1)
    count = min(MAX_SLOTS, len(lengths), MAX_CROSS_CACHE_BYTES // bytes_of_longest)
    return 1 << max(count, 1).bit_length() - 1


class ContinuousBatch:
    """Decodes documents in a few slots.

    Args:
        programs: of the model.
        params: of the model.
        pad: pads ids and masks.
        variables: padded inputs -> parameters, and cached kernels of their length.
        batch_size: number of slots.
        options: of the search.
        seed: of sampling; a document draws the same whenever it enters.
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
        self._layers = layer_views(params["decoder"])
        self._pad = pad
        self._variables = variables
        self._batch_size = batch_size
        self._options = options
        self._keys = None
        if options.do_sample:
            self._keys = jnp.broadcast_to(jax.random.key(seed), (batch_size,))
        self._shapes: dict[int, DecoderSource] = {}  # of what is read of all slots, by length

    def decode(
        self, documents: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> Iterator[tuple[int, Generated]]:
        """Yields the index of every document and its sequences on the host, as they are done.

        Args:
            documents: ids and mask [1, length] of each, the longest first.
        """
        rows = [self._pad(ids, mask) for ids, mask in documents]
        rooms = self._rooms([row.ids.shape[1] for row in rows])
        # Keys and values of the longest documents may be too large to be stored, see ``Decoder``.
        # All such documents leave before others enter.
        kinds = itertools.groupby(range(len(rows)), lambda i: self._stores_states(rooms[i]))
        for _, alike in kinds:
            yield from self._decode_alike(rows, rooms, deque(alike))

    def _decode_alike(
        self, rows: Sequence[PaddedInputs], rooms: Sequence[int], waiting: deque[int]
    ) -> Iterator[tuple[int, Generated]]:
        """Decodes the documents of which ``waiting`` has the indices."""
        slots, sizes = self._programs.slots, {"options": self._options}
        batch_size = self._batch_size
        room = rooms[waiting[0]]
        source = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self._shapes_of(room))
        state = slots.begin(self._params, source, batch_size=batch_size, **sizes)
        inside: dict[int, int] = {}  # slot -> document
        while waiting or inside:
            longest = min([*inside.values(), *itertools.islice(waiting, 1)])
            if rooms[longest] < room:
                room = rooms[longest]
                shapes = self._shapes_of(room)
                source, state = slots.shrink(source, state, batch_size=batch_size, shapes=shapes)
            free = [slot for slot in range(batch_size) if slot not in inside]
            for slot in free[: len(waiting)]:
                inside[slot] = waiting.popleft()
                row = self._read(rows[inside[slot]], stores_states=source.states is not None)
                source, state = slots.enter(source, state, row, np.int32(slot), **sizes)
            # One that is done is enough, unless nobody waits.
            num_done = batch_size - len(inside) + 1 if waiting else batch_size
            arguments = source, state, self._keys, np.int32(num_done)
            state, out = slots.advance(self._params, self._layers, *arguments, **sizes)
            done, out = jax.device_get((state.done, out))
            for slot in [slot for slot in inside if done[slot]]:
                yield inside.pop(slot), self._of_slot(out, slot)

    def _read(self, row: PaddedInputs, *, stores_states: bool) -> DecoderSource:
        return self._programs.read(self._variables(row), *row, stores_states=stores_states)

    def _of_slot(self, out: Generated, slot: int) -> Generated:
        count = self._options.num_return_sequences
        return jax.tree.map(lambda x: x[slot * count : (slot + 1) * count], out)

    def _rooms(self, lengths: Sequence[int]) -> list[int]:
        """Returns the length of a slot that has room for each document."""
        return [min(1 << (length - 1).bit_length(), lengths[0]) for length in lengths]

    def _stores_states(self, room: int) -> bool:
        return self._shapes_of(room).states is not None

    def _shapes_of(self, room: int) -> DecoderSource:
        """Returns the shapes of what is read of all slots with room for documents of a length."""
        if room not in self._shapes:
            ids = np.zeros((self._batch_size, room), np.int32)
            padded = self._pad(ids, ids == 0)
            read = self._programs.read
            self._shapes[room] = read.eval_shape({"params": self._params}, *padded)
        return self._shapes[room]
