"""Counts of summaries that readers keep."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from kept_summaries import collect


def test_kinds_are_counted_by_reader_and_by_most_readers():
    kinds = {1: "novels", 2: "papers", 3: "papers"}
    verdicts = [{1: False, 2: True, 3: True}, {1: True, 2: True, 3: False}]
    novels, papers, both = collect(kinds, verdicts)
    assert (novels["summaries"], novels["by_reader"], novels["by_most"]) == (1, "0, 1", 0)
    assert (papers["summaries"], papers["by_reader"], papers["by_most"]) == (2, "2, 1", 1)
    assert (both["kind"], both["by_reader"], both["by_most"]) == ("all", "2, 2", 1)
