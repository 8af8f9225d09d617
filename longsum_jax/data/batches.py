"""Batches: examples bucketed by length, padded, split over hosts, resumable at every example.

Examples are taken one by one in the order of ``order.ExampleOrder`` and put
into the bucket of their length. When a bucket has enough examples for a batch,
the batch is returned:

    order             3  0  7  1  5 ...          (indices of examples)
    bucket of 512     3     7       -> batch     (here of two rows)
    bucket of 1024       0     1    -> batch

At the end of an epoch, the remaining examples are returned with empty rows, so
that each example occurs exactly once per epoch. Packed batches have rows of
several examples instead of buckets, see ``packing``. All of this is done for the
global batch and depends only on the arguments: each host runs the same steps
and takes its rows.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from longsum_jax.data.buckets import (
    Buckets,
    Group,
    PackedRows,
    Waiting,
    pack_examples,
)
from longsum_jax.data.examples.base import (
    Example,
    ExampleStore,
    example_lengths,
)
from longsum_jax.data.order import ExampleOrder, Shuffle
from longsum_jax.data.padding import ClassLabels, SegmentShape, pad_batch
from longsum_jax.data.stores import ExampleStream, StreamMark
from longsum_jax.errors import InputError
from longsum_jax.typing import ALL_ROWS, IGNORED_LABEL, NumpyBatch, RowShards


class Batches(Iterator[NumpyBatch]):
    """An endless or counted iterator over padded batches of one host.

    Each batch is a dictionary (batch: rows of this host, length: bucket
    length):
        input_ids       [batch, length] int32, padded with ``pad_id``
        attention_mask  [batch, length] bool, True on tokens
        token_type_ids  [batch, length] int32, 1 in the second of two texts; with ``token_types``
        labels          [batch, target_length] int32, padded with ``label_pad_id``; or see
                        ``ClassLabels``; absent if ``target_length`` is 0
        rejected        [batch, target_length] int32, likewise; with ``pairs``
        reference       [batch, 2] float32, log-probabilities of ``labels`` and ``rejected`` under
                        the reference model; with ``pairs``
        source_segment_ids, target_segment_ids
                        [batch, length] and [batch, target_length] int32, number of each
                        token's example in its row, from 1; 0 on padding; with ``packed``
    Examples with segments make [batch, segments, length], and their number of
    segments determines the bucket; see ``padding.SegmentShape``. Each host has
    an equal number of rows of the global batch. From a store of known length,
    it only reads these rows; from a stream, every host has to make all
    examples.

    Args:
        store: ExampleList, PreparedExamples or ExampleStream.
        batch_size: rows of the global batch, over all hosts.
        batch_by_tokens: whether ``batch_size`` are the rows of the longest
            bucket, and shorter ones have more, as many times as they fit into
            its length. Batches then have similar numbers of tokens.
        source_lengths: bucket lengths in tokens (or segments), ascending; the
            last one must fit the longest examples.
        target_length: length of every row of labels, in tokens; 0 for examples
            without labels, or with ``classes``.
        classes: layout of the labels of a classifier.
        segments: layout of examples with segments.
        token_types: whether examples have ``token_type_ids``.
        pairs: whether examples have ``rejected`` targets.
        packed: whether rows contain several examples, in one bucket, see
            ``packing``; ``target_length`` is then shared by a row's targets.
        seed: random seed of the order, 0 to 2**32 - 1.
        shuffle: "all", a block size, or None; see ``order.ExampleOrder``.
        epochs: passes over the examples; None never ends.
        host_rows: the rows of this host; all by default.
        pad_id: padding of ``input_ids``.
        label_pad_id: padding of ``labels``; ignored by the loss.

    Raises:
        InputError: batch_size is not divisible by the shards of ``host_rows``,
            there are more hosts than prepared shards, the store is empty,
            buckets are not ascending, or an example is longer than the last
            bucket or the target length.
    """

    def __init__(
        self,
        store: ExampleStore,
        *,
        batch_size: int,
        batch_by_tokens: bool = False,
        source_lengths: Sequence[int],
        target_length: int = 0,
        classes: ClassLabels | None = None,
        segments: SegmentShape | None = None,
        token_types: bool = False,
        pairs: bool = False,
        packed: bool = False,
        seed: int = 0,
        shuffle: Shuffle = "all",
        epochs: int | None = None,
        host_rows: RowShards = ALL_ROWS,
        pad_id: int = 0,
        label_pad_id: int = IGNORED_LABEL,
    ):
        self._store = store
        self._batch_size = batch_size
        self._batch_by_tokens = batch_by_tokens
        self._source_lengths = tuple(source_lengths)
        self._target_length = target_length
        self._classes = classes
        self._segments = segments
        self._token_types = token_types
        self._pairs = pairs
        self._packed = packed
        self._seed = seed
        self._shuffle = shuffle
        self._epochs = epochs
        self._host_rows = host_rows
        self._pad_id = pad_id
        self._label_pad_id = label_pad_id
        self._check_options()
        self._lengths = getattr(store, "lengths", None)  # None for a stream
        # Examples of a stream cannot be read twice, so examples that wait in a
        # bucket are stored.
        self._held: dict[int, Example] = {}
        self._check_lengths()
        self._fingerprint = _fingerprint(store, self._lengths)
        self._order = ExampleOrder(store, seed=seed, shuffle=shuffle)
        self._epoch = 0
        self._position = 0
        self._waiting = self._make_waiting()

    def __next__(self) -> NumpyBatch:
        group = self._waiting.pop()
        while group is None:
            index = self._order.index_at(self._epoch, self._position)
            if index is not None:
                self._admit(index)
                self._position += 1
                group = self._waiting.pop()
                continue
            # the end of an epoch: the remaining examples, batch by batch
            group = self._waiting.pop(incomplete=True)
            if group is None:
                self._start_epoch()
        return self._padded(group)

    @property
    def batches_per_epoch(self) -> int | None:
        """The number of batches of one pass over the examples.

        None for a stream, and for packed batches, whose number depends on the
        order.
        """
        if self._lengths is None:
            return None
        return self._waiting.count_batches(self._lengths)

    def state(self) -> dict[str, Any]:
        """Returns the position after the batches returned so far, ready for JSON."""
        pending = self._waiting.indices
        state: dict[str, Any] = {
            "epoch": self._epoch,
            "position": self._position,
            "pending": pending,
            "seed": self._seed,
            "shuffle": self._shuffle,
            **self._fingerprint,
        }
        if isinstance(self._store, ExampleStream):
            marks = self._store.marks([self._position, *pending])
            state["marks"] = [list(mark) for mark in marks]
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Continues exactly after the examples recorded in ``state``.

        The state may come from another number of hosts, and from prepared
        shards for a stream of the same documents or vice versa (unless
        ``shuffle`` is "all"). A stream continues from its state at once; from a
        state of prepared shards, it reads all earlier documents.

        Raises:
            InputError: the state belongs to other examples, or to another order
                of them.
        """
        _check_same("seed", state["seed"], self._seed)
        _check_same("shuffle", state["shuffle"], self._shuffle)
        for key, value in self._fingerprint.items():
            # None for a stream; missing in older versions
            if None not in (state.get(key), value):
                _check_same(key, state[key], value)
        # From another reader, or an older version, there are no marks.
        marks = [StreamMark._make(mark) for mark in state.get("marks", ())]
        numbers: list[Any] = [
            state["epoch"],
            state["position"],
            *state["pending"],
        ]
        numbers += [number for mark in marks for number in mark]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise InputError(
                f"the position in the data is damaged: {numbers!r:.200}"
            )
        self._epoch = state["epoch"]
        self._position = state["position"]
        self._waiting = self._make_waiting()
        self._held = {}
        if isinstance(self._store, ExampleStream):
            self._store.add_marks(marks)
        if self._lengths is None:
            # a stream is read forwards
            for index in sorted(state["pending"]):
                self._held[index] = self._store[index]
        for index in state["pending"]:
            self._admit(index)

    def _make_waiting(self) -> Waiting:
        """Makes empty buckets, or the open rows of packed batches."""
        if self._packed:
            [source_length] = self._source_lengths
            return PackedRows(
                self._batch_size, source_length, self._target_length
            )
        return Buckets(
            self._batch_size, self._batch_by_tokens, self._source_lengths
        )

    def _admit(self, index: int) -> None:
        """Adds an example to the waiting ones."""
        source, target = self._lengths_of(index)
        if (
            source > self._source_lengths[-1]
            or target > self._max_target_length
        ):
            raise self._too_long(index, source, target)
        self._waiting.add(index, source, target)

    def _lengths_of(self, index: int) -> tuple[int, int]:
        if self._lengths is not None:
            source, target = self._lengths[index]
            return int(source), int(target)
        if index not in self._held:
            self._held[index] = self._store[index]
        return example_lengths(self._held[index])

    @property
    def _max_target_length(self) -> int:
        if self._segments is not None:
            return self._segments.target_length
        return (
            self._target_length
            if self._classes is None
            else self._classes.num_labels
        )

    def _start_epoch(self) -> None:
        if self._position == 0:
            raise _no_examples()
        if self._epochs is not None and self._epoch + 1 >= self._epochs:
            raise StopIteration
        self._epoch += 1
        self._position = 0

    def _padded(self, group: Group) -> NumpyBatch:
        """Returns this host's rows of a batch."""
        # All hosts together have the batch of a single host, so dropout, whose
        # masks depend on the row, does not depend on the number of hosts.
        numbers = self._host_rows.rows_of(group.num_rows)
        rows = [
            [self._held[i] if i in self._held else self._store[i] for i in row]
            for row in (group.rows[n] for n in numbers if n < len(group.rows))
        ]
        for row in group.rows:
            for index in row:
                self._held.pop(index, None)
        if self._packed:
            examples = [pack_examples(row) for row in rows]
        else:
            examples = [example for [example] in rows]
        return pad_batch(
            examples,
            rows=len(numbers),
            source_length=group.source_length,
            target_length=self._target_length,
            classes=self._classes,
            segments=self._segments,
            token_types=self._token_types,
            pairs=self._pairs,
            packed=self._packed,
            pad_id=self._pad_id,
            label_pad_id=self._label_pad_id,
        )

    def _check_options(self) -> None:
        size, total = self._batch_size, self._host_rows.total
        numbers, hosts = self._host_rows.numbers, self._host_rows.num_hosts
        if not 0 <= min(numbers) <= max(numbers) < total:
            raise InputError(
                f"host_rows={self._host_rows} must have numbers from 0 to {total - 1}"
            )
        if size < 1 or size % total:
            raise InputError(
                f"batch_size={size} must be a positive multiple of {total}, the number of parts "
                "into which the devices divide its rows"
            )
        shards = getattr(self._store, "num_shards", hosts)
        if shards < hosts:
            raise InputError(
                f"the data are prepared in {shards} shards, fewer than the {hosts} hosts that read "
                f"them; prepare them again with --num_shards={hosts} or more"
            )
        lengths = self._source_lengths
        if (
            not lengths
            or lengths[0] < 1
            or list(lengths) != sorted(set(lengths))
        ):
            raise InputError(
                f"source_lengths={lengths} must be positive and ascending"
            )
        if self._packed and (len(lengths) > 1 or self._batch_by_tokens):
            raise InputError(
                f"packed rows have one length, source_lengths={lengths} and batch_by_tokens="
                f"{self._batch_by_tokens} ask for several; give one length, and no batch_by_tokens"
            )
        if self._epochs is not None and self._epochs < 1:
            raise InputError(
                f"epochs={self._epochs} must be positive, or None for no limit"
            )

    def _check_lengths(self) -> None:
        if self._lengths is None:
            return
        if len(self._lengths) == 0:
            raise _no_examples()
        limits = self._source_lengths[-1], self._max_target_length
        for column, limit in enumerate(limits):
            longest = int(np.argmax(self._lengths[:, column]))
            if self._lengths[longest, column] > limit:
                raise self._too_long(longest, *self._lengths[longest])

    def _too_long(self, index: int, source: int, target: int) -> InputError:
        name = (self._held.get(index) or self._store[index])["id"]
        last_bucket = self._source_lengths[-1]
        if self._segments is not None:
            return InputError(
                f'example "{name}" has {source} segments and a target of {target} tokens, more '
                f"than the last bucket ({last_bucket}) or the segments' target length "
                f"({self._segments.target_length}); raise these"
            )
        return InputError(
            f'example "{name}" has {source} source and {target} target tokens, more than the last '
            f"bucket ({last_bucket}) or target_length ({self._target_length}); raise these, or "
            "lower the task's max_source_length and max_target_length"
        )


