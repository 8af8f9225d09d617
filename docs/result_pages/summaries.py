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
    Column("other stops", "others", count),
    Column("missed", "missed", count),
    Column("wrong", "wrong", count),
    Column("errors", "errors", count),
]

PAGES: Mapping[str, Page] = {
    "sentences": Page(
        "Sentence boundaries",
        "Errors of sentence splitters on two gold sets: texts made from frames, abbreviations, "
        "names, dates and marks of ten languages and more, and labelled stops of real English "
        "texts (novels, short stories, papers, technical standards, reviews, talk). An error is a "
        "missed boundary or a wrong one. The part *held* was not looked at while the rules were "
        "written. sentencex and pySBD get the code of the language; Punkt was trained on the "
        "texts. Frames are harder than running text: nearly each of them has an abbreviation. "
        "Stops inside quotations and brackets are not counted in real texts.",
        [
            Table("Own texts", [Column("part", "part"), *ERRORS], errors_by(data="own")),
            Table("Real texts", [Column("part", "part"), *ERRORS], errors_by(data="real")),
            Table(
                "Own texts by language",
                [Column("language", "group"), *ERRORS],
                errors_by(
                    *("en", "de", "fr", "es", "it", "pt", "nl", "pl", "ru", "el", "zh", "ja"),
                    data="own",
                ),
            ),
            Table(
                "Own texts by kind",
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
        "Summaries without a model",
        "The built-in ranker beside unsupervised extraction: means of stemmed ROUGE-1, -2 and "
        "-Lsum, whole test splits. All systems have the same budget of words on a data set, the "
        "mean length of its training references. *Built-in* are the weights of the package, "
        "which never saw sumpubmed and crd3; *own* was trained on the data set itself, *others* "
        "on the four others, *other kind* on talk (qmsum, crd3) where the data set is writing, and "
        "the other way round. *Reference* takes sentences by the reference itself and bounds what "
        "sentences can reach. Queries of qmsum are known to the rankers alone.",
        [
            Table("", SYSTEMS, by_data_set("mean_rouge"), data_sets),
            Table("First 40 documents, 8 of crd3", SYSTEMS, by_data_set("first"), data_sets),
            Table(
                "Against unsupervised systems",
                [
                    Column("ranker", "system"),
                    Column("data set", "data_set"),
                    Column("documents", "documents"),
                    Column("best of them", "best_peer"),
                    Column("points above it", "gain", digits(2)),
                    Column("points above lead", "gain_over_lead", digits(2)),
                    Column("largest p-value of all six", "highest_p", small),
                ],
                lambda rows: [row for row in rows if "highest_p" in row],
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
        "Summaries without a model, beside sumy",
        "The built-in ranker beside summarizers of sumy on the same documents, with the same "
        "sentences and the same budget of words. Scores are means of stemmed ROUGE-1, -2 and "
        "-Lsum; seconds are those of the processor for one document, from text to summary.",
        [
            Table(
                "",
                [
                    Column("data set", "data_set"),
                    Column("system", "system"),
                    Column("documents", "documents"),
                    Column("ROUGE", "mean_rouge", digits(1)),
                    Column("s", "seconds", digits(3)),
                    Column("times ours", "ratio", digits(1)),
                ],
                lambda rows: rows,
            )
        ],
    ),
    "strategies": Page(
        "Strategies for documents longer than an input",
        "What strategies of reading keep of a document, with a writer in a model's place: it "
        "copies the first sentences of an input (*lead*), or its best ones by the built-in ranker "
        "(*ranker*). So strategies are compared, and nothing is said of how well a model writes. "
        "A token is a word. Scores are means of stemmed ROUGE-1, -2 and -Lsum; *read* is the share "
        "of words that the writer sees, *second half* the part of what the summary rests on that "
        "is in the second half of the document.",
        [
            Table(f"ROUGE, writer: {writer}", ROUGE_BY_DATA, rouge_by_data(writer))
            for writer in ("lead", "ranker")
        ]
        + [
            Table(
                "What was read, means over the data sets",
                [
                    Column("writer", "writer"),
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
        "Data sets",
        "Means over the documents of the validation splits that other pages use: words, how many"
        " words of the document there are for one of the summary, the share of the summary's words"
        " in fragments that the document has, and the mean length of a word's fragment (Grusky et"
        " al. 2018). The columns are those of table 2 of the Hepos paper.",
        [
            Table(
                "",
                [
                    Column("data", "data"),
                    Column("documents", "documents", count),
                    Column("words of a document", "document_words", digits(0)),
                    Column("words of a summary", "summary_words", digits(0)),
                    Column("compression", "compression", digits(1)),
                    Column("coverage", "coverage", digits(2)),
                    Column("density", "density", digits(2)),
                ],
            )
        ],
    ),
    "salient_ngrams": Page(
        "Where n-grams of summaries first stand",
        "Of the distinct unigrams and bigrams of a summary that its document has, the percentage"
        " that stands in the first tenths of the document; means over documents (Hepos paper,"
        " figure 2).",
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
