"""The published numbers agree with one another and with what the papers say of them in words."""

import json
from collections import Counter

import pytest

from longsum_jax.data.tasks import TASKS
from longsum_jax.errors import InputError
from longsum_jax.evaluation import published
from longsum_jax.evaluation.pages import read_part
from longsum_jax.evaluation.registry import METRICS
from longsum_jax.evaluation.rouge import Rouge

LOWER_IS_BETTER = ("ds_focus_nn", "gpu_gb")


def cells(paper, table):
    """Returns {system: {column: value}} of a table; columns keep the names of their data sets."""
    result = {}
    for part in published.read_published()[paper].tables[table].parts:
        for system, values in part.rows:
            result.setdefault(system, {}).update(zip(part.columns, values, strict=True))
    return result


def test_every_row_is_as_long_as_its_columns_and_names_are_unique():
    papers = published.read_published()
    assert list(papers) == ["locost", "lsg", "hepos", "awesome"]
    for name, paper in papers.items():
        for table in paper.tables.values():
            assert table.parts or table.missing, f"{name}, table {table.number}"
            for part in table.parts:
                assert {len(values) for _, values in part.rows} == {len(part.columns)}
                assert len(set(part.columns)) == len(part.columns)
                for _, values in part.rows:
                    assert all(isinstance(value, (int, float, type(None))) for value in values)
            systems = Counter(
                (system, column)
                for part in table.parts
                for system, _ in part.rows
                for column in part.columns
                if part.origin is None
            )
            assert set(systems.values()) <= {1}, f"{name}, table {table.number}"


def test_no_key_of_the_file_is_there_twice():
    def check(pairs):
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    json.loads(read_part("published.json"), object_pairs_hook=check)


@pytest.mark.parametrize(
    ("paper", "tables"), [("locost", 9), ("lsg", 15), ("hepos", 11), ("awesome", 14)]
)
def test_every_table_has_an_entry(paper, tables):
    numbers = list(published.read_published()[paper].tables)
    assert numbers[:tables] == [str(number) for number in range(1, tables + 1)]


def test_data_sets_are_tasks_and_comparable_columns_are_those_of_metrics():
    columns = {column for name in METRICS for column in METRICS[name].columns} | {"rougeL"}
    assert set(published.COMPARABLE) <= columns
    assert "rougeL" in Rouge(Rouge.Options(types=("rougeL",))).columns
    for paper in published.read_published():
        datasets = {score.dataset for score in published.published_scores(paper)} - {None}
        assert datasets - {"512", "4096"} <= set(TASKS)  # LSG's table 1 has two lengths


# Table of AWESOME -> system with the best value of every column, in bold, and with the second best,
# underlined.
BEST = {
    "3": {
        "rouge1": ("AWESOME, Attn + Txt", "AWESOME, attentive (Attn)"),
        "rouge2": ("AWESOME, Attn + Txt", "AWESOME, attentive (Attn)"),
        "rougeLsum": ("AWESOME, Attn + Txt", "AWESOME, attentive (Attn)"),
        "summac?": ("Extract-Abstract", "BlockAttn"),
        "ds_focus_nn": ("PageSum", "AWESOME, attentive (Attn)"),
    },
    "5": {
        "rouge1": ("AWESOME, Attn + Txt", "AWESOME, Attn"),
        "rouge2": ("AWESOME, Attn", "AWESOME, Attn + Txt"),
        "rougeLsum": ("AWESOME, Attn + Txt", "AWESOME, Attn"),
        "ds_focus_nn": ("PageSum", None),
    },
    "6": {
        "rouge1": ("AWESOME, Attn", "AWESOME, Attn + Txt"),
        "rouge2": ("Longformer", "AWESOME, Attn"),
        "rougeLsum": ("AWESOME, Attn", "AWESOME, Attn + Txt"),
        "entity_graph": ("BlockAttn", "Unlimiformer"),
    },
    "7": {
        "rouge1": ("BlockAttn", "Longformer"),
        "rouge2": ("BlockAttn", "Longformer"),
        "rougeLsum": ("BlockAttn", "Longformer"),
        "ds_focus_nn": ("PageSum", "LongT5"),
    },
    "8": {
        "rouge1": ("AWESOME, Attn", "Se3"),
        "rouge2": ("AWESOME, Attn", "Se3"),
        "rougeLsum": ("AWESOME, Attn", "Se3"),
        "ds_focus_nn": ("AWESOME, Attn", "Se3"),
    },
    "10": {
        "rouge2": ("AWESOME, Attn", None),
        "rougeLsum": ("AWESOME, Attn", None),
        "summac?": ("AWESOME, Attn", None),
        "ds_focus_nn": ("AWESOME, Attn", None),
    },
    "11": {
        "rouge1": ("PageSum", "AWESOME"),
        "rouge2": ("AWESOME", "BlockAttn"),
        "rougeLsum": ("PageSum", "AWESOME"),
        "entity_precision": ("BlockAttn", None),
        "summac?": ("BlockAttn", "Longformer"),
        "ds_focus_nn": ("PageSum", "AWESOME"),
        "entity_graph": ("BlockAttn", "Longformer"),
    },
}


