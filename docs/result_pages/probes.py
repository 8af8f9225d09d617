"""Pages about what small models can find and remember: generated tasks with exact answers."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from longsum_jax.analysis.figures import probes_figure
from result_pages.tables import Column, Page, Row, Table, count, digits, having, where

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUARTERS = ("to 1/4", "to 1/2", "to 3/4", "to 1")  # of the length, by which probes are divided
FEW_LENGTHS = 3  # of training, beyond the first one
SEGMENT_TOKENS = 64  # of probes that are read in segments
TASKS = ("needle", "multi_needle", "recall", "salient_copy", "count", "entity")
TASKS += ("query_focus", "redundancy", "distractor")


def probed(task: str, per: str = "seeds") -> Callable[[list[Row]], list[Row]]:
    """Returns a function that makes one row per model of a task with a column per length.

    Args:
        task: its name.
        per: "seeds" for means over them, "seed" for a row of each.
    """

    def turn(rows: list[Row]) -> list[Row]:
        found: dict[tuple[Any, ...], Row] = {}
        for row in having(per)(where(task=task)(rows)):
            model = {key: row[key] for key in ("tasks", "plan", "encoder", "cross", "memory", per)}
            line = found.setdefault(tuple(model.values()), model)
            line[f"exact at {row['length']}"] = _exact(row)
        return list(found.values())

    return turn


def _exact(row: Row) -> str:
    """Returns the share of right answers, of means with half its interval."""
    return f"{row['mean']:.2f} ± {row['interval']:.2f}" if "mean" in row else f"{row['exact']:.2f}"


def probed_lengths(rows: list[Row]) -> list[Column]:
    """Returns one column per length that probes were read at."""
    lengths = sorted({row["length"] for row in having("seeds")(rows)})
    return [Column(f"{length:,}", f"exact at {length}") for length in lengths]


def probed_distances(task: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that makes one row per model and length with a column per distance."""

    def turn(rows: list[Row]) -> list[Row]:
        chosen = having("seeds")(where(task=task)(rows))
        return [row | dict(zip(QUARTERS, row["mean_by_distance"], strict=True)) for row in chosen]

    return turn


def remembered(rows: list[Row]) -> list[Row]:
    """Returns one row per memory and length: right tokens and their interval by distance."""
    found = []
    for row in having("seeds")(rows):
        parts = zip(row["mean_tokens_by_distance"], row["interval_tokens_by_distance"], strict=True)
        words = [
            f"{mean:.2f}" if half is None else f"{mean:.2f} ± {half:.2f}" for mean, half in parts
        ]
        by_distance = dict(zip(QUARTERS, words, strict=True))
        segments = row["length"] // SEGMENT_TOKENS
        found.append(row | by_distance | {"segments": segments, "exact": _exact(row)})
    return found


