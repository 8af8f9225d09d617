"""Pages about summaries without training, and of the data they are measured on."""

from collections.abc import Callable, Mapping

from result_pages.tables import (
    Column,
    Page,
    Row,
    Table,
    count,
    digits,
    percent,
    pivot,
    small,
    where,
)


def rouge_by_data(writer: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that makes one row per strategy with a column per data set."""
    turn = pivot("strategy", "data", "rouge")
    return lambda rows: turn([row for row in rows if row.get("writer") == writer])


def by_data_set(value: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that turns rows into one row per system with a column per data set."""

    def turn(rows: list[Row]) -> list[Row]:
        return pivot("system", "data_set", value)([row for row in rows if "system" in row])

    return turn


def data_sets(rows: list[Row]) -> list[Column]:
    """Returns one column per data set, and one for their mean."""
    names = dict.fromkeys(row["data_set"] for row in rows if "system" in row)
    return [Column(name, name, digits(1)) for name in names]


def kinds_of_pages(rows: list[Row]) -> list[Column]:
    """Returns one column per kind of web page."""
    kinds = dict.fromkeys(row["kind"] for row in rows if "kind" in row)
    return [Column(kind, kind, percent) for kind in kinds if kind != "all"]


SYSTEMS = [Column("system", "system")]
ROUGE_BY_DATA = [
    Column("strategy", "strategy"),
    *(
        Column(name, name, digits(1))
        for name in ("scisummnet", "techspecs", "qmsum", "sumpubmed", "crd3", "mean")
    ),
]


def errors_by(*groups: str, data: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that makes one row per splitter and group of a gold set."""

    def select(rows: list[Row]) -> list[Row]:
        selected = [row for row in rows if row["data"] == data]
        if groups:
            return [row for row in selected if row["group"] in groups]
        return [row for row in selected if row["group"] == "all"]

    return select


ERRORS = [
    Column("splitter", "splitter"),
    Column("boundaries", "boundaries", count),
    Column("other periods", "others", count),
    Column("missed", "missed", count),
    Column("wrong", "wrong", count),
    Column("errors", "errors", count),
]

PAGES: Mapping[str, Page] = {
    "sentences": Page(
        "Sentence splitting",
        "Compare the splitters on texts like yours before you replace the built-in one.",
        "Errors of sentence splitters on two gold sets: texts generated from templates, "
        "abbreviations, names, dates and punctuation of more than ten languages, and labeled "
        "periods in real English texts (novels, short stories, papers, technical standards, "
        "reviews, conversation). An error is a missed or a wrong boundary. The part *held* "
        "was held out while the rules were written. sentencex and pySBD get the language "
        "code; Punkt was trained on the texts. The templates are harder than running text, "
        "because nearly all of them contain an abbreviation. In real texts, periods inside "
        "quotations and brackets are not counted.",
        [
            Table("Generated texts", [Column("part", "part"), *ERRORS], errors_by(data="own")),
            Table("Real texts", [Column("part", "part"), *ERRORS], errors_by(data="real")),
            Table(
                "Generated texts by language",
                [Column("language", "group"), *ERRORS],
                errors_by(
                    *("en", "de", "fr", "es", "it", "pt", "nl", "pl", "ru", "el", "zh", "ja"),
                    data="own",
                ),
            ),
            Table(
                "Generated texts by kind",
                [Column("kind", "group"), *ERRORS],
                errors_by(
                    *("number", "name", "lower", "end", "ordinal", "initials", "citation"),
                    *("quotes", "plain", "label", "code", "script"),
                    data="own",
                ),
            ),
            Table(
                "Speed on novels",
                [
                    Column("splitter", "splitter"),
                    Column("MB/s", "megabytes_per_second", digits(1)),
                ],
                where(data="speed"),
            ),
        ],
    ),
    "web_pages": Page(
        "Main text of web pages",
        "Compare the extractors on pages like yours before you replace the built-in one.",
        "Pages made from templates that imitate the markup of content management systems, themes "
        "and sites, with marked sentences of our own. *Recall* is the share of the article that an "
        "extractor returns, *boilerplate* the share of everything else (menus, cookie banners, "
        "newsletters, related pages, authors, readers' comments, sharing, advertisements, "
        "footers); both are means over pages, so that each template counts once. Posts in forums "
        "and reviews in shops are the article. Errors on *held* templates were not looked at while "
        "the rules were written; *late* templates were written when the rules were complete, and "
        "nothing was changed for them. trafilatura runs without comments, with its default "
        "settings, `favor_recall` and `favor_precision`. Speed is of one process, on these pages, "
        "which are small.",
        [
            Table(
                "",
                [
                    Column("extractor", "system"),
                    Column("templates", "part"),
                    Column("pages", "pages"),
                    Column("recall, %", "recall", percent),
                    Column("boilerplate, %", "boilerplate", percent),
                ],
                where(kind="all"),
            ),
            Table(
                "Recall by kind of page, %",
                SYSTEMS,
                pivot("system", "kind", "recall"),
                kinds_of_pages,
            ),
            Table(
                "Boilerplate by kind of page, %",
                SYSTEMS,
                pivot("system", "kind", "boilerplate"),
                kinds_of_pages,
            ),
            Table(
                "Speed",
                [
                    Column("extractor", "system"),
                    Column("MB/s", "megabytes_per_second", digits(2)),
                ],
                where(part="speed"),
            ),
        ],
    ),
    "builtin_extractor": Page(
        "Extractive summaries",
        "Check the scores for your kind of document before you use the built-in ranker.",
        "The built-in ranker is compared with unsupervised extraction on eight kinds of text: "
        "means of stemmed ROUGE-1, -2 and -Lsum over whole test parts. On each kind, all systems "
        "have the same word budget, the mean length of its training references. *Built-in* uses "
        "the weights of the package, which were not trained on sumpubmed and crd3. *Left out* was "
        "trained without the data set of the kind: it shows the scores to expect on text unlike "
        "the training data. *Reference* selects sentences by the reference itself and is an upper "
        "bound for extraction. Only the rankers read the queries of qmsum and questions. plots and "
        "questions are two tasks on the stories of squality; every third story is in the test "
        "part. In the column of means, *left out* uses the built-in weights on sumpubmed and crd3.",
        [
            Table("", SYSTEMS, by_data_set("mean_rouge"), data_sets),
            Table(
                "Difference from unsupervised systems",
                [
                    Column("ranker", "system"),
                    Column("kind", "data_set"),
                    Column("documents", "documents"),
                    Column("rows", "rows"),
                    Column("trained on it", "is_unseen", lambda value: "no" if value else "yes"),
                    Column("best unsupervised", "best_peer"),
                    Column("points above best", "gain", digits(2)),
                    Column("p-value", "p_best", small),
                    Column("points above lead", "gain_over_lead", digits(2)),
                ],
                lambda rows: [row for row in rows if "p_best" in row],
            ),
            Table(
                "Speed",
                [
                    Column("", "what"),
                    Column("words", "words", count),
                    Column("s", "seconds", digits(2)),
                ],
                lambda rows: [row for row in rows if "what" in row],
            ),
        ],
    ),
    "extractive_peers": Page(
        "Extractive summaries vs. sumy",
        "Compare quality and time here before you select an extractive algorithm.",
        "The built-in ranker is compared with sumy's summarizers on the same documents, with "
        "the same sentences and the same word budget. Scores are means of stemmed ROUGE-1, -2 "
        "and -Lsum; seconds are CPU time per document, from text to summary.",
        [
            Table(
                "",
                [
                    Column("data set", "data_set"),
                    Column("system", "system"),
                    Column("documents", "documents"),
                    Column("ROUGE", "mean_rouge", digits(1)),
                    Column("s", "seconds", digits(3)),
                    Column("relative to ours", "ratio", digits(1)),
                ],
                lambda rows: rows,
            )
        ],
    ),
    "strategies": Page(
        "Strategies for long documents",
        "Compare what the strategies retain before you set `--strategy`.",
        "How much of a document each reading strategy retains, with an extractor in place of "
        "a model: it copies the first sentences of an input (*lead*), or the best ones "
        "according to the built-in ranker (*ranker*). This compares strategies, not the "
        "quality of generated text. A token is a word. Scores are means of stemmed ROUGE-1, "
        "-2 and -Lsum. *Read* is the share of words that the extractor receives, *second "
        "half* the share of the summary that comes from the second half of the document.",
        [
            Table(f"ROUGE, extractor: {writer}", ROUGE_BY_DATA, rouge_by_data(writer))
            for writer in ("lead", "ranker")
        ]
        + [
            Table(
                "Share read, means over the data sets",
                [
                    Column("extractor", "writer"),
                    Column("strategy", "strategy"),
                    Column("read, %", "read", percent),
                    Column("second half, %", "second half", percent),
                    Column("words", "words", digits(0)),
                ],
                where(data="mean"),
            )
        ],
    ),
    "corpora": Page(
        "Data set statistics",
        "Use the lengths of a data set here to set the model's input and output lengths.",
        "Means over the documents of the validation splits used on other pages: words, "
        "compression (document words per summary word), coverage (share of summary words in "
        "fragments copied from the document), and density (mean length of a word's fragment; "
        "Grusky et al. 2018). The columns are the columns of table 2 of the Hepos paper.",
        [
            Table(
                "",
                [
                    Column("data", "data"),
                    Column("documents", "documents", count),
                    Column("document words", "document_words", digits(0)),
                    Column("summary words", "summary_words", digits(0)),
                    Column("compression", "compression", digits(1)),
                    Column("coverage", "coverage", digits(2)),
                    Column("density", "density", digits(2)),
                ],
            )
        ],
    ),
    "salient_ngrams": Page(
        "Position of summary n-grams in the source",
        "Check here whether a truncated input would lose the important part of your documents.",
        "Percentage of the distinct unigrams and bigrams shared by a summary and its document "
        "that occur in the first tenths of the document; means over documents (Hepos paper, "
        "figure 2).",
        [
            Table(
                "",
                [
                    Column("data", "data"),
                    *(Column(f"{read} %", str(read), digits(1)) for read in range(10, 101, 10)),
                ],
                pivot("data", "read", "seen"),
            )
        ],
    ),
}
