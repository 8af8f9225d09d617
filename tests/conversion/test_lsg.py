"""Conversion to LSG attention: against the published script, saved and loaded again, and what it
refuses."""

import json
from pathlib import Path

import flax.traverse_util
import jax
import numpy as np
import pytest

import longsum_jax
from longsum_jax.checkpoints.state_dict import to_state_dict
from longsum_jax.commands import convert
from longsum_jax.conversion.lsg import to_lsg, with_lsg_options
from longsum_jax.errors import InputError
from longsum_jax.inference.lsg_check import check_lsg
from longsum_jax.layers.attention.options import LsgOptions
from longsum_jax.models.registry import family_of, get_family
from longsum_jax.summarization.model import Model

GOLDEN = Path(__file__).parents[1] / "golden" / "lsg" / "conversion.npz"
BERT = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 16,
}
BART = {
    "vocab_size": 100,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 16,
}
BART |= {"decoder_ffn_dim": 16, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
# Name in the golden file -> family, config, our parameters by their names there, first and mask
# token.
PUBLISHED = {
    "bert512": (
        "bert",
        BERT,
        {
            "position_embeddings": "bert.embeddings.position_embeddings.weight",
            "word_embeddings": "bert.embeddings.word_embeddings.weight",
            "token_type_embeddings": "bert.embeddings.token_type_embeddings.weight",
        },
        (2, 4),
    ),
    "bart1024": (
        "bart",
        BART,
        {
            "source_positions": "model.encoder.embed_positions.weight",
            "target_positions": "model.decoder.embed_positions.weight",
            "shared": "model.shared.weight",
        },
        (0, 99),
    ),
}
VARIANTS = {
    "default": {},
    "stride128": {"global_positional_stride": 128},
    "notok": {"use_token_ids": False},
}


def globals_of(params):
    return np.asarray(params["encoder"]["attention"]["global_embeddings"])


def make(name, values, seed=0):
    """Family, config and random parameters, numpy arrays."""
    family, rng = get_family(name), np.random.default_rng(seed)
    config = family.config(values)
    shapes = family.parameter_shapes(config)
    flat = {path: rng.normal(size=shape).astype(np.float32) for path, shape in shapes.items()}
    return family, config, flax.traverse_util.unflatten_dict(flat, sep="/")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_as_published(name, variant):
    """Tables of positions and global tokens, to the last bit, under their published names."""
    family_name, values, paths, (first_id, mask_id) = PUBLISHED[name]
    family, config, params = make(family_name, values)
    with np.load(GOLDEN) as file:
        params |= {path: file[f"{name}/orig/{key}"] for path, key in paths.items()}
        expected = {
            key.split("/")[2]: file[key]
            for key in file
            if key.startswith((f"{name}/lsg/", f"{name}/lsg_{variant}/"))
        }
    choices = VARIANTS[variant] | {"max_source_length": 1536}
    longer, converted = to_lsg(
        family, config, params, first_id=first_id, mask_id=mask_id, **choices
    )
    result = to_state_dict(converted, family.weight_map(longer))
    assert len(expected) == 1 + sum("position" in path for path in paths)
    for key, value in expected.items():
        np.testing.assert_array_equal(result[key], value, err_msg=key)
    assert longer.attention == LsgOptions(block_size=128, num_global_tokens=1)


def test_other_parameters_stay():
    family, config, params = make("bert", BERT)
    _, converted = to_lsg(family, config, params, first_id=2, mask_id=4, max_source_length=1024)
    for key in ("word_embeddings", "embedding_norm", "head"):
        jax.tree.map(np.testing.assert_array_equal, converted[key], params[key])
    jax.tree.map(
        np.testing.assert_array_equal, converted["encoder"]["layers"], params["encoder"]["layers"]
    )


def test_global_tokens_of_roberta_have_its_token_type():
    """They stand in for tokens, which have it; the published script leaves it out."""
    family, config, params = make("roberta", BERT | {"max_position_embeddings": 514})
    ids = {"first_id": 0, "mask_id": 4}
    rows, published = (
        globals_of(to_lsg(family, config, params, **ids, reference_quirks=q)[1])
        for q in (False, True)
    )
    positions, words, types = (
        params[f"{key}_embeddings"] for key in ("position", "word", "token_type")
    )
    for m in (0, 1, 8, 9, 511):
        expected = positions[2 + 64 * (m % 8) + m // 8] + words[4 if m else 0]
        np.testing.assert_allclose(published[m], expected, atol=1e-6)
        np.testing.assert_allclose(rows[m], expected + types[0], atol=1e-6)


def test_scaled_embeddings_are_scaled():
    """PEGASUS: sinusoids of its positions, and words as its encoder reads them."""
    family, config, params = make("pegasus", BART | {"max_position_embeddings": 1024})
    rows = globals_of(to_lsg(family, config, params, first_id=1, mask_id=3)[1])
    angle = 64 * 10000.0 ** (-2 * np.arange(16) / 32)  # token 1 has position 64
    expected = np.concatenate([np.sin(angle), np.cos(angle)]) + params["shared"][3] * np.sqrt(32)
    np.testing.assert_allclose(rows[1], expected, atol=1e-5)
    np.testing.assert_allclose(rows[0, 16:], 1 + params["shared"][1, 16:] * np.sqrt(32), atol=1e-5)


def test_without_positions_or_a_mask_token():
    """T5 has neither: the first token is `</s>`, the others are drawn like embeddings, and
    differ."""
    sizes = {
        "vocab_size": 400,
        "d_model": 16,
        "d_kv": 4,
        "d_ff": 8,
        "num_layers": 1,
        "num_decoder_layers": 1,
        "num_heads": 4,
    }
    family, config, params = make("t5", sizes)
    longer, converted = to_lsg(family, config, params, first_id=None, mask_id=None)
    rows = globals_of(converted)
    np.testing.assert_array_equal(rows[0], params["shared"][1])
    assert len(np.unique(rows, axis=0)) == 512
    assert np.abs(rows.std(0) / params["shared"].std(0) - 1).max() < 0.2
    assert longer.max_source_length is None


def test_drawn_globals():
    """All but the first come from a normal distribution with the mean and the covariance of the
    embeddings."""
    family, config, params = make("bert", BERT)
    rng = np.random.default_rng(0)
    params["word_embeddings"] = (rng.normal(size=(100, 2)) @ rng.normal(size=(2, 32)) + 3).astype(
        np.float32
    )
    plain, drawn = (
        globals_of(
            to_lsg(family, config, params, first_id=2, mask_id=4, random_global_init=random)[1]
        )
        for random in (False, True)
    )
    np.testing.assert_array_equal(drawn[0], plain[0])
    words = drawn[1:] - plain[1:] + params["word_embeddings"][4]
    expected = np.cov(params["word_embeddings"], rowvar=False)
    assert np.abs(np.cov(words, rowvar=False) - expected).max() < 0.2 * np.abs(expected).max()
    assert np.abs(words.mean(0) - params["word_embeddings"].mean(0)).max() < 0.5
    assert np.linalg.matrix_rank(words - words.mean(0), tol=1e-2) == 2


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [(64, {8: 1, 16: 2, 504: 63}), (1536, {1: 48, 31: 1488, 32: 3, 33: 51, 511: 1533})],
)
def test_tables_of_other_sizes(rows, chosen):
    """Fewer positions than global tokens are continued at random; a stride that does not divide 512
    is lowered."""
    family, config, params = make("bert", BERT | {"max_position_embeddings": rows})
    _, converted = to_lsg(family, config, params, first_id=2, mask_id=4, block_size=32)
    result = globals_of(converted)
    positions, words, types = (
        params[f"{key}_embeddings"] for key in ("position", "word", "token_type")
    )
    np.testing.assert_allclose(result[0], positions[0] + words[2] + types[0], atol=1e-6)
    for token, position in chosen.items():
        np.testing.assert_allclose(
            result[token], positions[position] + words[4] + types[0], atol=1e-6
        )
    assert len(np.unique(result, axis=0)) == 512


def test_a_stride_of_all_positions_keeps_their_order():
    family, config, params = make("bert", BERT | {"max_position_embeddings": 512})
    choices = {"first_id": 2, "mask_id": 4, "block_size": 32, "global_positional_stride": 512}
    _, converted = to_lsg(family, config, params, **choices)
    positions, words, types = (
        params[f"{key}_embeddings"] for key in ("position", "word", "token_type")
    )
    expected = positions[1:] + words[4] + types[0]
    np.testing.assert_allclose(globals_of(converted)[1:], expected, atol=1e-6)


# Family -> the published code's module and class names.
NAMES = {
    "bert": "bert.LSGBertForMaskedLM",
    "xlm-roberta": "xlm_roberta.LSGXLMRobertaForMaskedLM",
    "camembert": "camembert.LSGCamembertForMaskedLM",
    "electra": "electra.LSGElectraForMaskedLM",
    "albert": "albert.LSGAlbertForMaskedLM",
    "distilbert": "distilbert.LSGDistilBertForMaskedLM",
    "mbart": "mbart.LSGMBartForConditionalGeneration",
    "pegasus": "pegasus.LSGPegasusForConditionalGeneration",
}


@pytest.mark.parametrize("name", NAMES)
def test_published_class_names(name):
    family = get_family(name)
    tiny = family.presets["tiny"].replace(encoder_attention="lsg")
    written = family.config_json(tiny)
    task = "AutoModelForSeq2SeqLM" if family.is_encoder_decoder else "AutoModelForMaskedLM"
    assert written["auto_map"][task] == f"modeling_lsg_{NAMES[name]}"
    assert written["architectures"] == [NAMES[name].partition(".")[2]]
    assert family_of(written | {"model_type": None}, "config.json") is family
    assert family.config_of_json(written, "config.json") == tiny


def test_global_tokens_have_the_size_of_the_embeddings():
    """ELECTRA's, with the token type, as the published script makes them."""
    family, config, params = make("electra", BERT | {"embedding_size": 24})
    rows = globals_of(to_lsg(family, config, params, first_id=2, mask_id=4)[1])
    names = ("position", "word", "token_type")
    positions, words, types = (params[f"{name}_embeddings"] for name in names)
    assert rows.shape == (512, 24)
    expected = positions[64] + words[4] + types[0]
    np.testing.assert_allclose(rows[1], expected, atol=1e-6)


# From one LSG model to another


@pytest.fixture(scope="module")
def lsg_bert():
    family, config, params = make("bert", BERT)
    return family, *to_lsg(family, config, params, first_id=2, mask_id=4, max_source_length=1024)


def test_resized_it_keeps_its_global_tokens(lsg_bert):
    model = Model(*lsg_bert).extended(4096)
    np.testing.assert_array_equal(globals_of(model.params), globals_of(lsg_bert[2]))
    table = lsg_bert[2]["position_embeddings"]
    np.testing.assert_array_equal(model.params["position_embeddings"], np.tile(table, (4, 1)))
    assert (model.config.max_source_length, model.config.encoder_attention) == (4096, "lsg")


def test_more_global_tokens_are_there_already(lsg_bert):
    model = Model(*lsg_bert).with_lsg_options(num_global_tokens=64, sparsity_type="stride")
    assert (model.config.attention.num_global_tokens, model.config.attention.sparsity_type) == (
        64,
        "stride",
    )
    assert model.params is lsg_bert[2]


def test_the_first_global_token_may_be_kept(lsg_bert):
    family, config, params = lsg_bert
    trained = jax.tree.map(lambda x: x, params)
    trained["encoder"]["attention"]["global_embeddings"] = globals_of(params) + 1.0
    choices = {"first_id": 2, "mask_id": 4, "keep_first_global_token": True}
    longer, rebuilt = to_lsg(family, config, trained, **choices, max_source_length=2048)
    np.testing.assert_array_equal(globals_of(rebuilt)[0], globals_of(trained)[0])
    assert np.abs(globals_of(rebuilt)[1:] - globals_of(trained)[1:]).max() > 0.5
    assert longer.attention == config.attention


# The command


@pytest.fixture(scope="module")
def bert_directory(tmp_path_factory, topics):
    """A BERT with a tokenizer, as transformers writes it."""
    words = sorted(
        {word for text in topics[:3] for word in text.lower().split() if word.isalpha()}
    )[:80]
    directory = tmp_path_factory.mktemp("bert") / "model"
    family, config, params = make("bert", BERT)
    Model(family, config, params).save(directory)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (directory / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    entries = {"tokenizer_class": "BertTokenizer", "model_max_length": 512}
    (directory / "tokenizer_config.json").write_text(json.dumps(entries))
    return directory


OPTIONS = [
    "--block_size=64",
    "--sparse_block_size=32",
    "--sparsity_type=stride",
    "--sparsity_factor=4",
]


def test_command(bert_directory, tmp_path, capsys):
    """Converted, lengthened and loaded again: published names, published entries, and the
    tokenizer's limit."""
    first, second = tmp_path / "4096", tmp_path / "16384"
    flags = [
        "--encoder_attention=lsg",
        "--max_source_length=1024",
        *OPTIONS,
        "--mask_first_token=true",
    ]
    convert.main([str(bert_directory), str(first), *flags])
    convert.main([str(first), str(second), "--max_source_length=2048", "--num_global_tokens=64"])
    raw = json.loads((second / "config.json").read_text())
    assert raw["architectures"] == ["LSGBertForMaskedLM"]
    assert raw["auto_map"]["AutoModelForMaskedLM"] == "modeling_lsg_bert.LSGBertForMaskedLM"
    assert (raw["model_type"], raw["base_model_prefix"], raw["num_global_tokens"]) == (
        "bert",
        "lsg",
        64,
    )
    assert (raw["sparsity_type"], raw["mask_first_token"], raw["max_position_embeddings"]) == (
        "stride",
        True,
        2048,
    )
    assert json.loads((second / "tokenizer_config.json").read_text())["model_max_length"] == 2048
    model = longsum_jax.load(second)
    assert (model.config.encoder_attention, model.config.attention.block_size) == ("lsg", 64)
    original = longsum_jax.load(bert_directory)
    expected = to_lsg(
        original.family, original.config, original.params, first_id=2, mask_id=4, block_size=64
    )[1]
    np.testing.assert_array_equal(globals_of(model.params), globals_of(expected))
    ids = np.random.default_rng(0).integers(5, 80, (1, 100))
    assert model.encode(ids).shape == (1, 100, 32)


def test_command_tests_what_it_wrote(bert_directory, tmp_path, capsys):
    """Whatever the options, the result equals the original where both must agree."""
    convert.main(
        [
            str(bert_directory),
            str(tmp_path / "lsg"),
            "--encoder_attention=lsg",
            "--max_source_length=640",
            "--architecture=BertForMaskedLM",
            "--num_global_tokens=4",
            "--run_test",
            *OPTIONS,
        ]
    )
    out = capsys.readouterr().out
    assert "run_test: outputs for 639 random tokens are finite" in out
    assert "it equals the original on 128 tokens (largest difference" in out


def test_a_check_that_fails(bert_directory):
    """Models whose global tokens or layers are not those of the original."""
    original = longsum_jax.load(bert_directory)
    choices = {"first_id": original.first_id, "use_token_ids": True, "seed": 0}
    wrong = original.to_lsg(block_size=16, sparse_block_size=16, use_token_ids=False)
    with pytest.raises(InputError, match="outputs for 32 tokens differ from the original's by"):
        check_lsg(original, wrong, **choices)
    assert check_lsg(original, wrong, **choices | {"use_token_ids": False}).equal_length == 0
    wrong.params["position_embeddings"] = np.full((512, 32), np.nan)
    with pytest.raises(InputError, match="outputs for 511 tokens are not finite"):
        check_lsg(original, wrong, **choices)


@pytest.mark.slow
def test_where_texts_begin_with_no_token_the_original_need_not_agree():
    """No global token is made of the first token of a text, which may be any."""
    original = Model(*make("bert", BERT))
    converted = original.to_lsg(first_id=None, mask_id=4, block_size=16, sparse_block_size=16)
    result = check_lsg(original, converted, first_id=None, use_token_ids=True, seed=0)
    assert (result.length, result.equal_length) == (511, 0)


def test_a_seed_chooses_what_is_drawn():
    family, config, params = make("bert", BERT)
    ids = {"first_id": 2, "mask_id": 4, "random_global_init": True}
    same, again, other = (
        globals_of(to_lsg(family, config, params, **ids, seed=seed)[1]) for seed in (123, 123, 7)
    )
    np.testing.assert_array_equal(same, again)
    np.testing.assert_array_equal(same[0], other[0])
    assert np.abs(same - other)[1:].max(-1).min() > 0.1


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("RobertaForMaskedLM", '"RobertaForMaskedLM" is not an architecture of .*; try BertFor'),
        ("BertForTokenClassification", r"missing: classifier\.weight, classifier\.bias"),
        ("BertForNothing", "has a head that is not supported"),
    ],
)
def test_architectures_that_do_not_fit(name, problem, bert_directory):
    with pytest.raises(InputError, match=problem):
        longsum_jax.load(bert_directory, architecture=name)
    assert longsum_jax.load(bert_directory, architecture="BertModel").config.head == "none"


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            ["--max_source_length=1000"],
            "max_source_length=1000 is not a multiple of block_size 128; the nearest that fit are "
            "896 and 1024",
        ),
        (
            ["--sparsity_factor=3"],
            "sparsity_factor 3 does not divide block_size 128; the nearest that does is",
        ),
        (["--sparsity_type=largest"], 'sparsity_type: "largest" is not allowed'),
        (
            ["--num_global_tokens=600"],
            "num_global_tokens is 600, but the table of LSG's global tokens has 512 rows",
        ),
        (["--global_positional_stride=0"], "global_positional_stride=0 must be at least 1"),
        (
            ["--keep_first_global_token=true"],
            "keep_first_global_token is for models with LSG attention",
        ),
        (
            ["--max_source_length=256"],
            "max_source_length=256: the model reads 512 tokens already; give more",
        ),
    ],
)
def test_what_the_command_refuses(flags, problem, bert_directory, tmp_path):
    with pytest.raises(InputError, match=problem):
        convert.main(
            [str(bert_directory), str(tmp_path / "out"), "--encoder_attention=lsg", *flags]
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            ["--block_size=64"],
            "block_size is an option of LSG attention, but the model has full attention; add",
        ),
        (
            ["--global_positional_stride=32"],
            "--global_positional_stride=32 needs --encoder_attention=lsg",
        ),
        (["--random_global_init=true"], "--random_global_init=True needs --encoder_attention=lsg"),
        (["--use_token_ids=false"], "--use_token_ids=False needs --encoder_attention=lsg"),
        (["--run_test"], "--run_test needs --encoder_attention=lsg"),
    ],
)
def test_flags_that_need_the_attention(flags, problem, bert_directory, tmp_path):
    with pytest.raises(InputError, match=problem):
        convert.main([str(bert_directory), str(tmp_path / "out"), *flags])


