"""Pages about the sources of summaries, and about metrics."""

from collections.abc import Mapping

from result_pages.tables import (
    Column,
    Page,
    Row,
    Table,
    count,
    digits,
    having,
    percent,
    small,
    where,
)


def separation(rows: list[Row]) -> list[Row]:
    """Returns one row per data set: shares at the best threshold, and the area under the curve."""
    areas = {row["data_set"]: row["auc"] for row in rows if row["part"] == "separation"}
    means = where(part="thresholds", data_set="mean")(rows)
    best = max(means, key=lambda row: row["balanced_accuracy"])["threshold"]
    found = where(part="thresholds", threshold=best)(rows)
    return [row | {"auc": areas[row["data_set"]]} for row in found]


AGREEMENT = [
    Column("precision, %", "precision", percent),
    Column("recall, %", "recall", percent),
    Column("F1, %", "f1", percent),
]
RULES = {
    "drop": "without a third of their words",
    "replace": "with other words for a third",
    "shorten": "cut in half",
    "merge": "two joined",
    "all": "two joined, words left out and replaced",
}
SWAPS = {"": "", "same": "the document", "other": "another document"}

PAGES: Mapping[str, Page] = {
    "sources": Page(
        "What summaries rest on",
        "Sentences drawn from documents and rewritten by rule, whose sources are known; support of "
        "reference sentences beside their own and another document; sentences that FactCC's rules "
        "corrupted. Means over five data sets: papers, technical standards, biomedical articles, "
        "meetings and plays of fantasy. *Alignment* is ours, of greedily added words and pairs of "
        "words; *greedy ROUGE* adds sentences as long as ROUGE grows; *nearest* names one "
        "sentence, so that it can find half of two. Precision and recall are of source sentences, "
        "F1 is of these two. *Flags, document* counts names, numbers and dates that the document "
        "lacks, *flags, sources* those that the named sources lack. The next document of meetings "
        "and plays often tells of the same people and things, and does hold some of what counts "
        "there as unsupported.",
        [
            Table(
                "Methods beside known sources",
                [
                    Column("sentences are", "rule", RULES.__getitem__),
                    Column("method", "method"),
                    *AGREEMENT,
                ],
                where(part="methods", data_set="mean"),
            ),
            Table(
                "What alignment is allowed",
                [
                    Column("sources at most", "max_sources"),
                    Column("least gain", "min_gain"),
                    *AGREEMENT,
                ],
                where(part="settings"),
            ),
            Table(
                "Reference sentences that reach a support",
                [
                    Column("support", "threshold"),
                    Column("own document, %", "own", percent),
                    Column("another document, %", "other", percent),
                    Column("right of both, %", "balanced_accuracy", percent),
                ],
                where(part="thresholds", data_set="mean"),
            ),
            Table(
                "The same by data set, at the best support",
                [
                    Column("data set", "data_set"),
                    Column("sentences", "sentences", count),
                    Column("own document, %", "own", percent),
                    Column("another document, %", "other", percent),
                    Column("AUC of support", "auc", digits(3)),
                ],
                separation,
            ),
            Table(
                "AUC of corrupted sentences against unchanged ones",
                [
                    Column("sentences of", "sentence_of"),
                    Column("changed", "kind"),
                    Column("put in from", "swap", SWAPS.__getitem__),
                    Column("support", "support", digits(2)),
                    Column("flags, document", "document flags", digits(2)),
                    Column("flags, sources", "all flags", digits(2)),
                    Column("support and flags", "support and flags", digits(2)),
                ],
                where(part="corrupted", data_set="mean"),
            ),
            Table(
                "Unchanged sentences with flags",
                [
                    Column("data set", "data_set"),
                    Column("sentences of", "sentence_of"),
                    Column("for what the document lacks, %", "by_document", percent),
                    Column("for what the sources lack, %", "by_any", percent),
                ],
                where(part="flagged"),
            ),
        ],
    ),
    "metrics": Page(
        "Metrics of summaries",
        "Our metrics beside their reference implementations on the same pairs of texts, on one"
        " core: the largest difference of a score from 0 to 100 (of BARTScore and LongDocFACTScore"
        " of log-probabilities), pairs per second of processor time, and how many times as fast"
        " ours is. Those over models read with random ones. Their lengths are spread as those of"
        " real summaries and sentences, and what is saved at the base size is padding: over many"
        " summaries of one length bert-score is about as fast. Tests of significance likewise.",
        [
            Table(
                "Metrics",
                [
                    Column("metric", "metric"),
                    Column("reference", "peer"),
                    Column("pairs", "pairs", count),
                    Column("largest difference", "largest_difference", small),
                    Column("pairs/s", "pairs_per_second", digits(1)),
                    Column("reference, pairs/s", "peer_pairs_per_second", digits(1)),
                    Column("times as fast", "ratio", digits(1)),
                ],
                lambda rows: [row for row in rows if "metric" in row],
            ),
            Table(
                "Metrics that no package computes; `tests/evaluation` has their twins",
                [
                    Column("metric", "definition"),
                    Column("as defined by", "of"),
                    Column("pairs", "pairs", count),
                    Column("pairs/s", "pairs_per_second", digits(1)),
                ],
                having("definition"),
            ),
            Table(
                "Many summaries, on one core",
                [
                    Column("metric", "many"),
                    Column("summaries", "summaries", count),
                    Column("seconds", "seconds", digits(1)),
                ],
                having("many"),
            ),
            Table(
                "Significance of one column of scores",
                [
                    Column("", "test"),
                    Column("reference", "peer"),
                    Column("documents", "documents", count),
                    Column("rounds", "rounds", count),
                    Column("seconds", "seconds", digits(3)),
                    Column("reference, seconds", "peer_seconds", digits(3)),
                    Column("times as fast", "ratio", digits(1)),
                ],
                lambda rows: [row for row in rows if "test" in row],
            ),
        ],
    ),
}