@pytest.mark.parametrize("table", BEST)
def test_the_best_systems_of_awesome_are_those_in_bold(table):
    rows = cells("awesome", table)
    for column, (best, second) in BEST[table].items():
        reverse = column not in LOWER_IS_BETTER
        order = sorted(rows, key=lambda system: rows[system][column], reverse=reverse)
        assert order[0] == best, column
        if second is not None:
            assert order[1] == second, column


def test_awesome_outperforms_se3_as_it_says():
    """Sections 1 and 5: ROUGE on all data sets, coherence, less than 4 GB more on GovReport."""
    for table in ("3", "5", "6", "7", "8"):
        rows = cells("awesome", table)
        ours = [system for system in rows if system.startswith("AWESOME")]
        for system in ours:
            for column in ("rouge1", "rouge2", "rougeLsum"):
                assert rows[system][column] > rows["Se3"][column], (table, system, column)
    rows = cells("awesome", "3")
    assert 0 < rows["AWESOME, Attn + Txt"]["gpu_gb"] - rows["Se3"]["gpu_gb"] < 4
    for salient in ("AWESOME, text-concat (Txt)", "AWESOME, key-value vectors"):
        assert rows[salient]["summac?"] < rows["Se3"]["summac?"]
    attentive, compressive = rows["AWESOME, attentive (Attn)"], rows["AWESOME, compressive"]
    better = [
        column
        for column in attentive
        if column != "gpu_gb"
        and (attentive[column] > compressive[column]) == (column not in LOWER_IS_BETTER)
    ]
    assert better == [column for column in attentive if column not in ("entity_graph", "gpu_gb")]


def test_tables_of_awesome_repeat_one_another():
    main, ablation = cells("awesome", "3"), cells("awesome", "10")
    pairs = {"AWESOME, Attn": "AWESOME, attentive (Attn)", "without both": "Se3"}
    for system, same in pairs.items():
        assert ablation[system].items() <= main[same].items()
    assert cells("awesome", "11")["AWESOME"]["gpu_gb"] == main["AWESOME, Attn + Txt"]["gpu_gb"]
    lengths = cells("awesome", "14")
    assert {lengths["Se3"]["govreport:tokens/1024"] * 1024} == {51200}  # appendix C.2
    # The text gives 69 words for QMSum's summaries, the table 70.
    assert cells("awesome", "2")["GovReport"]["summary"] == 553
    documents = [row["document"] for row in cells("awesome", "2").values()]
    assert (min(documents), max(documents)) == (6030, 143301)  # section 4: 6K to 143K


def test_the_longest_inputs_of_awesome_are_in_their_columns():
    """The one 8 of block attention is QMSum's, the one 5 of PageSum arXiv's."""
    rows = cells("awesome", "14")
    assert rows["BlockAttn"]["qmsum:tokens/1024"] == 8
    assert rows["BlockAttn"]["summscreentms:tokens/1024"] == 6
    assert rows["PageSum"]["arxiv:tokens/1024"] == 5


def test_densities_of_awesome_are_ordered_as_it_says():
    """Appendix B.6: above Se3, below block attention and Longformer."""
    rows = {system: row["density"] for system, row in cells("awesome", "13").items()}
    for system in ("AWESOME, Attn", "AWESOME, Attn + Txt"):
        assert rows["Se3"] < rows[system] < min(rows["BlockAttn"], rows["Longformer"])
    ratios = cells("awesome", "12")
    most = sorted(ratios, key=lambda system: ratios[system]["unique_3"])[-2:]
    assert most == ["LongT5", "PageSum"]  # appendix B.5: the least redundant


def test_tables_of_lsg_repeat_one_another():
    few, more = cells("lsg", "2"), cells("lsg", "10")
    names = {"Big Bird ETC": "Big Bird", "LSG-Legal-BERT (256/0)": "LSG-Legal-BERT"}
    for system, row in few.items():
        assert more[names.get(system, system)] == row
    assert len(more) == len(few) + 5
    for trained, reread in (("4", "11"), ("5", "12")):
        row, reference = cells("lsg", trained)["LSG-BART (4K)"], cells("lsg", reread)
        assert row.items() <= reference["Reference (256/0)"].items()
        for system, values in reference.items():
            assert values["rouge1"] <= row["rouge1"], system


