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
    Column("MiB of a step", "step_mib", digits(0)),
    Column("parameters", "parameters", count),
    Column("steps", "steps", count),
]
ENCODERS_OF_STUDIES = (Column("encoder", "encoder"), Column("cross-attention", "cross"))
COPIED_SETS = ("techspecs", "sumpubmed", "scisummnet", "qmsum")
STUDY_TEXT = (
    "*Bits/token* are of the references of the validation set. *Bits, another source* are of the"
    " same references with the source of another document: where both are equal, the model does "
    "not use its source and the row compares nothing. *Lead* is the mean ROUGE of the first "
    "sentences."
)

PAGES: Mapping[str, Page] = {
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
                    *BITS,
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
        "Variants of AWESOME on biomedical papers (SumPubMed), specifications, and papers of "
        "computational linguistics (ScisummNet): the first 4,096 tokens of documents of at least "
        "1,500 words, in segments. *se3* reads segments alone, *txt* also important sentences of "
        "other segments (that tenth of all sentences which is nearest to the mean of the "
        "document), which have as much room as the segment, *attentive* a memory, *attn+txt* both. "
        "Two starts that were taught to read: LOCOST of 1.8 million parameters, with segments of "
        "192 to 256 tokens, and [the one of 10.2 million](small_model.md), with 384 to 512. "
        f"{STUDY_TEXT} Summaries are those of all segments together, so they are long, and few "
        "here; of all documents, with tests, ROUGE is on [the page of "
        "comparisons](quality.md).\n\n"
        "**Important sentences help a model to know a summary, where they have room.** With "
        "them and a memory the small LOCOST knows .12 bits a token more of the summaries of "
        "biomedical papers than from segments alone, and .09 of those of specifications, in "
        "each of three seeds; of ScisummNet's .02, which may be chance (p = .33). The larger "
        "one, which reads far better, gains .06, .09 and .03 (p = .10) after 32 steps of four "
        "documents, in two seeds, and after 300 steps, in three, .06, .07 and .03 (p = .08): "
        "more training makes both better, by .17 bits, and leaves their distance. It is the "
        "sentences: *txt* without a memory has the same, the memory without sentences .005 "
        "bits, less than seeds tell (1.8 million, one seed). The memory's parameters are new, "
        "and where memories were seen to carry facts, in [probes](memory_probes.md), they had "
        "fourteen hundred steps to learn it, here 300 at most. The memory takes half as much "
        "device memory again in training; with important sentences a source is twice as long, "
        "and a step takes about half as long again.\n\n"
        "**What they write does not follow from what they know.** Greedy summaries of the "
        "small model lose one to two points of ROUGE by important sentences, on every data "
        "set, in full and at 150 words (`longsum evaluate --length`), and .4 to .9 by the "
        "memory alone, in full and of one seed. The larger one's, after 32 steps and at 150 "
        "words, are not told apart in ROUGE with both and without, but on ScisummNet, where "
        "they lose 1.3 points (p = .047); after 300 steps, four documents in each of three "
        "seeds have less with both. Both repeat themselves, the larger one most ([last "
        "columns](quality.md)), although sentences said before are not said again word by "
        "word: a segment is now shown what others will say, too. Where no three tokens of an "
        "earlier segment's summary may be said again (`--segments_no_repeat_ngram_size=3`), "
        "the larger one's repeated trigrams fall from 22 to .6 % (of segments alone from 6 to "
        ".2), and what it lost on ScisummNet is made good: 24.9 points with both (before "
        "22.2) and without (23.5). On specifications it is .7 points ahead then, on "
        "biomedical papers, where both lose by it, .8 behind, neither surely. So it is "
        "repeating that costs it ROUGE, if anything does, and what important sentences tell "
        "is not gained in words. The smaller one, which repeats less, loses half as much "
        "then: .3, .6 and .7 points on the three sets, before 1.1, 1.1 and 1.5 (p = .15, .006 "
        "and .002); forbidding costs ROUGE there with them and without.\n\n"
        "An earlier version of this page found nothing in important sentences. Its sources of "
        "320 tokens left them 60 beside a segment and the labels, and segments end by the "
        "length of a source, so that they and their targets were not those of the variants "
        "without. Its rows of *txt* and *attn+txt* are gone; all variants of a table, and of "
        "`configs/awesome.py:small`, have one `max_source_length` now, and "
        "`benchmarks/compare_cells.py` refuses cells whose targets differ.\n\n"
        "The last table is what remains of that version, of other documents, of which it read "
        "2,048 tokens. The compressive memory is worse than segments alone, probably because its "
        "keys and values pass through a new map that has to be learned before it says anything, "
        "in a short training. Key-value vectors and the attentive memory are not told apart from "
        "segments alone.",
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
        "Segments that no sentence of the summary belongs to, read without a loss (*false*) or"
        " trained to be silent (*true*), on technical specifications: the first 1,024 tokens in"
        " segments of 96 to 128, a model of one million parameters from scratch, greedy search."
        " Bits are of segments with a target, in all rows. The model makes hardly any use of its"
        " source in the first two, as the bits with another document's say; what the table shows is"
        " when it stops. The search of the AWESOME paper is not known, so the table does not decide"
        " between the two for it. The last row is a LOCOST of 1.8 million parameters that was"
        " taught to read and uses its source, on the data of [segments](segment_study.md): ROUGE is"
        " 0, its tokens are the ends of segments, and like models that were not trained to be"
        " silent write a thousand. Its bits are not comparable with theirs.",
        [
            Table(
                "",
                [
                    Column("start", "start"),
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