def test_converting_twice_is_refused(lsg_bert):
    with pytest.raises(
        InputError, match="has LSG attention already; leave encoder_attention=lsg out"
    ):
        to_lsg(*lsg_bert, first_id=2, mask_id=4)


def test_lengths_of_lsg_models_are_whole_blocks(lsg_bert):
    with pytest.raises(
        InputError,
        match=r"max_source_length=4000 is not a multiple of block_size 128; .* 3968 and 4096",
    ):
        Model(*lsg_bert).extended(4000)
    with pytest.raises(
        InputError, match=r"max_source_length=1024 is not a multiple of block_size 96; .* 1056"
    ):
        with_lsg_options(lsg_bert[1], block_size=96)


@pytest.mark.parametrize(("name", "kind"), [("locost", "s4d"), ("longt5", "local")])
def test_models_without_such_an_attention(name, kind):
    family = get_family(name)
    with pytest.raises(InputError, match=f"{name} has {kind} attention, which LSG cannot replace"):
        to_lsg(family, family.presets["tiny"], {}, first_id=1, mask_id=None)


def test_without_a_tokenizer_the_tokens_are_not_known():
    family, config, params = make("bert", BERT)
    with pytest.raises(InputError, match="holds no tokenizer"):
        Model(family, config, params).to_lsg(1024)
    assert (
        Model(family, config, params).to_lsg(1024, first_id=2, mask_id=4).config.max_source_length
        == 1024
    )
