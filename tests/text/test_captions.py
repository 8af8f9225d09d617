import pytest

from longsum_jax.text.captions import begins_caption


@pytest.mark.parametrize(
    "text",
    [
        "Figure 1: Overview of the bridge.",
        "FIGURE 1: the bridge",
        "Table 2. Costs of the bridge",
        "Table 2.",
        "Fig. 3 Overview of the bridge",
        "Fig. 3a - Overview",
        "Figure 2",
        "Fig.2: Costs",
        "TABLE II. COSTS",
        "Table A.2: Costs",
        "Figure S1 | Costs",
        "Supplementary Figure 4. Costs",
        "*Figure 5.* Costs",
        "**Table 5:** Costs",
        "Abbildung 3: Die Brücke",
        "Tableau 1 : Les coûts",
        "Map 2. The river",
        "Algorithm 1: Training",
    ],
)
def test_captions(text):
    assert begins_caption(text)


@pytest.mark.parametrize(
    "text",
    [
        "Figure 1 shows that the bridge is old.",
        "Table 2 lists its costs.",
        "Table 2, which lists its costs, is long.",
        "Fig. 3 (left) is older.",
        "Figure 4a and Table 2: both are old.",
        "Tabelle 2 zeigt die Kosten.",
        "Figures 1 and 2 show it.",
        "Table manners: a guide.",
        "Figure 2.3 shows it",
        "Map 2 Rivers by hand.",
        "In Table 2. Costs",
        "TABLES",
        "Figure it out: Go there.",
        "Table 1 \u2013 the longest \u2013 is at the end.",
        "",
    ],
)
def test_no_captions(text):
    assert not begins_caption(text)
