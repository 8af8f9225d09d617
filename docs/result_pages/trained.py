"""Pages about small models that were trained on real text."""

from collections.abc import Mapping

from result_pages.tables import (
    Column,
    Page,
    Table,
    count,
    digits,
    having,
    percent,
    where,
)

BITS = [
    Column("bits/token", "bits", digits(3)),
    Column("bits, another source", "bits_other", digits(3)),
]
SCORES = [
    *BITS,
    Column("ROUGE-1", "rouge1", digits(2)),
    Column("ROUGE-2", "rouge2", digits(2)),
    Column("ROUGE-Lsum", "rougeLsum", digits(2)),
    Column("mean", "mean_rouge", digits(2)),
    Column("lead", "lead", digits(2)),
    Column("MiB per step", "step_mib", digits(0)),
    Column("parameters", "parameters", count),
    Column("steps", "steps", count),
]
ENCODERS_OF_STUDIES = (Column("encoder", "encoder"), Column("cross-attention", "cross"))
COPIED_SETS = ("techspecs", "sumpubmed", "scisummnet", "qmsum")
STUDY_TEXT = (
    "*Bits/token* is the loss on the references of the validation set. *Bits, another source* is"
    " the loss on the same references with another document's source: if both are equal, the model"
    " does not use its source and the row is not informative. *Lead* is the mean ROUGE of the first"
    " sentences."
)

