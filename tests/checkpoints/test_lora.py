"""LoRA: updates of a linear map, its targets, and adapters in PEFT's layout.

PEFT itself is not a requirement of the tests: its formulas and names are
written out here.
"""

import dataclasses
import json
import tracemalloc

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.checkpoints.lora import (
    ADAPTER,
    Lora,
    has_matrices,
    is_adapter,
    merge_adapter,
    read_adapter,
    without_matrices,
)
from longsum_jax.checkpoints.state_dict import to_state_dict
from longsum_jax.checkpoints.tensor_files import read_safetensors, write_safetensors
from longsum_jax.errors import InputError
from longsum_jax.layers.dense import Linear, LowRank, low_rank_updates, normal
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.loading import load
from longsum_jax.training.lora import LoraOptions

T5 = get_family("t5")
CONFIG = T5.config(
    {
        "vocab_size": 11,
        "d_model": 8,
        "d_kv": 3,
        "num_heads": 2,
        "d_ff": 6,
        "num_layers": 2,
        "num_decoder_layers": 1,
    }
)
MODULES = {
    "q": [
        "decoder.block.0.layer.0.SelfAttention.q",
        "decoder.block.0.layer.1.EncDecAttention.q",
        "encoder.block.0.layer.0.SelfAttention.q",
        "encoder.block.1.layer.0.SelfAttention.q",
    ],
    "wo": [
        "decoder.block.0.layer.2.DenseReluDense.wo",
        "encoder.block.0.layer.1.DenseReluDense.wo",
        "encoder.block.1.layer.1.DenseReluDense.wo",
    ],
}


def random_tree(shapes):
    rng = np.random.default_rng(0)
    flat = {
        path: jnp.asarray(rng.normal(size=shape), jnp.float32) for path, shape in shapes.items()
    }
    return flax.traverse_util.unflatten_dict(flat, sep="/")


def lora_of(*targets, **options):
    return Lora(T5, CONFIG, LoraOptions(rank=2, alpha=3.0, targets=targets, **options))


def with_matrices(lora, params):
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    flat |= flax.traverse_util.flatten_dict(random_tree(lora.shapes), sep="/")
    return flax.traverse_util.unflatten_dict(flat, sep="/")


@pytest.mark.parametrize("inputs", [1, 2])
def test_update_of_a_linear_map(inputs):
    """Values and gradients of x W + scale (x A) B, and no gradient for W."""
    layer = Linear((4, 2, 3), ("embed", "heads", "kv"), normal(1.0), inputs=inputs)
    kernel = (4, 2, 3)
    tree = random_tree(
        {
            "kernel": kernel,
            "lora_a": (*kernel[:inputs], 2),
            "lora_b": (2, *kernel[inputs:]),
            "x": (5, *kernel[:inputs]),
        }
    )
    x = tree.pop("x")

    def expected(tree):
        update = jnp.tensordot(tree["lora_a"], tree["lora_b"], 1, precision="highest")
        return jnp.tensordot(x, tree["kernel"] + 1.5 * update, inputs, precision="highest")

    def updated(tree):
        return layer.apply({"params": tree}, x)

    with jax.default_matmul_precision("highest"), low_rank_updates(LowRank(1.5)):
        np.testing.assert_allclose(updated(tree), expected(tree), rtol=1e-5, atol=1e-5)
        result = jax.jit(jax.grad(lambda tree: jnp.sin(updated(tree)).sum()))(tree)
        twin = jax.jit(jax.grad(lambda tree: jnp.sin(expected(tree)).sum()))(tree)
        frozen = jax.grad(
            lambda tree: layer.apply({"params": tree}, x, method="without_gradients").sum()
        )(tree)
        whole = layer.apply({"params": tree}, method=lambda layer: layer.updated_kernel)
    for name, gradient in result.items():
        np.testing.assert_allclose(gradient, twin[name], rtol=1e-4, atol=1e-4)
        assert not frozen[name].any()
    np.testing.assert_allclose(
        jnp.tensordot(x, whole, inputs), expected(tree), rtol=1e-5, atol=1e-5
    )