def _no_examples() -> InputError:
    return InputError(
        "the data holds no usable example; check the split and the document lengths"
    )


def _fingerprint(
    store: ExampleStore, lengths: np.ndarray | None
) -> dict[str, int | None]:
    """Returns inexpensive hashes that identify the examples; None for unknown, as for a stream.

    Args:
        store: store with at least one example, unless it is a stream.
        lengths: int [n, 2], lengths of the store.
    """
    try:
        first = store[0]
    except IndexError:  # an empty stream, which is rejected when it is read
        return {}
    ids = _crc32(first["input_ids"])
    num_examples: int | None = None
    crc32_of_lengths: int | None = None
    if lengths is not None:
        num_examples = len(lengths)
        crc32_of_lengths = _crc32(lengths)
    return {
        "examples": num_examples,
        "crc32_of_lengths": crc32_of_lengths,
        "crc32_of_first_example": _crc32(first["labels"], ids),
    }


def _crc32(numbers: np.ndarray, start: int = 0) -> int:
    return zlib.crc32(np.ascontiguousarray(numbers, np.int32).data, start)


def _check_same(key: str, saved: Any, current: Any) -> None:
    if saved != current:
        raise InputError(
            f"the saved data position was made with {key}={saved!r}, this run has {key}="
            f"{current!r}; use the same data, seed and shuffle, or start from the first example "
            "(another workdir)"
        )
