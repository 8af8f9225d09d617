"""Pages about source attribution and metrics."""

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
    "drop": "a third of the words dropped",
    "replace": "a third of the words replaced",
    "shorten": "shortened to half",
    "merge": "two joined",
    "all": "two joined, words dropped and replaced",
}
SWAPS = {"": "", "same": "the document", "other": "another document"}

PAGES: Mapping[str, Page] = {
    "sources": Page(
        "Accuracy of source attribution",
        "Compare the methods here before you select an aligner for reports.",
        "Methods of source attribution are compared on sentences drawn from documents and "
        "rewritten by rules, so that their sources are known. Further tables show the support "
        "of reference sentences in their own and in another document, and of sentences "
        "corrupted by FactCC's rules. Values are means over five data sets: papers, technical "
        "standards, biomedical articles, meetings and transcripts of fantasy role-playing "
        "games.\n\n"
        "*Alignment* is our method, which adds sentences greedily by their words and bigrams. "
        "*Greedy ROUGE* adds sentences as long as ROUGE grows. *Nearest* returns one "
        "sentence, so it can find at most half of two sources. Precision, recall and F1 are "
        "computed over source sentences. *Flags, document* counts names, numbers and dates "
        "that are missing from the document, *flags, sources* those that are missing from the "
        "returned sources. The next document of meetings and games often mentions the same "
        "people and things, and therefore supports some of the sentences that count as "
        "unsupported there.",
        [
            Table(
                "Methods on known sources",
                [
                    Column("rewriting", "rule", RULES.__getitem__),
                    Column("method", "method"),
                    *AGREEMENT,
                ],
                where(part="methods", data_set="mean"),
            ),
            Table(
                "Settings of alignment",
                [
                    Column("maximum sources", "max_sources"),
                    Column("minimum gain", "min_gain"),
                    *AGREEMENT,
                ],
                where(part="settings"),
            ),
            Table(
                "Reference sentences above a support threshold",
                [
                    Column("threshold", "threshold"),
                    Column("own document, %", "own", percent),
                    Column("another document, %", "other", percent),
                    Column("balanced accuracy, %", "balanced_accuracy", percent),
                ],
                where(part="thresholds", data_set="mean"),
            ),
            Table(
                "By data set, at the best threshold",
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
                "AUC: corrupted vs. unchanged sentences",
                [
                    Column("source of sentences", "sentence_of"),
                    Column("changed", "kind"),
                    Column("replacement from", "swap", SWAPS.__getitem__),
                    Column("support", "support", digits(2)),
                    Column("flags, document", "document flags", digits(2)),
                    Column("flags, sources", "all flags", digits(2)),
                    Column("support and flags", "support and flags", digits(2)),
                ],
                where(part="corrupted", data_set="mean"),
            ),
            Table(
                "False flags on unchanged sentences",
                [
                    Column("data set", "data_set"),
                    Column("source of sentences", "sentence_of"),
                    Column("missing from the document, %", "by_document", percent),
                    Column("missing from the sources, %", "by_any", percent),
                ],
                where(part="flagged"),
            ),
        ],
    ),
    "metrics": Page(
        "Metrics of summaries",
        "Check a metric's difference from its reference here before you "
        "compare scores with published ones.",
        "Our metrics are compared with their reference implementations on the same pairs of "
        "texts, on one core: the largest difference of a score from 0 to 100 (for BARTScore "
        "and LongDocFACTScore, of log-probabilities), pairs per CPU second, and the speed-up. "
        "Model-based metrics use random models. The lengths of texts are distributed like "
        "real summaries and sentences; at the base size, the speed-up comes from less "
        "padding, and for many summaries of the same length bert-score is about as fast. "
        "Significance tests are compared in the same way.",
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
                    Column("speed-up", "ratio", digits(1)),
                ],
                lambda rows: [row for row in rows if "metric" in row],
            ),
            Table(
                "Metrics without a reference package, tested in `tests/evaluation`",
                [
                    Column("metric", "definition"),
                    Column("definition", "of"),
                    Column("pairs", "pairs", count),
                    Column("pairs/s", "pairs_per_second", digits(1)),
                ],
                having("definition"),
            ),
            Table(
                "Many summaries on one core",
                [
                    Column("metric", "many"),
                    Column("summaries", "summaries", count),
                    Column("seconds", "seconds", digits(1)),
                ],
                having("many"),
            ),
            Table(
                "Significance tests of one column of scores",
                [
                    Column("", "test"),
                    Column("reference", "peer"),
                    Column("documents", "documents", count),
                    Column("rounds", "rounds", count),
                    Column("seconds", "seconds", digits(3)),
                    Column("reference, seconds", "peer_seconds", digits(3)),
                    Column("speed-up", "ratio", digits(1)),
                ],
                lambda rows: [row for row in rows if "test" in row],
            ),
        ],
    ),
}