def remembered_by_seed(rows: list[Row]) -> list[Row]:
    """Returns one row per memory and length: right tokens of earlier segments for every seed."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in having("seed")(rows):
        line = found.setdefault((row["memory"], row["plan"], row["length"]), dict(row))
        earlier = [
            (right, texts)
            for right, texts in zip(
                row["tokens_by_distance"][1:], row["texts_by_distance"][1:], strict=True
            )
            if texts
        ]
        total = sum(texts for _, texts in earlier)
        right = sum(right * texts for right, texts in earlier) / total
        line[f"seed {row['seed']}"] = f"{right:.2f}"
    return list(found.values())


def draw_probes(rows: list[Row]) -> "Figure":
    """Draws what every model makes of every task, by length and distance, of its most seeds."""
    found = [row | {"model": _model_of(row)} for row in having("seeds")(rows)]
    most: dict[tuple[str, str], int] = {}
    for row in found:
        key = row["task"], row["model"]
        most[key] = max(most.get(key, 0), row["seeds"])
    return probes_figure([x for x in found if x["seeds"] == most[x["task"], x["model"]]], 7.0)


def _model_of(row: Row) -> str:
    """Returns the parts of a model in words, and what is not the rule in its training."""
    parts = [row["encoder"]]
    parts += [f"x {row['cross']}"] if row["cross"] != "full" else []
    parts += [f"+ {row['memory']}"] if row["memory"] != "none" else []
    parts += [f"({row['tasks']})"] if row["tasks"] != row["task"] else []
    parts += ["in turn"] if "+" in row["plan"] else []
    steps = [int(part.split(":")[1]) for part in row["plan"].split(",")]
    parts += [f"in {sum(steps):,} steps"] if len(steps) > FEW_LENGTHS + 1 else []
    return " ".join(parts)


def learned(rows: list[Row]) -> list[Row]:
    """Returns one row per trained model with the right tokens at the end of each length."""
    found = {}
    for row in having("learned")(rows):
        model = {key: row[key] for key in ("tasks", "plan", "encoder", "cross", "memory", "seed")}
        shares = {f"learned at {length}": value for length, value in row["learned"].items()}
        found[tuple(model.values())] = model | {"parameters": row["parameters"]} | shares
    return list(found.values())


def learned_lengths(rows: list[Row]) -> list[Column]:
    """Returns one column per length that probes were trained at."""
    lengths = {int(length) for row in having("learned")(rows) for length in row["learned"]}
    return [Column(f"{n:,}", f"learned at {n}", digits(3)) for n in sorted(lengths)]


PROBED_MODEL = (
    Column("trained on", "tasks"),
    Column("length:steps", "plan"),
    Column("encoder attention", "encoder"),
    Column("cross-attention", "cross"),
    Column("memory", "memory"),
    Column("seeds", "seeds", count),
)

PAGES: Mapping[str, Page] = {
    "memory_probes": Page(
        "What memories remember",
        "Small models that read a text segment by segment and copy four marked symbols after "
        "the last segment, as [the probes](probes.md) do: `needle` of "
        "`benchmarks/probe_tasks.py`. Trained at 16 tokens, which are one segment, then at 64 "
        "and 256 in four segments, and read at 256, 1,024 and 4,096 tokens in segments of 64. "
        "All have 300,000 parameters (*attentive_said* and *attentive_decoder* 497,000), two "
        "encoder layers, and 64 slots for each. The answer is written from the last segment's "
        "states, so *se3*, without a memory, can know what stands in the last segment alone. "
        "Numbers are shares of right tokens, by the quarter of the text that the fact stands "
        "in, nearest first, and of answers right to the last token; ± is half the 95 % "
        "interval over seeds. One symbol of forty by chance is .025.\n\n"
        "The attentive memory carries the fact through sixteen and sixty-four segments, of "
        "which it was trained on four, with little loss by distance: gates keep what was "
        "written. Length costs more: one of the two seeds that learned it whole has .96, .90 "
        "and .59 of the answers right in four, sixteen and sixty-four segments. How much of "
        "the fact it learns to write differs from seed to seed (second table): all of it in "
        "two of five, else the symbols without a sure order. The compressive memory has room "
        "for three segments here, 32 newest states and 32 compressions of five, and drops "
        "older ones, as Rae et al. (2020) have it. It was learned in part, in one seed of "
        "five, that of the pilots, and there it tells what stood one to three segments before "
        "and nothing else. A likely reason: no gradient reaches the states that it holds, so "
        "attention has to find them before they are worth finding, as in [the study of "
        "segments](segment_study.md), where it made summaries worse. A longer training does "
        "not mend it: the seed that learned it, with four times the steps at 64 tokens, has "
        ".19 of the tokens of earlier segments right, before .29.\n\n"
        "**What is written is remembered.** Where the decoder writes the fact after the "
        "segment where it stands, as a summary that grows with the document does, a memory of "
        "the decoder (*attentive_decoder*) has .97 to 1.00 of the answers right through 64 "
        "segments, in each of five seeds; the fact is given to it there, as in training. The "
        "same models without one (*attentive_said*) depend on their seed as before: .00 to "
        ".95. Whoever writes segment by segment should give the decoder a memory, as the "
        "paper does.\n\n"
        "**Important sentences** of other segments, as a perfect extractor finds them. As "
        "text behind the segment's own they are simply read (*text*: 1.00 in each of five "
        "seeds at 64 segments, and with the attentive memory beside them the same); as "
        "vectors of the encoder the model has to learn to spell them, and does (*vectors*: "
        "means of .96 and .97). Both hold at any distance; what an extractor misses, they "
        "miss.\n\n"
        "How the setting was found: in three pilots with seed 0, which is one of the five. With "
        "one encoder layer and facts cut at 16 tokens Se3 learned nothing, and the compressive "
        "memory was stopped after the first length, as little learned. Then came the attentive "
        "memory alone, with 16:300,64:400,256:200, and all with 16:300,64:500,256:400: there the "
        "compressive memory had .39 of the tokens right at 256 tokens, Se3 .23, the attentive "
        "memory .73. Seeds 1 to 4 were run once. That one seed of five learns the compressive "
        "memory is a statement about this training.",
        [
            Table(
                "Right tokens by distance of the fact",
                [
                    Column("memory", "memory"),
                    Column("length:steps", "plan"),
                    Column("length", "length", count),
                    Column("segments", "segments"),
                    Column("seeds", "seeds"),
                    *(Column(name, name) for name in QUARTERS),
                    Column("exact answers", "exact"),
                ],
                remembered,
            ),
            Table(
                "Right tokens of facts in the farther three quarters, by seed",
                [
                    Column("memory", "memory"),
                    Column("length:steps", "plan"),
                    Column("length", "length", count),
                    *(Column(f"seed {seed}", f"seed {seed}") for seed in range(5)),
                ],
                remembered_by_seed,
            ),
        ],
    ),
    "probes": Page(
        "Probes",
        "Small models that learn generated tasks with exact answers "
        "(`benchmarks/probe_tasks.py` says which, with an example of each; `python "
        "benchmarks/probes.py --show` draws one). Every model has the same number of "
        "parameters, sees the same texts, and writes greedily. A number is the share of "
        "answers that are right to the last token, with half the 95 % interval: over seeds, "
        "or over texts where there is one seed. Lengths that were not trained are read "
        "without further training. In the figure gray is what was not read; each length has "
        "four cells, from near facts to far ones. The last table says what was learned of "
        "each length: where that is little, training ended too early for the attention at "
        "hand.\n\n"
        "**The needle.** All attentions learn it, to nearly every token, at every length of "
        "their training (full attention in four seeds of five at 1,024 tokens). What differs "
        "is what they do at other lengths. LOCOST (s4d), windows (local) and LSG find the "
        "fact at 32 times the longest trained length as surely as within it, and so does "
        "LOCOST with Hepos, whose heads see a quarter of the source each, or with the 64 "
        "nearest keys of each head. LOCOST was read at 131,072 and 262,144 tokens, too, 128 "
        "and 256 times the longest trained length (one seed, sixteen texts each): .94 and "
        "1.00. Linformer, with as many keys as Hepos at 1,024 tokens, finds it there in .14 "
        "of the texts (.05 to .23; at 256, where it has as many keys as tokens, four of five "
        "seeds had learned it). Full attention and LongT5 (transient_global) find it at eight "
        "times in no text or hardly any, and at twice in a third and two thirds. They even "
        "lose shorter lengths that they had learned before: LongT5's first seed, right at "
        "1,024 tokens and before that at 256, is wrong in most texts of 256 afterwards.\n\n"
        "Why: in both, a query's softmax runs over a number of keys that grows with the text, "
        "all of it or a mean of every sixteen tokens, and what one layer makes of a token "
        "changes with that number; windows, LSG's selected keys here, and a state space's "
        "decay do not depend on it. Two variants speak for that. With lengths in turn at the "
        "end of training (*in turn*: 64, 256 and 1,024, five seeds) shorter lengths stay and "
        "those in between are mostly found, longer ones no better; 1,024 tokens, which had "
        "100 steps in place of 150, are found in .75 and .87 of the texts. With one bias for "
        "all keys farther than 32 tokens (*full_near*, where T5 tells distances up to 128 "
        "apart; five seeds) full attention is not surely better anywhere, and fails at eight "
        "times all the same: distances whose biases had little training are not the reason. "
        "All this is of one layer and 160,000 parameters; a deep model may mend it from layer "
        "to layer. What it says for training: mix lengths, up to those that are to be read, "
        "and do not expect full attention to reach beyond.\n\n"
        "**Recall** of three of eight values by their keys, five seeds. They differ in "
        "whether a model learns it at all, so the means say little, and there is a table by "
        "seed: those that do not, copy the keys of the question and guess the values, .63 of "
        "the tokens, from 64 tokens on. LOCOST learned it in all five, windows in three, "
        "LongT5 in two and in part in a third, LSG in one, full attention in three, to .87 to "
        ".95 of the tokens at 256 and less at 1,024. What was learned lasts as the needle "
        "does. LOCOST's seeds have .91 to 1.00 of the texts right at eight times the longest "
        "trained length, those of windows .78, .97 and 1.00, LSG's .91; LongT5's two, right "
        "in all texts of 1,024 tokens, have .69 and .84 of those of 2,048 and none of 8,192. "
        "A shorter training with one seed, which stood here before, had found that LOCOST "
        "alone keeps what it learned in short texts: the others had not been trained for long "
        "enough.\n\n"
        "**Marked sentences in order, each fact once** (salient_copy, redundancy; five "
        "seeds). What is to be written depends on what stands elsewhere in the text, so an "
        "encoder has to carry something across it, and here attentions differ within the "
        "lengths of their training. At 512 tokens LOCOST writes all three marked sentences of "
        ".72 of the texts, LongT5 of .26, LSG of .10, full attention of .08 and windows of "
        ".06 (means of five seeds; every difference to LOCOST has p < .025 by t tests paired "
        "by seed, though one seed of full attention is above LOCOST's of the same number). At "
        "1,024, the longest that was trained, they have .51, .13, .06, .14 and .03 (full "
        "attention p = .05, the others .03 and less). Each fact once, by first mention: "
        "LOCOST .80, in no seed below .73, LSG .28 (.01 to .57), LongT5 .22, full attention "
        ".16, windows .15 (p < .02). All had learned both at 16 tokens. It does not last as "
        "the needle does: at twice the longest trained length LOCOST has .24 of the texts "
        "with marked sentences right and .66 of those with facts, at eight times .04 and .19.\n\n"
        "What matters within LOCOST (salient_copy, five seeds; the whole model has .72, .51 "
        "and .24 of the texts right at 512, 1,024 and 2,048 tokens): without the backward "
        "direction .66, .31, .06 (*s4d_forward*), without gates .74, .65, .19 "
        "(*s4d_ungated*), with four modes instead of 32 .58, .37, .06 (*s4d_four*), with "
        "modes that remember 40 tokens at most when training begins, not 2,000, .59, .25, .06 "
        "(*s4d_fast*). At 512 tokens none is told from the whole model by five seeds, of "
        "which its own go from .34 to .86. At 2,048, twice the longest length of training, "
        "the second direction, many modes and long memories each seem needed: without one of "
        "them a quarter of the right texts is left (p = .03, .02 and .01 by t tests paired by "
        "seed; .05, .05 and .04 adjusted for the four variants). Gates, which the paper has, "
        "do not: at 1,024 tokens every seed has more right without them (p = .03, not "
        "adjusted).\n\n"
        "**Depth carries some of what a layer cannot** (salient_copy, five seeds, three "
        "encoder layers of as many parameters together). With them LSG has .50, .26 and .12 "
        "of the texts right at 512, 1,024 and 2,048 tokens, where one layer has .10, .06 and "
        ".06, and windows .25, .11 and .06 where one has .06, .03 and .00: a global token is "
        "read in the layer after the one that wrote it, and windows reach 31 tokens a layer. "
        "So what is said above of both is of one layer; a state space carries across a text "
        "in one. Means of four tokens in place of keys of the largest norms (*lsg_pooling*: "
        ".08, .04 and .01), each fourth token (*lsg_stride*: .10, .05, .02) and means of "
        "similar ones (*lsg_lsh*: .11, .03, .02) are not told from them in one layer. LOCOST "
        "with three layers has .85, .72 and .30, which five seeds do not tell from one, and "
        "is ahead of LSG with three (p < .01 to 1,024). LongT5 and full attention were not "
        "tried with more.\n\n"
        "**Three needles, to be written in the order of their numbers, five seeds.** LOCOST "
        "writes them at every length in all five; windows in four, LSG in three, to eight "
        "times the longest trained length. In the other seeds the order was lost on the way "
        "from 64 to 1,024 tokens, .5 to .7 of the tokens being right; with the first seed "
        "alone, which is one of them in both, this page had taken that for a property of "
        "windows. Full attention and LongT5 write them within their training, and beyond it "
        "better than one needle without a number: .83 and 1.00 of the texts at twice the "
        "length, .01 and .35 at eight times.\n\n"
        "**The distractor** is a needle with look-alikes, and goes as the needle does (five "
        "seeds): at 8,192 tokens LOCOST .99, windows 1.00, LSG .98, LongT5 .01 and full "
        "attention .00; at 2,048 the last two .69 and .12.\n\n"
        "**Entity**, a name's alias and the alias's value, five seeds: the decoder goes from "
        "one to the next by what it has just written. As recall does, it differs in whether "
        "it is learned at all, so there is a table by seed. LOCOST learned it in all five "
        "(.84 to .97 of the texts right at 8,192 tokens), windows in two, which lasts (1.00 "
        "there), LSG in one, which lasts, too, LongT5 in two, within its training (.94 and "
        "1.00 at 1,024, .22 and .91 at 2,048, none at 8,192), full attention in one (.98 at "
        "1,024, .12 at 2,048; another has .36 of the texts at 512). Those that did not learn "
        "it end at .4 to .6 of the answer tokens. An earlier version of this page, with the "
        "first seed alone, said that windows do it at every length. An earlier form of the "
        "task, which asked for the alias without the name before it, was learned by none: "
        "there a question has to be joined with a mention before anything is written.\n\n"
        "**Count**, five seeds, needs the whole input. It is learned at one length after the "
        "other, and kept at none: after 1,024 tokens LOCOST has .96 of the texts there right, "
        "windows .94, full attention .93, LongT5 .83, LSG .72 (.28 to 1.00), and all of them "
        ".21 or less at 256, 512 and 2,048. At 2,048 all but LSG have the very same share "
        "right, seed by seed (.03, .06, .19, .03, .06): they say one number. Probably what "
        "they read is a share of the text, and what they answer fits the last length.\n\n"
        "**Query focus** is learned, but slowly. With the steps of the other tasks no attention "
        "learned it at 64 tokens; LOCOST, with 24, 32 and so on to 64 tokens in between (3,600 "
        "steps), learned these, and .8 of the tokens at 96 and 128 (one seed each). With about "
        "ten times these steps (35,000, on a GPU, one seed each) LOCOST and full attention "
        "learned all tokens of every length up to 128, LOCOST .93 of them at 256 and .31 at "
        "1,024, full attention 1.00 and .86. Afterwards LOCOST has .65 of the texts of 256 tokens "
        "right and .10 of those of 512, full attention .48 and .96, and .42 of those of 1,024; "
        "both lose what is shorter, and neither answers at 2,048. So the recipe was the reason. "
        "Full attention went farther than LOCOST, from 512 tokens on, in the one seed of each.",
        [
            *(
                table
                for task in TASKS
                for table in (
                    Table(
                        f"{task}: exact answers, by length",
                        PROBED_MODEL,
                        probed(task),
                        probed_lengths,
                    ),
                    Table(
                        f"{task}: by the distance of the fact, in parts of the length",
                        [
                            *PROBED_MODEL,
                            Column("length", "length", count),
                            *(Column(name, name, digits(2)) for name in QUARTERS),
                        ],
                        probed_distances(task),
                    ),
                )
            ),
            *(
                Table(
                    f"{task}: exact answers of each seed, by length",
                    [*PROBED_MODEL[:-1], Column("seed", "seed")],
                    probed(task, "seed"),
                    probed_lengths,
                )
                for task in (
                    "multi_needle",
                    "recall",
                    "salient_copy",
                    "redundancy",
                    "count",
                    "entity",
                )
            ),
            Table(
                "Learned: right answer tokens at the end of training for each length",
                [
                    *PROBED_MODEL[:-1],
                    Column("seed", "seed"),
                    Column("parameters", "parameters", count),
                ],
                learned,
                learned_lengths,
            ),
        ],
        draw_probes,
    ),
}