def test_dropout_is_only_on_the_input_of_the_update():
    layer = Linear((64, 3), ("embed", "mlp"), normal(1.0))
    tree = random_tree({"kernel": (64, 3), "lora_a": (64, 2), "lora_b": (2, 3), "x": (1, 64)})
    x = jnp.tile(tree.pop("x"), (4000, 1))
    with low_rank_updates(LowRank(1.0, 0.5)):
        plain = layer.apply({"params": tree}, x)
        dropped = layer.apply({"params": tree}, x, rngs={"dropout": jax.random.key(0)})
    base = layer.apply({"params": {"kernel": tree["kernel"]}}, x)
    assert (dropped != plain).any()
    error = dropped.std(0) / np.sqrt(len(x))
    assert (jnp.abs(dropped.mean(0) - plain[0]) < 5 * error).all()
    # With B = 0 nothing is dropped.
    tree["lora_b"] = jnp.zeros((2, 3))
    with low_rank_updates(LowRank(1.0, 0.5)):
        untouched = layer.apply({"params": tree}, x, rngs={"dropout": jax.random.key(0)})
    np.testing.assert_array_equal(untouched, base)


def test_adapter_has_the_names_of_peft_and_merges_like_it(tmp_path):
    lora = lora_of("q", "wo", dropout=0.1)
    base = random_tree(T5.parameter_shapes(CONFIG))
    params = with_matrices(lora, base)
    lora.write(tmp_path / "adapter", params, "org/base")
    assert is_adapter(tmp_path / "adapter")
    adapter = read_adapter(tmp_path / "adapter")
    assert adapter.base == "org/base"
    values = {
        name: adapter.description[name]
        for name in ("r", "lora_alpha", "lora_dropout", "target_modules", "peft_type")
    }
    assert values == {
        "r": 2,
        "lora_alpha": 3.0,
        "lora_dropout": 0.1,
        "target_modules": ["q", "wo"],
        "peft_type": "LORA",
    }
    modules = sorted(MODULES["q"] + MODULES["wo"])
    assert sorted(adapter.tensors) == sorted(
        f"base_model.model.{name}.lora_{matrix}.weight" for name in modules for matrix in "AB"
    )
    # W + alpha / r B A, map by map
    weight_map = T5.weight_map(CONFIG)
    expected = to_state_dict(base, weight_map)
    for name in modules:
        a, b = (
            np.asarray(adapter.tensors[f"base_model.model.{name}.lora_{matrix}.weight"])
            for matrix in "AB"
        )
        expected[f"{name}.weight"] += 1.5 * b @ a
    for merged in (
        lora.merged(params),
        merge_adapter(base, T5, CONFIG, adapter),
    ):
        assert not has_matrices(merged)
        result = to_state_dict(merged, weight_map)
        assert result.keys() == expected.keys()
        for key, value in result.items():
            np.testing.assert_allclose(value, expected[key], rtol=1e-5, atol=1e-5)


def test_a_damaged_adapter_and_one_without_its_sums_are_refused(tmp_path):
    lora = lora_of("q")
    params = with_matrices(lora, random_tree(T5.parameter_shapes(CONFIG)))
    lora.write(tmp_path / "adapter", params, "org/base")
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(path.read_text().replace("3.0", "4.0"))
    with pytest.raises(InputError, match=r"adapter_config.json: changed since it was written"):
        read_adapter(tmp_path / "adapter")
    (tmp_path / "adapter" / "SHA256SUMS").unlink()
    with pytest.raises(InputError, match=r"SHA256SUMS is missing, .* longsum verify --unverified"):
        read_adapter(tmp_path / "adapter")


def test_new_matrices_change_nothing():
    lora = lora_of("all-linear")
    base = random_tree(T5.parameter_shapes(CONFIG))
    params = lora.added_to(base, seed=0)
    jax.tree.map(np.testing.assert_array_equal, lora.merged(params), base)
    jax.tree.map(np.testing.assert_array_equal, without_matrices(params), base)
    boxed = lora.with_matrices(T5.init_params(CONFIG))
    shapes = jax.eval_shape(boxed, jax.random.key(0))
    a = shapes["encoder"]["layers"]["self_attention"]["o"]["lora_a"]
    assert a.value.shape == (2, 2, 3, 2)
    assert a.names == ("layers", "heads", "kv", None)


