from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

WORKER = Path(__file__).with_name("sharding_worker.py")


@pytest.fixture(scope="module")
def report(run_worker):
    """What the worker found on 8 virtual devices."""
    return run_worker(WORKER)


@pytest.fixture(scope="module")
def weekly_report(run_worker):
    return run_worker(WORKER, "weekly")


@pytest.fixture
def finding(request):
    """Returns a result by its name, from the daily or the weekly report."""
    is_weekly = request.node.get_closest_marker("weekly") is not None
    return request.getfixturevalue("weekly_report" if is_weekly else "report").__getitem__


def names(daily, weekly):
    return [*daily, *(pytest.param(name, marks=pytest.mark.weekly) for name in weekly)]


@pytest.mark.parametrize("layout", ["batch", "channels", "length"])
def test_sharded_operation_equals_the_unsharded_one(report, layout):
    result = report[f"operation over {layout}"]
    assert result["difference"] < 1e-6
    assert result["gradient_difference"] < 1e-5


@pytest.mark.parametrize("layout", ["batch", "channels"])
def test_operation_gathers_nothing(report, layout):
    result = report[f"operation over {layout}"]
    assert not any(result["forward"].values())
    # Parameter gradients are summed over rows; nothing else moves between devices.
    assert {name for name, count in result["backward"].items() if count} == {"all-reduce"}


def test_a_sharded_length_is_swapped_for_channels_and_back(report):
    result = report["operation over length"]
    assert result["forward"] == dict.fromkeys(result["forward"], 0) | {"all-to-all": 2}
    # The input is read again and so is the cotangent; both go one way, the input's gradient the
    # other.
    assert result["backward"]["all-to-all"] <= 4
    assert not result["backward"]["all-gather"] + result["backward"]["collective-permute"]


def test_parameters_born_on_a_mesh_are_those_of_one_device(report):
    assert report["creation"] < 1e-6


# LSG pads its text to whole blocks on every device, and its global tokens are shared out.
MODELS = names(
    ["model fsdp+tensor", *(f"{name}model fsdp+sequence" for name in ("", "lsg ", "pages "))],
    [
        *("model replicated", "merged model fsdp+sequence"),
        *(f"pages model {name}" for name in ("replicated", "fsdp", "fsdp+tensor")),
    ],
)


@pytest.mark.parametrize("model", MODELS)
def test_whole_model_on_a_mesh_equals_one_device(finding, model):
    result = finding(model)
    assert result["loss_difference"] < 1e-5
    assert result["gradient_difference"] < 1e-4


@pytest.mark.parametrize("name", names(["lsg"], ["block_staggered"]))
def test_memories_store_the_text_alone(finding, name):
    """Not the global tokens that stand in front of every shard."""
    assert finding(f"memory of {name}") < 1e-5


BY_HEADS = ["bigbird", "window+stride", "adaptive_span+random", "sinkhorn"]


@pytest.mark.parametrize("name", names(["full", "lsh"], BY_HEADS))
def test_attention_to_keys_anywhere_swaps_length_for_heads(finding, name):
    result = finding(f"{name} by heads")
    assert result["difference"] < 1e-5
    assert result["gradient_difference"] < 1e-4
    # Queries, keys, values and the result; gradients go the same ways back. Vectors of LSH are
    # queries and keys in one.
    counts = {"all-gather": 0, "collective-permute": 0, "all-to-all": 6 if name == "lsh" else 8}
    assert counts.items() <= result["collectives"].items()


@pytest.mark.parametrize("attention", ["full, 37 tokens", "longformer, 36 tokens"])
def test_texts_are_padded_to_equal_shards(report, attention):
    result = report[attention]
    assert result["difference"] < 1e-5
    assert result["gradient_difference"] < 1e-4


def test_extra_keys_go_with_their_heads(report):
    assert report["extra keys"]["difference"] < 1e-5


def test_kernels_compute_the_heads_of_a_device(report):
    assert report["fused"]["splash"]
    assert report["fused"]["difference"] < 1e-5


@pytest.mark.parametrize("name", ["fused source", "fused source and target"])
def test_kernels_attend_to_the_part_of_a_source_that_a_device_has(report, name):
    result = report[name]
    assert result["kernel"]
    assert max(result["differences"]) < 1e-5


@pytest.mark.parametrize("mesh", ["fsdp+tensor", "sequence"])
def test_kernels_attend_to_tokens_sorted_by_hash(report, mesh):
    result = report[f"fused lsh, {mesh}"]
    assert result["kernel"]
    assert result["difference"] < 1e-5


def test_heads_that_devices_do_not_divide_are_left_to_the_partitioner(report):
    result = report["full, 2 heads"]
    assert result["difference"] < 1e-5
    assert result["gradient_difference"] < 1e-4
    assert not result["collectives"]["all-to-all"]


def test_adafactor_on_a_mesh_equals_one_device(report):
    assert report["adafactor"] < 1e-4


@pytest.mark.parametrize("kept", names(["from keys", "from states"], ["by one attention"]))
def test_decoding_leaves_the_source_where_it_is(finding, kept):
    result = finding(f"decoding {kept}")
    assert result["difference"] < 1e-5
    assert result["gathered"] == 0
    assert result["share"] == 1 / 4


@pytest.mark.parametrize(("count", "is_gathered"), [(8, False), (24, True)])
def test_a_table_with_fewer_rows_than_ids_is_gathered(report, count, is_gathered):
    """An all-to-all over many devices takes long to compile."""
    result = report[f"look up {count} rows"]
    assert result["difference"] < 1e-6
    assert bool(result["collectives"]["all-to-all"]) != is_gathered


def test_memory_of_a_device_falls_as_there_are_more(report):
    """By 8; a tenth on top is for halos and for what does not grow with the length."""
    one, eight = report["memory"]
    assert one / 8 * 0.9 < eight < one / 8 * 1.1
