"""An open batch, whose rows pieces enter and leave independently.

    turn            1         2         3         4
    row 0      book 0 ------------------> book 2 -----
    row 1                letter 0 ------> letter 9 ---
    row 2                book 1 ----------------------

Books and letters are long and short documents. In each turn, a few new pieces
are encoded. Once no row is free, or no piece waits, a few tokens of every row
are decoded: a step takes about as long for one row as for all.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from longsum_jax.decoding.decoder import TokenLimits
from longsum_jax.inference.continuous import Arrived, num_slots
from longsum_jax.serving.lengths import read_length
from longsum_jax.serving.pieces import JobPiece, fail
from longsum_jax.serving.statistics import SecondsHistogram
from longsum_jax.summarization.documents import TokenizedDocument
from longsum_jax.summarization.summary import Summary

if TYPE_CHECKING:
    from longsum_jax.summarization.model import Model

# Maximum number of tokens that a turn encodes, except for a single longer
# piece, because other batches wait during the turn.
_TOKENS_PER_TURN = 2**12
# On several devices, programs are compiled for the placement of their
# arguments. It no longer changes once pieces have entered an empty batch, and
# others have entered after tokens were decoded.
WARM_UP_PIECES = 3
_WARM_UP_PIECES_PER_TURN = 2
_WARM_UP_TURNS = 3

# A function that takes the next piece from the queue if its argument, which
# returns True if the piece has room, allows it; otherwise it returns None.
TakePiece = Callable[[Callable[[JobPiece], bool]], JobPiece | None]


class OpenBatch:
    """A batch of pieces of one kind.

    Args:
        model: model of the replica.
        first: first piece of the batch.
        take: function that takes further pieces from the queue.
        max_rows: maximum number of rows.
        waits: histogram of the seconds that pieces wait for a row.

    Attributes:
        kind: kind of the pieces.
        num_rows: number of rows.
        num_running: number of rows that decode a piece in this turn.
        has_decoded: False if the last turn has only encoded pieces, because
            others wait for the rows that are still free.
    """

    def __init__(
        self,
        model: "Model",
        first: JobPiece,
        take: TakePiece,
        *,
        max_rows: int,
        waits: SecondsHistogram,
    ) -> None:
        self.kind = first.kind
        self.num_rows = num_slots(
            model.config, [first.kind.row_length] * max_rows
        )
        self.num_running = 0
        self.has_decoded = True
        self._config = model.config
        self._warm_up = first.future if first.is_warm_up else None
        self._num_turns = 0
        self._first: JobPiece | None = first
        self._take = take
        self._waits = waits
        # pieces that are being decoded, by order of arrival
        self._inside: dict[int, JobPiece] = {}
        self._num_arrived = 0
        self._turns = model.document_summarizer.decode_arriving(
            self._arrivals,
            slot_length=first.kind.row_length,
            padded_length=partial(read_length, model.config),
            batch_size=self.num_rows,
            options=first.kind.options,
            seed=first.job.engine.seed,
            on_text=self._send_text,
        )

    @property
    def pieces(self) -> list[JobPiece]:
        """The pieces that are not finished."""
        first = [] if self._first is None else [self._first]
        return [*first, *self._inside.values()]

    def turn(self) -> list[tuple[JobPiece, Summary]] | None:
        """Decodes a few tokens; returns the finished pieces, or None if the batch is empty."""
        finished = next(self._turns, None)
        self._num_turns += 1
        is_last = finished is None or self._num_turns == _WARM_UP_TURNS
        if self._warm_up is not None and is_last:
            self._warm_up.cancel()  # the programs are compiled
        if finished is None:
            return None
        pieces = [
            (self._inside.pop(index), summary) for index, summary in finished
        ]
        return [pair for pair in pieces if not pair[0].is_warm_up]

    def _arrivals(self, inside: Sequence[int], size: int) -> Arrived:
        """Returns the pieces that leave and enter, see ``ContinuousBatch``."""
        cancelled = {
            index for index in inside if self._inside[index].future.done()
        }
        for index in cancelled:
            del self._inside[index]
        documents: list[TokenizedDocument] = []
        limits: list[TokenLimits] = []
        for piece in self._entering(size - len(self._inside)):
            self._inside[self._num_arrived] = piece
            self._num_arrived += 1
            if not piece.is_warm_up:
                self._waits.add(time.monotonic() - piece.queued)
            documents.append(piece.document)
            limits.append(piece.limits)
        self.num_running = len(self._inside)
        are_more = not self.has_decoded
        return Arrived(cancelled, documents, limits, are_more)

    def _entering(self, num_free: int) -> list[JobPiece]:
        """Takes the pieces that enter in this turn from the queue, at most ``num_free``."""
        pieces: list[JobPiece] = []
        num_tokens = 0
        self.has_decoded = True
        if self._first is not None:
            pieces.append(self._first)
            num_tokens += self._num_read(self._first)
            self._first = None

        def has_room(piece: JobPiece) -> bool:
            total = num_tokens + self._num_read(piece)
            if piece.is_warm_up and len(pieces) == _WARM_UP_PIECES_PER_TURN:
                return False
            # A free row, but no time in this turn.
            self.has_decoded = not pieces or total <= _TOKENS_PER_TURN
            return self.has_decoded

        while len(pieces) < num_free:
            piece = self._take(has_room)
            if piece is None:
                break
            pieces.append(piece)
            num_tokens += self._num_read(piece)
        return pieces

    def _num_read(self, piece: JobPiece) -> int:
        return read_length(self._config, len(piece.document.ids))

    def _send_text(self, index: int, decode: Callable[[], str]) -> None:
        piece = self._inside[index]
        if piece.job.stream is None or not piece.is_final:
            return
        try:
            piece.job.stream.update(decode())
        except Exception as error:  # only ends this stream
            fail(piece.future, error)