@pytest.mark.parametrize(
    ("target", "written"),
    [
        ("all-linear", ["k", "o", "q", "v", "wi", "wo"]),
        (r"encoder\..*\.q", MODULES["q"][2:]),
        ("SelfAttention.q", [name for name in MODULES["q"] if "EncDec" not in name]),
    ],
)
def test_targets(target, written):
    assert lora_of(target)._target_modules() == written


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("q_proj", '"q_proj" matches no linear map of this model'),
        (r"encoder\.block\.0\..*", "selects only some of the layers of encoder/layers/"),
        ("(", "is not a regular expression"),
    ],
)
def test_wrong_targets(target, problem):
    with pytest.raises(InputError, match=problem):
        lora_of(target)


PLAIN = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
NAME = f"base_model.model.{MODULES['q'][0]}"
HEAD = "base_model.model.lm_head"


def test_layers_and_patterns_of_an_adapter(tmp_path):
    """PEFT may adapt some layers only, with a rank and a scale for each."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(1, 8)).astype("f"), rng.normal(size=(6, 1)).astype("f")
    name = MODULES["q"][3]
    write_adapter(
        tmp_path,
        {f"base_model.model.{name}.lora_A.weight": a, f"base_model.model.{name}.lora_B.weight": b},
        rank_pattern={"q": 1},
        use_rslora=True,
        alpha_pattern={"block.1.layer.0.SelfAttention.q": 7},
    )
    base = random_tree(T5.parameter_shapes(CONFIG))
    weight_map = T5.weight_map(CONFIG)
    expected = to_state_dict(base, weight_map)
    expected[f"{name}.weight"] += 7 * b @ a
    merged = merge_adapter(base, T5, CONFIG, read_adapter(tmp_path))
    assert merged is base  # in place: the old kernels are freed one by one
    for key, value in to_state_dict(merged, weight_map).items():
        np.testing.assert_allclose(value, expected[key], rtol=1e-5, atol=1e-5)


def test_maps_that_the_model_does_not_use(tmp_path):
    """The pooler of a BigBird, which classifies without it, is a linear map itself."""
    family = get_family("big_bird")
    config = dataclasses.replace(family.presets["tiny"], head="classification")
    lora = Lora(family, config, LoraOptions(rank=2, targets=("query",)))
    base = random_tree(family.parameter_shapes(config))
    params = with_matrices(lora, base)
    lora.write(tmp_path, params, "base")
    tensors = {key: np.asarray(x) for key, x in read_safetensors(tmp_path / ADAPTER).items()}
    description = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "SHA256SUMS").unlink()
    pooler = "base_model.model.bert.pooler"
    tensors |= {f"{pooler}.lora_{x}.weight": np.ones((2, 2), "f") for x in "AB"}
    write_adapter(tmp_path, tensors, **description)
    merged = merge_adapter(base, family, config, read_adapter(tmp_path))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
        merged,
        lora.merged(params),
    )


def test_merging_needs_little_more_memory_than_the_base(tmp_path, monkeypatch):
    """Kernels on the host are changed in place, a few rows at a time."""
    monkeypatch.setattr("longsum_jax.checkpoints.lora._PIECE", 2**12)
    config = CONFIG.replace(d_model=256, d_ff=512)
    shapes = T5.parameter_shapes(config)
    base = flax.traverse_util.unflatten_dict(
        {path: np.ones(shape, np.float32) for path, shape in shapes.items()}, sep="/"
    )
    module = base["encoder"]["layers"]["feed_forward"]["wo"]
    kernel = module["kernel"]
    a, b = np.ones((1, 512), np.float32), np.full((256, 1), 2, np.float32)
    name = f"base_model.model.{MODULES['wo'][2]}"
    write_adapter(tmp_path, {f"{name}.lora_A.weight": a, f"{name}.lora_B.weight": b}, r=1)
    adapter = read_adapter(tmp_path)
    tracemalloc.start()
    merge_adapter(base, T5, config, adapter)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < kernel.nbytes / 4
    scale = adapter.scale(MODULES["wo"][2])
    np.testing.assert_array_equal(kernel[0], np.ones((512, 256)))  # the first layer
    np.testing.assert_array_equal(kernel[1], np.full((512, 256), 1 + 2 * scale))
    np.testing.assert_array_equal(module["kernel"], kernel)


@pytest.mark.parametrize("family", ["modernbert", pytest.param("t5gemma2", marks=pytest.mark.slow)])
def test_names_of_modules_that_differ_from_names_in_files(family, tmp_path):
    """ModernBERT stores q, k and v as one map, and the class of T5Gemma 2 has other names than its
    files, and images."""
    family = get_family(family)
    config = family.presets["tiny"]
    lora = Lora(family, config, LoraOptions(rank=2, alpha=3.0))
    base = random_tree(family.parameter_shapes(config))
    params = with_matrices(lora, base)
    lora.write(tmp_path, params, "base")
    tensors = {key: np.asarray(x) for key, x in read_safetensors(tmp_path / ADAPTER).items()}
    if family.name == "modernbert":
        key = "base_model.model.model.layers.1.attn.Wqkv"
        b = tensors[f"{key}.lora_B.weight"]
        assert tensors[f"{key}.lora_A.weight"].shape == (6, 64)
        assert b.shape == (192, 6)
        is_block = np.kron(np.eye(3), np.ones((64, 2))) == 1
        assert not b[~is_block].any()
        assert b[is_block].all()
    else:
        key = "base_model.model.model.encoder.text_model.layers.1.self_attn.q_proj"
        assert f"{key}.lora_A.weight" in tensors
        image = key.replace("text_model", "vision_tower.encoder")
        tensors |= {f"{image}.lora_{x}.weight": np.ones((2, 2), "f") for x in "AB"}
        description = json.loads((tmp_path / "adapter_config.json").read_text())
        (tmp_path / "SHA256SUMS").unlink()
        write_adapter(tmp_path, tensors, **description)
    merged = merge_adapter(base, family, config, read_adapter(tmp_path))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
        merged,
        lora.merged(params),
    )


def write_adapter(directory, tensors, **values):
    (directory / "adapter_config.json").write_text(json.dumps(PLAIN | values))
    write_safetensors(directory / "adapter_model.safetensors", tensors)


@pytest.mark.parametrize(
    ("named", "base", "problem"),
    [
        (None, None, "names no base model; give one"),
        (".", "", "is an adapter as well; merge that one first"),
        ("no/where/at/all", None, "no/where/at/all: no such directory"),
    ],
)
def test_bases_that_cannot_be_loaded(tmp_path, monkeypatch, named, base, problem):
    monkeypatch.chdir(tmp_path)
    write_adapter(tmp_path, {}, base_model_name_or_path=named)
    with pytest.raises(InputError, match=problem):
        load(tmp_path, base=base)
    (tmp_path / "config.json").write_text("{}")  # of the base model
    assert is_adapter(tmp_path)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(InputError, match="base=x is for adapters, but"):
        load(tmp_path, base="x")


@pytest.mark.parametrize(
    ("values", "tensors", "problem"),
    [
        ({"peft_type": "IA3"}, {}, "only LORA is supported"),
        ({"use_dora": True}, {}, "use_dora=True is not supported"),
        ({"init_lora_weights": "pissa"}, {}, "init_lora_weights='pissa' is not supported"),
        ({"alora_invocation_tokens": [5]}, {}, "alora_invocation_tokens=.5. is not supported"),
        ({"r": 0}, {}, "r is 0; give a number above 0"),
        ({}, {}, "only one of lora_A and lora_B for every map"),
        ({}, {f"{NAME}.lora_A.weight": (2, 8)}, "only one of lora_A and lora_B"),
        ({}, {"base_model.model.lm_head.bias": (3,)}, "is not a matrix of LoRA"),
        (
            {},
            {f"{NAME}.lora_A.weight": (2, 9), f"{NAME}.lora_B.weight": (6, 2)},
            r"is for another model: matrices \(6, 2\) and \(2, 9\) for a weight \(6, 8\)",
        ),
        (
            {},
            {f"{NAME}_proj.lora_A.weight": (2, 8), f"{NAME}_proj.lora_B.weight": (6, 2)},
            "not for this t5 model, which has no linear map .*q_proj",
        ),
        (
            {},
            {f"{HEAD}.lora_A.weight": (2, 8), f"{HEAD}.lora_B.weight": (11, 2)},
            "adapts lm_head, a table of embeddings or output weights, which is not supported",
        ),
    ],
)
def test_adapters_that_cannot_be_merged(tmp_path, values, tensors, problem):
    arrays = {name: np.ones(shape, np.float32) for name, shape in tensors.items()}
    write_adapter(tmp_path, arrays, **values)
    base = random_tree(T5.parameter_shapes(CONFIG))
    with pytest.raises(InputError, match=problem):
        merge_adapter(base, T5, CONFIG, read_adapter(tmp_path))