PAGES: Mapping[str, Page] = {
    "attention_study": Page(
        "Encoder attentions and cross-attentions on real text",
        "Compare attentions by the loss with another source first, "
        "because it shows whether the source is used.",
        "Every encoder attention, combined with cross-attentions and trained further from one "
        f"small model. {STUDY_TEXT}",
        [Table("", [*ENCODERS_OF_STUDIES, *SCORES])],
    ),
    "reading_start_study": Page(
        "Models that use their source",
        "Compare both columns of bits before you compare ROUGE, "
        "because equal values mean an unused source.",
        "Small models that were pre-trained to use their source before fine-tuning on "
        "summaries: first on copying words in random order, which can only be predicted from "
        "the source; then on mixed tasks over pieces of 60 and of 280 words "
        "(`studies/pretraining_mix.py`); then on 1,024 tokens that the built-in ranker "
        "selects from papers, specifications and meetings, with 192 tokens of their "
        "summaries. All models, except in the older rows of copying, have width 256, three "
        "encoder and two decoder layers, Adam, the same rows in the same order, and the same "
        "start: a LOCOST that can copy, whose encoder attention (including state spaces) is "
        f"reinitialized for every cell. {STUDY_TEXT} ROUGE on this page is measured on 60 "
        "biomedical papers; for all documents, with significance tests, see "
        "[quality](quality.md).\n\n"
        "**Recipe.** Every model uses its source: another document's source costs one and a "
        "half bits per token in summaries and more than eleven in the mixes. Models trained "
        "only on the summaries ([all attentions](attention_study.md)) differ by a quarter of "
        "a bit at most. To repeat this, pre-train on copying texts that cannot be guessed, "
        "before anything else; use 64 short rows per step, a learning rate of at most 1e-3, "
        "and short pieces before longer ones.\n\n"
        "**Attentions.** In the mixes LOCOST has the lowest loss, followed by LongT5; after "
        "400 steps on summaries it has the highest, by a tenth of a bit, in all three seeds, "
        "although it started with the lowest. It also depends most on its source: another "
        "document's source costs it the most. Hepos costs a tenth of a bit in the mixes and "
        "gains an eighth in summaries.\n\n"
        "**Positions** determine how fast copying is learned; the table shows training from "
        "scratch with 1.5 to 1.8 million parameters. One reason for the slow learning of T5's "
        "biases is that Adam changes a bias by at most the learning rate per step, while a "
        "bias has to grow by several units before a head can select one neighbor. Another is "
        "that encoder and decoder have to be aligned. Therefore, to pre-train a T5 or a "
        "LongT5, start from a LOCOST that can copy and reinitialize its encoder attention "
        "(`config.init_fresh=encoder_attention`): then all attentions copy at least 97 % of "
        "the words with 6.4 million parameters after 1,500 steps, the smaller ones 96 % after "
        "1,800. LongT5 from scratch learns no faster than T5, and Adafactor with T5's "
        "learning rate of 1e-2 learned nothing in 1,200 steps.\n\n"
        "| positions | steps until at least 80 % of the words are copied |\n"
        "|---|---|\n"
        "| sinusoids (PEGASUS) | 400 |\n"
        "| LOCOST's state spaces | 600 |\n"
        "| LOCOST with Hepos, whose heads read a quarter of the source each | 1,000 |\n"
        "| T5's learned biases, full attention | half of the words after 1,000 |\n\n"
        "All summaries score below the first sentences of the documents. A [larger "
        "model](small_model.md), trained for longer, copies nearly without errors.",
        [
            Table(
                "Accuracy of copied tokens, in %, by steps",
                [
                    Column("family", "family"),
                    *ENCODERS_OF_STUDIES,
                    Column("million parameters", "millions", digits(1)),
                    Column("start (except encoder attention)", "start"),
                ],
                where(stage="copying by steps"),
                lambda rows: [
                    Column(f"{steps:,}", f"right at {steps}", percent)
                    for steps in (200, 400, 600, 800, 1000, 1200, 1500, 1800, 2000, 2400)
                ],
            ),
            Table(
                "Mixes, before fine-tuning",
                [
                    Column("family", "family"),
                    *ENCODERS_OF_STUDIES,
                    Column("60 words: token accuracy, %", "right_60", percent),
                    Column("280 words: bits/token", "bits", digits(3)),
                    Column("bits, another source", "bits_other", digits(3)),
                    Column("steps", "steps", count),
                    Column("rows per step", "batch_size", count),
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
        "Follow these stages of training if you train a small model that must copy.",
        "A LOCOST of width 256, with four encoder and three decoder layers, a vocabulary of "
        "8,192 pieces and 10.2 million parameters (`configs/locost_small.py`, `size=10m`), "
        "trained for a quarter of an hour on a GPU: first on copying, then on mixed tasks "
        "over pieces of increasing length, then on summaries of four data sets together, from "
        "sentences selected by the built-in ranker. *Right* is the accuracy of next tokens in "
        "the last five hundred training steps.\n\n"
        "**Copying.** The main difference from smaller models is the amount of training on "
        "long rows, and perhaps the size. On the same tasks, smaller models trained on two "
        "cores copied half to three quarters of the tokens of marked sentences, which are "
        "hundreds of words. This model had 35 to 136 times as many long rows, a sixth of them "
        "extracts with up to half of their sentences marked, and misses at most one token in "
        "a hundred. The rest of the recipe is unchanged: copying first, learning rates of at "
        "most 1e-3, Adam with b2 of .98; which tasks of the mix are necessary was not tested. "
        "Fine-tuning loses some of this ability: greedy search then falls into loops, which "
        "blocked n-grams and beams prevent.\n\n"
        "**Summaries.** On the test documents of all four data sets, the model's summaries "
        "score above the first sentences, by four to eleven points of ROUGE. Compared with "
        "the built-in extractor, they are better only on questions about meetings, by 1.5 "
        "points, and by 2.0 if the ranker's selection is marked; on papers and specifications "
        "they are two to three points lower (all p < .05, paired randomization). A perfect "
        "selection of sentences scores far above both. The weights were to be published if "
        "the model was better than the extractor on two data sets, so they are not published.\n\n"
        "**A fifth data set,** sessions of a role-playing game with summaries of 1,600 words "
        "(CRD3), was tried in segments, starting from this model. In our reading, it learned "
        "the names and the style, but not the story. Its summaries score three and a half "
        "points below the extractor's (16 documents), with slightly more words, 1,841 and "
        "1,648. ROUGE is a weak metric there: references of *other* sessions, with the "
        "nearest numbers in the training split, truncated to 1,648 words, score two points "
        "above the extractor.",
        [
            Table(
                "Training",
                [
                    Column("rows", "stage"),
                    Column("source tokens", "source_tokens", count),
                    Column("target tokens", "target_tokens", count),
                    Column("rows per step", "batch_size", count),
                    Column("steps", "steps", count),
                    Column("right, %", "right", percent),
                    Column("s, including compilation", "seconds", count),
                ],
                having("stage"),
            ),
            Table(
                "Accuracy of copied tokens of marked sentences, in %, with teacher forcing",
                [
                    Column("million parameters", "millions", digits(1)),
                    Column("training rows of 280 words or more", "long_rows", count),
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
                    Column("perfect selection of the same sentences", "oracle", digits(2)),
                    Column("references of other documents", "neighbours", digits(2)),
                ],
                having("data_set"),
            ),
        ],
    ),
    "reading_study": Page(
        "Longer inputs for the same model",
        "Check here what longer inputs gain before you train on them.",
        "A LOCOST of 1.8 million parameters that was [pre-trained to use its "
        "source](reading_start_study.md), here on pieces of up to 1,100 words, is trained on "
        "papers and specifications of at least 6,000 tokens, of which it reads the first "
        "1,024, 4,096 or 16,384: 100 steps of four documents, with summaries of up to 512 "
        f"tokens. {STUDY_TEXT}\n\n"
        "**Longer inputs lower the loss** (two seeds; both gains are highly significant, see "
        "[quality](quality.md)). ROUGE, and the share of the summaries that the document "
        "supports, do not differ significantly with 60 documents, and are below the first "
        "sentences: models of two million parameters read better than they write.\n\n"
        "| tokens read | bits per token | increase with another document's source |\n"
        "|---|---|---|\n"
        "| 1,024 | 7.90 | 1.8 |\n"
        "| 4,096 | 7.17 | 2.8 |\n"
        "| 16,384 | 6.80 | 3.3 |\n\n"
        "**LOCOST generalizes to longer inputs** (table *Models of the first seed*; 60 "
        "documents and whole references, so the numbers differ from *Trained*). A model "
        "trained on 1,024 tokens has a loss of 7.81 bits with 1,024 tokens, 7.50 with 4,096 and "
        "7.41 with 16,384, without further training; a model trained on 16,384 has 6.71 there. The "
        "opposite direction costs more: trained on 16,384 tokens and given 1,024, it has "
        "8.45. ROUGE of these rows follows the length of the summaries, which become shorter "
        "with longer inputs.\n\n"
        "**LOCOST vs. LongT5** (last two tables): both start from a LOCOST that can copy, "
        "with reinitialized encoder attention, and are trained on the same rows of copying, "
        "mixes of up to 1,100 words and long summaries, for the same number of steps. With "
        "8,192 tokens, LOCOST has a loss of 6.50 bits per token, LongT5 7.10 ([p = "
        ".0002](quality.md), 175 documents, three seeds); LOCOST processes 1.7 times as many "
        "tokens per second in training, with five sixths of the memory. In the time of "
        "LOCOST's hundred steps LongT5 runs sixty, and has 7.35 and 7.34 then. With half of "
        "the input, 4,096 tokens, LOCOST has 6.83, still lower than LongT5 with all 8,192. "
        "ROUGE of 32 documents was not tested (means of 12.2, LongT5 12.7).\n\n"
        "Part of this difference is due to pre-training: LongT5 predicted half of the next "
        "tokens in mixes of 1,100 words, LOCOST 65 %, from the same rows. Seeds are orders of "
        "the summaries; copying and mixes were trained once for each. After longer "
        "pre-training on a GPU, the difference in [mixes of 280 "
        "words](reading_start_study.md) was only .04 bits, and [with 1,024 "
        "tokens](quality.md) LongT5's loss was a seventh of a bit lower. Which model is "
        "better at 8,192 tokens after a long training is unknown.",
        [
            Table(
                "Trained",
                [Column("tokens read", "tokens", count), Column("seed", "seed"), *SCORES],
                having("tokens"),
            ),
            Table(
                "Models of the first seed at other input lengths than in training",
                [
                    Column("trained on", "trained", count),
                    Column("tokens read", "length", count),
                    *BITS,
                    Column("mean ROUGE", "mean_rouge", digits(2)),
                    Column("summary tokens", "summary_tokens", digits(0)),
                    Column("documents", "documents", count),
                ],
                having("trained"),
            ),
            Table(
                "LOCOST (s4d) vs. LongT5 (transient_global): token accuracy before fine-tuning, %",
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
                "LOCOST vs. LongT5: summaries of long documents",
                [
                    Column("encoder", "encoder"),
                    Column("tokens read", "read", count),
                    Column("seed", "seed"),
                    *SCORES,
                    Column("tokens per second, training", "tokens_per_second", count),
                ],
                where(stage="long"),
            ),
        ],
    ),
    "segment_study": Page(
        "Comparison of segments and memories",
        "Compare the losses of memories here before you add one to a segment model.",
        "Variants of AWESOME on biomedical papers (SumPubMed), specifications, and papers of "
        "computational linguistics (ScisummNet): the first 4,096 tokens of documents of at "
        "least 1,500 words, in segments. *se3* reads only segments. *txt* adds important "
        "sentences of other segments (the tenth of all sentences nearest to the mean of the "
        "document), which get as much room as the segment. *attentive* has a memory, "
        "*attn+txt* both. The two initial models were pre-trained to use their source: a "
        "LOCOST of 1.8 million parameters, with segments of 192 to 256 tokens, and [a LOCOST "
        f"of 10.2 million](small_model.md), with 384 to 512. {STUDY_TEXT} The summaries "
        "concatenate all segments, so they are long, and the table covers few of them; for "
        "ROUGE on all documents, with significance tests, see [quality](quality.md).\n\n"
        "**Important sentences lower the loss, if they have enough room.** The table shows "
        "how much *attn+txt* gains over *se3*, in bits per token. The gain comes from the "
        "sentences: *txt* without a memory gains as much, and a memory without sentences .005 "
        "bits, less than the variance over seeds (1.8 million, one seed). More training "
        "lowers the loss of both variants by .17 bits and leaves the difference unchanged. "
        "The memory's parameters are new; in [probes](memory_probes.md), where memories "
        "carried facts, they were trained for fourteen hundred steps, here for at most 300. "
        "In training, the memory increases device memory by half; important sentences double "
        "the length of the source, and a step takes about one and a half times as long.\n\n"
        "| model, steps, seeds | biomedical papers | specifications | ScisummNet |\n"
        "|---|---|---|---|\n"
        "| 1.8 million, 3 seeds | .12 | .09 | .02 (p = .33) |\n"
        "| 10.2 million, 32 steps of four documents, 2 seeds | .06 | .09 | .03 (p = .10) "
        "|\n"
        "| 10.2 million, 300 steps, 3 seeds | .06 | .07 | .03 (p = .08) |\n\n"
        "**A lower loss does not lead to better summaries.** Greedy summaries of the small "
        "model lose one to two points of ROUGE with important sentences, on every data set, "
        "in full and at 150 words (`longsum evaluate --length`), and .4 to .9 with only the "
        "memory, in full and for one seed. For the larger model, after 32 steps and at 150 "
        "words, the difference is only significant on ScisummNet, a loss of 1.3 points (p = "
        ".047); after 300 steps, four documents in each of three seeds score lower with both.\n\n"
        "**The likely reason is repetition.** Both models repeat themselves, the larger one most "
        "([last columns](quality.md)), although verbatim repetitions of sentences are "
        "removed: a segment now also reads what other segments will summarize. With "
        "repetition blocked (`--segments_no_repeat_ngram_size=3`), the larger model's "
        "repeated trigrams fall from 22 to .6 % (with only segments from 6 to .2), and its "
        "loss on ScisummNet disappears: 24.9 points with both (before 22.2), 23.5 without. On "
        "specifications it is then .7 points ahead, on biomedical papers, where both variants "
        "lose by blocking, .8 behind; neither difference is significant. The smaller model, which "
        "repeats less, then loses half as much: .3, .6 and .7 points on the three sets instead of "
        "1.1, 1.1 and 1.5 (p = .15, .006 and .002); blocking costs ROUGE with and without "
        "important sentences. So important sentences improve the loss, but not the generated "
        "text.\n\n"
        "An earlier version of this page found no effect of important sentences. Its sources "
        "of 320 tokens left only 60 for them after the segment and the labels, and because "
        "segments end at the length of a source, segments and targets differed from the other "
        "variants. Its rows of *txt* and *attn+txt* were removed; now all variants of a "
        "table, and of `configs/awesome.py:small`, have the same `max_source_length`, and "
        "`studies/compare_cells.py` refuses cells whose targets differ.\n\n"
        "The last table is the rest of that version, on other documents, of which it read "
        "2,048 tokens. The compressive memory is worse than only segments, probably because "
        "its keys and values pass through a new projection that a short training cannot "
        "learn. Key-value vectors and the attentive memory do not differ significantly from "
        "only segments.",
        [
            Table(
                heading,
                [
                    Column("variant", "variant"),
                    Column("seed", "seed", count),
                    *SCORES,
                    Column("summary tokens", "summary_tokens", count),
                ],
                where(millions=millions),
            )
            for heading, millions in (
                ("LOCOST, 1.8 million parameters", 1.8),
                ("LOCOST, 10.2 million parameters", 10.2),
                ("Full attention, 1.5 million parameters: other data, segments and training", None),
            )
        ],
    ),
    "empty_segments": Page(
        "Segments without a target",
        "Check here how to treat segments without a target before you train on segments.",
        "Segments without a summary sentence, read without a loss (*false*) or trained on an "
        "empty output (*true*), on technical specifications: the first 1,024 tokens in "
        "segments of 96 to 128, a model of one million parameters from scratch, greedy "
        "search. Bits are computed on segments with a target, in all rows. The first two "
        "models hardly use their source, as the bits with another document's source show; the "
        "table only shows when they stop. The search settings of the AWESOME paper are "
        "unknown, so the table does not decide between the two options for it. The last row "
        "is a LOCOST of 1.8 million parameters that was pre-trained to use its source, on the "
        "data of the [comparison of segments](segment_study.md): its ROUGE is 0, and its "
        "tokens are only the ends of segments, while similar models without this training "
        "generate a thousand. Its bits are not comparable with the other rows.",
        [
            Table(
                "",
                [
                    Column("start", "start"),
                    Column("trained on empty outputs", "train_empty"),
                    Column("bits per token", "bits", digits(3)),
                    Column("bits, another source", "bits_other", digits(3)),
                    Column("mean ROUGE", "mean_rouge", digits(2)),
                    Column("lead", "lead", digits(2)),
                    Column("summary tokens", "summary_tokens", digits(0)),
                ],
            )
        ],
    ),
}
