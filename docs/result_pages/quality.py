"""Pages about what summaries and small models are worth."""

from collections.abc import Callable, Mapping

from result_pages.tables import (
    Column,
    Page,
    Row,
    Table,
    count,
    digits,
    having,
    percent,
    pivot,
    small,
    where,
)

LOCOST, HEPOS, LONGT5 = "T5/s4d-full", "T5/s4d-hepos", "T5/transient_global-full"
FEWER_AND_FASTER = "fewer bits, more tokens a second"
LOCOST_LONG, LONGT5_LONG = "long/s4d-8192-4096", "long/transient_global-8192-4096"


def rouge_by_data(writer: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that makes one row per strategy with a column per data set."""
    turn = pivot("strategy", "data", "rouge")
    return lambda rows: turn([row for row in rows if row.get("writer") == writer])


def compared(first: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that picks the comparisons with a cell, that cell in front."""

    def pick(rows: list[Row]) -> list[Row]:
        mine = where(against=first)(rows)
        return sorted(mine, key=lambda row: f"{row['label']}/{row['cell']}" != first)

    return pick


def goals(rows: list[Row]) -> list[Row]:
    """Returns what was wanted of the studies, and what came of it."""
    cells = {f"{row['label']}/{row['cell']}": row for row in rows}

    def share_of(cell: str, other: str) -> str:
        return f"{100 * cells[cell]['mean_rouge'] / cells[other]['mean_rouge']:.0f} %"

    longt5 = cells[LONGT5_LONG]
    speed = cells[LOCOST_LONG]["tokens_per_second"] / longt5["tokens_per_second"]
    of_long = (
        f"{-longt5['difference']:+.3f} bits/token, p = {longt5['p_value']:.4f}, "
        f"{speed:.1f} times the tokens a second in training"
    )
    memory = cells["segments/attn+txt"]
    of_memory = f"{memory['difference']:+.3f} bits/token, p = {memory['p_value']:.2f}"
    return [
        {"goal": goal, "wanted": wanted, "found": found}
        for goal, wanted, found in (
            ("ROUGE of LOCOST, of LongT5's", "96 %", share_of(LOCOST, LONGT5)),
            ("ROUGE of LOCOST with Hepos, of LOCOST's", "99 %", share_of(HEPOS, LOCOST)),
            ("LOCOST beside LongT5 at 8,192 tokens", FEWER_AND_FASTER, of_long),
            ("attentive memory and important sentences, beside none", "p < .05", of_memory),
        )
    ]


def by_data_set(value: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that turns rows into one row per system with a column per data set."""

    def turn(rows: list[Row]) -> list[Row]:
        return pivot("system", "data_set", value)([row for row in rows if "system" in row])

    return turn


def data_sets(rows: list[Row]) -> list[Column]:
    """Returns one column per data set, and one for their mean."""
    names = dict.fromkeys(row["data_set"] for row in rows if "system" in row)
    return [Column(name, name, digits(1)) for name in names]


SYSTEMS = [Column("system", "system")]
ROUGE_BY_DATA = [
    Column("strategy", "strategy"),
    *(
        Column(name, name, digits(1))
        for name in ("scisummnet", "techspecs", "qmsum", "sumpubmed", "crd3", "mean")
    ),
]
SCORES = [
    Column("bits/token", "bits", digits(3)),
    Column("bits, another source", "bits_other", digits(3)),
    Column("ROUGE-1", "rouge1", digits(2)),
    Column("ROUGE-2", "rouge2", digits(2)),
    Column("ROUGE-Lsum", "rougeLsum", digits(2)),
    Column("mean", "mean_rouge", digits(2)),
    Column("lead", "lead", digits(2)),
    Column("MiB of a step", "step_mib", digits(0)),
    Column("parameters", "parameters", count),
    Column("steps", "steps", count),
]
ENCODERS_OF_STUDIES = (Column("encoder", "encoder"), Column("cross-attention", "cross"))
BERTSCORE = [
    Column("BERTScore-like F1", "bertscore_f1", digits(2)),
    Column("p", "bertscore_f1_p_value", digits(4)),
]
OF_DOCUMENTS = [
    Column("supported sentences", "supported_sentences", digits(1)),
    Column("p", "supported_sentences_p_value", digits(3)),
    Column("held by the document", "held_by_document", digits(1)),
    Column("p", "held_by_document_p_value", digits(3)),
    Column("entity precision", "entity_precision", digits(1)),
    Column("p", "entity_precision_p_value", digits(3)),
    Column("repeated trigrams", "repeated_3", digits(2)),
    Column("p", "repeated_3_p_value", digits(3)),
]
COPIED_SETS = ("techspecs", "sumpubmed", "scisummnet", "qmsum")
STUDY_TEXT = (
    "*Bits/token* are of the references of the validation set. *Bits, another source* are of the"
    " same references with the source of another document: where both are equal, the model does "
    "not use its source and the row compares nothing. *Lead* is the mean ROUGE of the first "
    "sentences."
)

PAGES: Mapping[str, Page] = {
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
    "attention_study": Page(
        "Encoder attentions and cross-attentions on real text",
        "Every encoder attention with cross-attentions, continued from one small start. "
        f"{STUDY_TEXT}",
        [Table("", [*ENCODERS_OF_STUDIES, *SCORES])],
    ),
    "reading_start_study": Page(
        "Models that use their source",
        "Small models that were taught to read before they saw a summary: first to copy words in "
        "random order, which nothing but the source tells, then mixed tasks over pieces of 60 and "
        "of 280 words (`benchmarks/pretraining_mix.py`), then the 1,024 tokens that the built-in "
        "ranker chooses of papers, specifications and meetings, with 192 tokens of their "
        "summaries. All but those of the older rows of copying have a width of 256, three layers "
        "and two of the decoder, Adam, the same rows in the same order, and one start: a LOCOST "
        "that copies, whose encoder's attention is drawn anew for every cell, state spaces, too. "
        f"{STUDY_TEXT} ROUGE is of 60 biomedical papers here; of all documents, with tests, it is "
        "on [the page of comparisons](quality.md).\n\n"
        "Every model uses its source, by one and a half bits a token in summaries and by more than "
        "eleven in the mixes. What made the difference: copying alone comes first, of texts that "
        "cannot be guessed; 64 short rows a step; a learning rate of 1e-3 and not more; then short "
        "pieces before longer ones. Models trained on the summaries alone, "
        "[of all attentions](attention_study.md), differ by a quarter of a bit at most.\n\n"
        "LOCOST has the fewest bits in the mixes, LongT5 next; in summaries, after 400 steps, it "
        "has the most, by a tenth of a bit, in all three seeds, although it began there with the "
        "fewest. It also loses most by another document's source, so it leans on the source most. "
        "Hepos costs a tenth of a bit in the mixes and gains an eighth in summaries.\n\n"
        "How fast copying is learned depends on how positions are told. From scratch, with 1.5 to "
        "1.8 million parameters, four fifths and more are right after 400 steps with sinusoids, "
        "600 with LOCOST's state spaces, 1,000 with LOCOST and Hepos, whose "
        "heads see a quarter of the source each; T5's full attention, which knows positions by "
        "learned biases alone, is at half after 1,000, and LongT5, which has them too, learns no "
        "faster. Adafactor with T5's rate of 1e-2 learned nothing of it in 1,200. Part of the "
        "reason is that Adam moves a bias by the learning rate a step at most, and it has to grow "
        "by several units before a head can look at one neighbour; part, that encoder and decoder "
        "have to find each other. In a LOCOST that copies, with the encoder's attention drawn anew "
        "(`config.init_fresh=encoder_attention`), all attentions of 6.4 million parameters have "
        ".97 of the words right or more after 1,500 steps, the smaller ones .96 after 1,800: that "
        "is how to teach a T5 or a LongT5 to read.\n\n"
        "As summaries all of them are below the first sentences of the documents. "
        "[A larger one](small_model.md), trained for longer, copies nearly without errors.",
        [
            Table(
                "Copied tokens that are right, in %, by steps",
                [
                    Column("family", "family"),
                    *ENCODERS_OF_STUDIES,
                    Column("million parameters", "millions", digits(1)),
                    Column("all but the encoder's attention from", "start"),
                ],
                where(stage="copying by steps"),
                lambda rows: [
                    Column(f"{steps:,}", f"right at {steps}", percent)
                    for steps in (200, 400, 600, 800, 1000, 1200, 1500, 1800, 2000, 2400)
                ],
            ),
            Table(
                "Mixes, before summaries",
                [
                    Column("family", "family"),
                    *ENCODERS_OF_STUDIES,
                    Column("60 words: right tokens, %", "right_60", percent),
                    Column("280 words: bits/token", "bits", digits(3)),
                    Column("bits, another source", "bits_other", digits(3)),
                    Column("steps", "steps", count),
                    Column("rows of a step", "batch_size", count),
                ],
                where(stage="mix of 280 words"),
            ),
            Table(
                "Summaries",
                [
                    Column("family", "family"),
                    *ENCODERS_OF_STUDIES,
                    Column("seed", "seed", count),
                    *SCORES,
                ],
                where(stage="summaries"),
            ),
        ],
    ),
    "small_model": Page(
        "Ten million parameters that copy",
        "A LOCOST of width 256, four layers and three of the decoder, 8,192 pieces and 10.2 "
        "million parameters (`configs/locost_small.py`, `size=10m`), trained for a quarter of an "
        "hour on a GPU: first to copy, then on mixed tasks over longer and longer pieces, then on "
        "summaries of four data sets at once, of what the built-in ranker chooses of a document. "
        "*Right* is the share of right next tokens, over the last five hundred training "
        "steps.\n\n"
        "What made the difference is the amount of training on long rows, and perhaps size. "
        "Taught by the same tasks on two cores, smaller models copied half to three quarters of "
        "the tokens of marked sentences, some hundreds of words of them; this one, after 35 to "
        "136 times as many long rows, a sixth of them extracts with up to half of their sentences "
        "marked, misses one token in a hundred or none. The rest of the recipe was the same: "
        "copying alone first, rates of 1e-3 and less, Adam with b2 of .98; which of the mix's "
        "tasks are needed was not tried. Fine-tuning takes some of it back: greedy search then "
        "falls into loops, which blocked n-grams and beams keep it from.\n\n"
        "Its summaries of test documents are above the first sentences on all four data sets, by "
        "four to eleven points of ROUGE. Above the built-in extractor's they are on questions "
        "about meetings alone, by 1.5 points, and by 2.0 where the ranker's choice is marked; on "
        "papers and specifications they are two to three points below (all p < .05, paired "
        "randomization). What a perfect choice of sentences reaches is far above both. Weights "
        "were to be published if summaries were above the extractor's on two data sets, so these "
        "are not.\n\n"
        "A fifth set, evenings of a role-playing game with summaries of 1,600 words (CRD3), was "
        "tried in segments, from this model on: as we read it, it learned the names and the tone, "
        "not the story. Its summaries are three and a half points below the extractor's (16 "
        "documents), at somewhat more words, 1,841 and 1,648. ROUGE is a weak judge there: "
        "references of *other* evenings, of the nearest numbers in the training split, cut at "
        "1,648 words, are two points above the extractor's.",
        [
            Table(
                "Training",
                [
                    Column("rows", "stage"),
                    Column("source tokens", "source_tokens", count),
                    Column("target tokens", "target_tokens", count),
                    Column("rows of a step", "batch_size", count),
                    Column("steps", "steps", count),
                    Column("right, %", "right", percent),
                    Column("s, compiling included", "seconds", count),
                ],
                having("stage"),
            ),
            Table(
                "Copied tokens of marked sentences that are right, in %, given those before",
                [
                    Column("million parameters", "millions", digits(1)),
                    Column("rows of 280 words and more in training", "long_rows", count),
                    *(Column(name, name, percent) for name in COPIED_SETS),
                ],
                having("copies"),
            ),
            Table(
                "Mean ROUGE",
                [
                    Column("data set", "data_set"),
                    Column("split", "split"),
                    Column("documents", "documents", count),
                    Column("first sentences", "lead", digits(2)),
                    Column("built-in extractor", "extractor", digits(2)),
                    Column("model", "model", digits(2)),
                    Column("model, with marks", "model_marks", digits(2)),
                    Column("perfect choice of the same sentences", "oracle", digits(2)),
                    Column("references of other documents", "neighbours", digits(2)),
                ],
                having("data_set"),
            ),
        ],
    ),
    "reading_study": Page(
        "More input for the same model",
        "LOCOST of 1.8 million parameters that was [taught to read](reading_start_study.md), here "
        "up to pieces of 1,100 words, then trained on papers and specifications of at least 6,000 "
        "tokens, of which it reads the first 1,024, 4,096 or 16,384: 100 steps of four documents, "
        "summaries of up to "
        f"512 tokens. {STUDY_TEXT}\n\n"
        "Reading more pays, in what the model knows of a summary: 7.90, 7.17 and 6.80 bits a "
        "token, two seeds, both gains far from chance ([tests](quality.md)); with another "
        "document's source it loses 1.8, 2.8 and 3.3 bits. Summaries are not told apart by ROUGE "
        "or by what of them stands in the document, with 60 documents, and are below the first "
        "sentences: two million parameters read better than they write.\n\n"
        "What LOCOST learned on 1,024 tokens it does on more (second table; 60 documents and "
        "whole references, so the numbers are not those of the first): without further training "
        "it has 7.81 bits when it reads 1,024 tokens, 7.50 of 4,096 and 7.41 of 16,384. A model "
        "trained on 16,384 has 6.71 there. The other way round costs more: trained on 16,384 "
        "tokens and given 1,024, it has 8.45. ROUGE of these rows follows the length of the "
        "summaries, which end sooner the more is read.\n\n"
        "**LOCOST beside LongT5** (last two tables): from one LOCOST that copies, the encoder's "
        "attention drawn anew in both, then the same rows of copying, of mixes up to 1,100 words "
        "and of long summaries, for as many steps. When they read 8,192 tokens LOCOST has 6.50 "
        "bits a token, LongT5 7.10 ([p = .0002](quality.md), 175 documents, three seeds), and "
        "LOCOST trains on 1.7 times as many tokens a second, in five sixths of the memory. In the "
        "time of its hundred steps LongT5 makes sixty, and has 7.35 and 7.34 then. Reading half "
        "as much, 4,096 tokens, LOCOST has 6.83, still less than LongT5 of all 8,192. ROUGE of 32 "
        "documents was not tested (means of 12.2, LongT5 12.7). How much of this is what they had "
        "read before? LongT5 knew half of the next tokens in mixes of 1,100 words, LOCOST .65: it "
        "learned more from the same rows. Seeds are orders of the summaries; copying and mixes "
        "were trained once for each. After more of these, on a GPU, [mixes of 280 "
        "words](reading_start_study.md) told the two apart by .04 bits alone, and [of 1,024 "
        "tokens](quality.md) LongT5 then had a seventh of a bit less. Which is ahead at 8,192 "
        "tokens after a long training is not known.",
        [
            Table(
                "Trained",
                [Column("tokens read", "tokens", count), Column("seed", "seed"), *SCORES],
                having("tokens"),
            ),
            Table(
                "The models of the first seed, reading otherwise than they were trained",
                [
                    Column("trained on", "trained", count),
                    Column("tokens read", "length", count),
                    Column("bits/token", "bits", digits(3)),
                    Column("bits, another source", "bits_other", digits(3)),
                    Column("mean ROUGE", "mean_rouge", digits(2)),
                    Column("tokens of a summary", "summary_tokens", digits(0)),
                    Column("documents", "documents", count),
                ],
                having("trained"),
            ),
            Table(
                "LOCOST (s4d) beside LongT5 (transient_global): right tokens before summaries, %",
                [
                    Column("encoder", "encoder"),
                    Column("copying", "right_copy", percent),
                    Column("pieces of 60 words", "right_60", percent),
                    Column("280 words", "right_280", percent),
                    Column("1,100 words", "right_1100", percent),
                ],
                where(stage="reading"),
            ),
            Table(
                "LOCOST beside LongT5: summaries of long documents",
                [
                    Column("encoder", "encoder"),
                    Column("tokens read", "read", count),
                    Column("seed", "seed"),
                    *SCORES,
                    Column("tokens a second, training", "tokens_per_second", count),
                ],
                where(stage="long"),
            ),
        ],
    ),
    "segment_study": Page(
        "Segments and memories compared",
        "Variants of AWESOME on papers and specifications in segments of 192 to 256 tokens. All go "
        "on from [a model that was taught to read](reading_start_study.md), by full attention, "
        "and from the same steps without a memory. "
        f"{STUDY_TEXT} Summaries are those of all segments together, so they are long.\n\n"
        "Earlier studies from starts that did not use their source compared nothing, and are gone. "
        "Here every variant uses it, and none is better than segments alone by more than "
        "[these documents show](quality.md); the compressive memory is worse, as it was "
        "in those studies. Its keys and values pass through a new map that has to be learned "
        "before it says anything, and the recipe is short; at what lengths memories tell what "
        "segments cannot is on [the page of probes](probes.md).",
        [
            Table(
                "",
                [
                    Column("variant", "variant"),
                    Column("seed", "seed", count),
                    *SCORES,
                    Column("summary tokens", "summary_tokens", count),
                ],
            )
        ],
    ),
    "quality": Page(
        "Quality: what small models differ by",
        "Cells of [models that use their source](reading_start_study.md), of "
        "[segments](segment_study.md), and of [more input](reading_study.md), document by "
        "document: the same 300 for attentions, 240 for segments, 180 long ones for more input, "
        "175 for LOCOST beside LongT5. Seeds of a cell, which are orders of the same rows, are "
        "averaged. Those of LOCOST beside LongT5 share what they had read before. A *difference* "
        "is to the first row of a table, in bits per token (less is better), with its 95 % "
        "interval over documents; *p* is of paired randomization, adjusted for the number of rows "
        "(Holm). *Least, documents* is the smallest difference that so many documents show four "
        "times out of five, *least, seeds* the same of the seeds, whose spread is pooled; "
        "*documents needed* is how many the difference found would take. ROUGE is the mean of "
        "ROUGE-1, -2 and -Lsum of the same documents.\n\n"
        "Seeds differ by less than documents do. Between attentions a few hundred documents tell "
        "differences of a few hundredths of a bit, and of a point of ROUGE; between lengths of a "
        "tenth to a quarter of a bit; between memories of a hundredth, or of a quarter where "
        "important sentences are read, too; between LOCOST and LongT5 of .06. Cells of the family "
        "T5 are LOCOST (s4d), LOCOST with Hepos, LongT5 (transient_global), LSG, windows with a "
        "global token, and T5 itself, from one start.\n\n"
        "Every other cell has fewer bits than LOCOST with full cross-attention, by a tenth and "
        "more, and a larger BERTScore-like F1; ROUGE tells none apart. More of what LOCOST writes "
        "is held by the document than of LongT5, of windows, and of LOCOST with Hepos, and it "
        "repeats itself least, surely so but for Hepos. So it copies more, and the others predict "
        "references better.\n\n"
        "When they read 8,192 tokens, models of 1.8 million parameters with little training are "
        "the other way round: LOCOST has .60 bits a token less than LongT5, after as many steps, "
        "and is faster ([more input](reading_study.md) says what part their reading before has in "
        "it).\n\n"
        "Of the goals of the last table, which were set before anything was measured, LOCOST "
        "meets its three, and the memory misses its own. No model here is above the first "
        "sentences of its documents, as a good summary would be, so nothing is published of them.",
        [
            Table(
                heading,
                [
                    Column("family", "label"),
                    Column("cell", "cell"),
                    Column("seeds", "seeds", count),
                    Column("bits/token", "bits", digits(3)),
                    Column("another source", "bits_other", digits(3)),
                    Column("difference", "difference", digits(3)),
                    Column("from", "low", digits(3)),
                    Column("to", "high", digits(3)),
                    Column("p", "p_value", digits(4)),
                    Column("least, documents", "least_documents", digits(3)),
                    Column("least, seeds", "least_seeds", digits(3)),
                    Column("documents needed", "documents_needed", count),
                    Column("ROUGE", "mean_rouge", digits(2)),
                    Column("difference", "mean_rouge_difference", digits(2)),
                    Column("p", "mean_rouge_p_value", digits(4)),
                    Column("least, documents", "mean_rouge_least", digits(2)),
                ],
                compared(first),
            )
            for first, heading in (
                ("T5/s4d-full", "Attentions, beside LOCOST (s4d-full)"),
                ("segments/se3", "Memories, beside segments alone"),
                ("lengths/1024-512", "Tokens that LOCOST reads (the first number), beside 1,024"),
                (
                    LOCOST_LONG,
                    "LOCOST (s4d) beside LongT5 (transient_global): tokens read, the first number",
                ),
            )
        ]
        + [
            Table(
                f"What summaries have of references and documents, in %: {what}",
                [Column("cell", "cell"), *columns],
                compared(first),
            )
            for first, what, columns in (
                ("T5/s4d-full", "attentions", [*BERTSCORE, *OF_DOCUMENTS]),
                ("lengths/1024-512", "tokens read", OF_DOCUMENTS),
            )
        ]
        + [
            Table(
                "Goals",
                [Column("goal", "goal"), Column("wanted", "wanted"), Column("found", "found")],
                goals,
            ),
        ],
    ),
    "empty_segments": Page(
        "Segments without a target",
        "Segments that no sentence of the summary belongs to, read without a loss (*false*) or"
        " trained to be silent (*true*), on technical specifications: the first 1,024 tokens in"
        " segments of 96 to 128, a model of one million parameters from scratch, greedy search."
        " Bits are of segments with a target, in both. The model makes hardly any use of its"
        " source, as the bits with another document's say; what the table shows is when it stops.",
        [
            Table(
                "",
                [
                    Column("trained to be silent", "train_empty"),
                    Column("bits per token", "bits", digits(3)),
                    Column("other source", "bits_other", digits(3)),
                    Column("mean ROUGE", "mean_rouge", digits(2)),
                    Column("lead", "lead", digits(2)),
                    Column("tokens of a summary", "summary_tokens", digits(0)),
                ],
            )
        ],
    ),
}
