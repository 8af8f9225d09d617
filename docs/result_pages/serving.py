"""Pages about the server: speed compared with another one, load, kills, hostile requests."""

from collections.abc import Mapping
from typing import Any

from result_pages.tables import Column, Page, Row, Table, count, digits, having, where

SIGNED = "{:+.1f}".format


def of_servers(rows: list[Row]) -> list[Row]:
    """Returns the rows of servers that clients ask, ours first."""
    return having("clients")(rows)


def at_once(rows: list[Row]) -> list[Row]:
    """Returns the rows of all documents at once, with what the server adds in percent."""
    found = having("seconds", "clients")(rows)
    return [
        row | {"adds": 100 * row["overhead"]} if row.get("overhead") is not None else row
        for row in found
    ]


def loaded(rows: list[Row]) -> list[Row]:
    """Returns the rows of the load, with the growth of memory since the second in percent; the
    first one has the requests for which memory is reserved."""
    found = where(section="load")(rows)
    memory = [row["resident_mib"] for row in found if "resident_mib" in row]
    if len(memory) < 2:
        return found
    return [
        row | {"growth": 100 * (row["resident_mib"] / memory[1] - 1)}
        if "resident_mib" in row and row["part"] > 1
        else row
        for row in found
    ]


def killed(rows: list[Row]) -> list[Row]:
    """Returns a row for each signal, with sums and the longest times, and one for all."""
    ends = having("waiting")(where(section="kills")(rows))
    found = []
    for name in dict.fromkeys(row["signal"] for row in ends):
        of_signal = [row for row in ends if row["signal"] == name]
        total = _sums(of_signal, ("waiting", "answered", "cut", "different"))
        longest = {
            key: max(row[key] for row in of_signal)
            for key in ("seconds_to_end", "seconds_to_ready")
        }
        found.append({"signal": name, "ends": len(of_signal), **total, **longest})
    alls = where(section="kills", signal="all")(rows)
    if alls:
        total = _sums(alls, ("answered", "cut", "different", "lost"))
        found.append({"signal": "all", "ends": len(ends), **total})
    return found


def attacked(rows: list[Row]) -> list[Row]:
    """Returns the rows of the kinds of hostile requests, and one with their sums."""
    found = where(section="hostile")(rows)
    if not found:
        return []
    total: dict[str, Any] = {"kind": "all"}
    total |= _sums(found, ("requests", "sentences", "closed", "failed"))
    total["largest_seconds"] = max(row["largest_seconds"] for row in found)
    return [*found, total]


def _sums(rows: list[Row], keys: tuple[str, ...]) -> Row:
    return {key: sum(row[key] for row in rows) for key in keys}


def milliseconds(seconds: float) -> str:
    """Returns seconds as whole milliseconds."""
    return f"{1000 * seconds:,.0f}"


PAGES: Mapping[str, Page] = {
    "serving": Page(
        "Server",
        "Before you choose a server, look up here how long short documents wait.",
        "Summaries over HTTP: `longsum serve` and a server of transformers' `generate` with static "
        "batches (Starlette, uvicorn), each a process of its own with the same random weights and "
        "tokenizer. Clients each send a document, wait for its summary and then send the next. "
        "Lengths are spread evenly over their logarithms, from a news article to a meeting; both "
        "servers read the same number of tokens of a document, and decode greedily. Servers take "
        "turns. Documents/s are of the best round without compilation, percentiles of all rounds. "
        "*Short* documents have the length of an article. *Speed-up* and *shorter wait* are ratios "
        "of documents/s and of the 95th percentiles of short documents. *Equal* is the share "
        "of summaries that equal "
        "ours.",
        [
            Table(
                "Clients that ask at once",
                [
                    Column("server", "by"),
                    Column("clients", "clients", count),
                    Column("documents", "documents", count),
                    Column("rounds", "rounds", count),
                    Column("documents/s", "documents_per_second", digits(3)),
                    Column("short: median, s", "short_p50", digits(2)),
                    Column("short: 95 %, s", "short_p95", digits(2)),
                    Column("all: median, s", "p50", digits(2)),
                    Column("all: 95 %, s", "p95", digits(2)),
                    Column("CPU seconds", "cpu_seconds", digits(0)),
                    Column("memory, GiB", "peak_gib", digits(2)),
                    Column("speed-up", "ratio", digits(2)),
                    Column("shorter wait", "short_p95_ratio", digits(2)),
                    Column("equal", "equal", digits(2)),
                ],
                of_servers,
            ),
            Table(
                'What the server adds to `Model.summaries(batch_size="auto")`, with all documents '
                "in one request",
                [
                    Column("by", "by"),
                    Column("documents/s", "documents_per_second", digits(3)),
                    Column("compilation, s", "compile_seconds", digits(0)),
                    Column("CPU seconds", "cpu_seconds", digits(0)),
                    Column("tokens of a summary: median", "summary_tokens_p50", digits(0)),
                    Column("95 %", "summary_tokens_p95", digits(0)),
                    Column("added time, %", "adds", SIGNED),
                    Column("equal", "equal", digits(2)),
                ],
                at_once,
            ),
        ],
    ),
    "serving_soak": Page(
        "Server under load and attack",
        "Before you open the server to others, read here what was tested.",
        "A tiny random model on `longsum serve`, under steady load, stopped by signals while "
        "clients waited, and with hostile requests and idle connections. Every answer is compared "
        "with the first one for its document; *different* counts answers that differ.",
        [
            Table(
                "Steady load, per tenth of the run; resident memory is the minimum of a tenth. "
                "*Lost* documents never got an answer, *uncounted* are answers that the server "
                "counted and no client received, or the reverse",
                [
                    Column("part", "part"),
                    Column("answers", "answers", count),
                    Column("different", "different", count),
                    Column("errors", "errors", count),
                    Column("lost", "lost", count),
                    Column("uncounted", "uncounted", count),
                    Column("answers/s", "per_second", digits(1)),
                    Column("programs compiled", "compiled", count),
                    Column("resident MiB", "resident_mib", digits(1)),
                    Column("growth, %", "growth", digits(2)),
                    Column("files", "files", count),
                ],
                loaded,
            ),
            Table(
                "Stops while clients wait: after SIGTERM all waiting requests are answered; those "
                "that SIGKILL cuts off are sent again",
                [
                    Column("signal", "signal"),
                    Column("ends", "ends", count),
                    Column("waiting requests", "waiting", count),
                    Column("answered", "answered", count),
                    Column("cut", "cut", count),
                    Column("lost", "lost", count),
                    Column("different", "different", count),
                    Column("longest end, s", "seconds_to_end", digits(1)),
                    Column("longest restart, s", "seconds_to_ready", digits(1)),
                ],
                killed,
            ),
            Table(
                "Hostile requests: refused with one sentence, or closed",
                [
                    Column("kind", "kind"),
                    Column("requests", "requests", count),
                    Column("refused in a sentence", "sentences", count),
                    Column("closed", "closed", count),
                    Column("failed", "failed", count),
                    Column("longest, s", "largest_seconds", digits(1)),
                ],
                attacked,
            ),
            Table(
                "Other clients during the attack",
                [
                    Column("attack", "beside"),
                    Column("answers", "answers", count),
                    Column("median, ms", "p50", milliseconds),
                    Column("95th percentile, ms", "p95", milliseconds),
                    Column("median, relative", "ratio", digits(2)),
                    Column("lowest round", "lowest", digits(2)),
                    Column("highest round", "highest", digits(2)),
                ],
                where(section="neighbours"),
            ),
        ],
    ),
}
