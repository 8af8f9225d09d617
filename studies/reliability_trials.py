"""Trials that add up to the rows of a table, over any number of starts of a script."""

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]


class Case(ABC):
    """Something that is tried many times.

    Attributes:
        section: of the table.
        name: in the table.
        wanted: number of trials.
        in_a_row: trials between those of other cases.
    """

    section: str
    name: str
    wanted: int
    in_a_row: int = 1

    @abstractmethod
    def trial(self, rng: random.Random) -> Row:
        """Makes one trial.

        Returns:
            Counts, which are added up; values named ``largest_...``, of which the largest is kept;
            and under "failures" a list of what must not happen.
        """


def run_trials(
    cases: Sequence[Case], rows: list[Row], seed: int, end: float, keep: Callable[[], None]
) -> None:
    """Makes trials until all cases have theirs; the turn is that of the case which lacks most.

    Args:
        cases: in the order of the table.
        rows: one for each case that has been tried before; they go on where they were.
        seed: of all trials, together with case and number.
        end: on the monotonic clock.
        keep: called after every turn of a case.
    """
    by_name = {(row["section"], row["what"]): row for row in rows}

    def row_of(case: Case) -> Row:
        empty = {"section": case.section, "what": case.name, "trials": 0, "failures": []}
        return by_name.setdefault((case.section, case.name), empty)

    def share(case: Case) -> float:
        return row_of(case)["trials"] / case.wanted

    while time.monotonic() < end and (case := min(cases, key=share)) and share(case) < 1:
        row = row_of(case)
        if row not in rows:
            rows.append(row)
        for _ in range(min(case.in_a_row, case.wanted - row["trials"])):
            if time.monotonic() < end:
                _add(row, case.trial(random.Random(f"{seed} {case.name} {row['trials']}")))
        keep()


def _add(row: Row, found: Row) -> None:
    """Adds one trial to a row."""
    number = row["trials"]
    row["trials"] += 1
    for name, value in found.items():
        if name == "failures":
            row[name] += [f"trial {number}: {text}" for text in value]
        elif name.startswith("largest_"):
            row[name] = max(row.get(name, value), value)
        else:
            row[name] = row.get(name, 0) + value