def test_numbers_in_the_text_of_lsg():
    rows = cells("lsg", "1")
    full = rows["RoBERTa (full)"]
    assert full["4096:bpc"] - full["512:bpc"] == pytest.approx(2.454)  # section 4.1
    long = {system: row["4096:bpc"] for system, row in rows.items() if "4096:bpc" in row}
    assert min(long, key=long.get) == "LSG-Norm (128/2)"
    # Section 4.3.3: longer inputs improve ROUGE without training, global tokens further, but not
    # training on MultiNews.
    for table in ("4", "5", "6", "7"):
        rows = cells("lsg", table)
        assert rows["LSG-BART (16K)"]["rouge1"] > rows["LSG-BART (4K)"]["rouge1"]
    news = cells("lsg", "6")
    assert news["LSG-BART (16K), full tuning"]["rouge1"] < news["LSG-BART (16K)"]["rouge1"]
    seconds = {system: row["seconds"] for system, row in cells("lsg", "8").items()}
    assert seconds["Longformer"] / seconds["LSG-Norm (128/4)"] > 2  # section 6: twice as fast
    keys = {system: row["keys"] for system, row in cells("lsg", "11").items()}
    assert keys["Norm (128/4)"] / keys["Reference (256/0)"] == pytest.approx(0.8, abs=0.03)
    assert keys["Norm (32/4)"] / keys["Reference (256/0)"] == pytest.approx(0.2, abs=0.01)


def test_sizes_of_data_sets_agree_between_papers():
    locost, lsg, awesome = cells("locost", "9"), cells("lsg", "15"), cells("awesome", "2")
    splits = ("train", "validation", "test")
    pairs = [
        (locost["arXiv"], lsg["arXiv"]),
        (locost["arXiv"], awesome["arXiv"]),
        (locost["PubMed"], lsg["PubMed"]),
        (locost["BookSum-Book"], awesome["BookSum"]),
    ]
    for one, other in pairs:
        assert [one[split] for split in splits] == [other[split] for split in splits]
    for row in locost.values():
        assert row["median"] < row["90th percentile"] < row["longest"]
        assert row["median"] < row["average"]
    assert locost["BookSum-Book"]["longest"] > 600_000  # abstract


def test_the_parts_of_govreport_add_up():
    total = cells("hepos", "2")["GovReport"]["documents"]
    rows = cells("hepos", "section 4")
    assert rows["GAO"]["documents"] + rows["CRS"]["documents"] == total
    assert sum(rows[split]["documents"] for split in ("train", "validation", "test")) == total


def test_quoted_rows_of_hepos_are_those_of_lsg():
    systems = {"Hepos, LSH (7.2K)": "Hepos-LSH (7.2K)"}
    systems |= {"Hepos, Sinkhorn (10.2K)": "Hepos-SKN (10.2K)"}
    for hepos, lsg in (("4", "5"), ("5", "4")):
        for system, quoted in systems.items():
            assert cells("hepos", hepos)[system] == cells("lsg", lsg)[quoted]


def test_rouge_is_the_best_hint_of_its_variant():
    """ROUGE-Lsum is near ROUGE-1, plain ROUGE-L of long summaries far below it."""
    for paper in published.read_published():
        rows = {}
        for score in published.published_scores(paper):
            key = (score.table, score.dataset, score.system)
            rows.setdefault(key, {})[score.metric] = score.value
        for key, row in rows.items():
            if "rouge1" in row and "rougeLsum" in row:
                assert row["rougeLsum"] / row["rouge1"] > 0.84, key
            if "rouge1" in row and "rougeL" in row:
                assert row["rougeL"] / row["rouge1"] < 0.62, key


def test_blocks_of_a_data_set_and_of_a_table():
    first, *others = published.find_published("lsg:arxiv")
    assert [first.table, *(block.table for block in others)] == ["4", "11"]
    assert first.metrics == ("rouge1", "rouge2", "rougeL", "rougeLsum")
    assert first.systems["PEGASUS (1K)"] == {"rouge1": 44.70, "rouge2": 17.27, "rougeL": 25.80}
    assert first.systems["LSG-BART (4K)"]["rougeLsum"] == 42.18
    assert published.find_published("lsg:table4") == [first]
    blocks = published.find_published("awesome:table9")
    assert [block.dataset for block in blocks] == ["qmsum", "arxiv", "booksum_fullbooks"]
    assert blocks[2].systems["LongT5"] == {"entity_graph": 1.98}
    assert "PageSum" not in blocks[2].systems
    [block] = published.find_published("lsg:mediasum")
    assert block.metrics == ("rouge1", "rouge2", "rougeL?")


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        ("lsg", "--published=lsg has no colon; give PAPER:DATASET or PAPER:tableN"),
        ("lgs:arxiv", '--published=lgs:arxiv: the paper "lgs" is unknown; did you mean "lsg"?'),
        ("lsg:arxv", '"arxv" is unknown or has no comparable scores; did you mean "arxiv"?'),
        ("lsg:table1", r'"table1" is unknown or has no comparable scores; did you mean "table1'),
        (
            "locost:arxiv",
            "no scores of table 2 are known, since the available text of the paper has the "
            "caption without the cells; choices of other papers: lsg:arxiv, lsg:pubmed, .*"
            "hepos:arxiv, awesome:govreport",
        ),
        ("locost:table3", "no scores of table 3 are known"),
        ("hepos:table7", "no scores of table 7 are known, since .* lacks the table; did you mean"),
    ],
)
def test_choices_that_do_not_exist(choice, problem):
    with pytest.raises(InputError, match=problem):
        published.find_published(choice)
