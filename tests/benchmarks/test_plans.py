import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plans(scripts):
    return scripts("plans")


def test_every_mode_of_every_config_has_a_case(plans):
    cases = plans.config_cases("h200")
    assert {case.partition(":")[0] for case in cases} == {
        path.stem for path in (ROOT / "configs").glob("[a-z]*.py") if "MODES" in path.read_text()
    }
    assert not [case for case in cases if case.endswith(":tiny")]
    assert cases["locost_c4:base"] == (
        "--config=configs/locost_c4.py:base",
        "--device=h200",
        "--programs=train",
    )


@pytest.mark.parametrize("device", ["h100", "a100-40"])
def test_every_shipped_config_has_a_published_row(plans, device):
    rows = json.loads((ROOT / "benchmarks/results/config_plans.json").read_text())["rows"]
    published = [row["case"] for row in rows if row["device"] == device]
    assert sorted(published) == sorted(plans.config_cases(device))


@pytest.mark.parametrize("data_set", ["scotus", "ecthr_a"])
def test_documents_have_the_labels_of_data_sets_that_are_not_at_hand(plans, tmp_path, data_set):
    from longsum_jax.data.labels import collect_labels
    from longsum_jax.experiment.config import run_config
    from longsum_jax.experiment.config_files import read_config

    plans.write_documents(tmp_path)
    spec = plans.config_cases("h200")[f"lsg_classify:{data_set}"][0].removeprefix("--config=")
    spec = spec.replace(f"data={data_set}", f"data={tmp_path / data_set}")
    run = run_config(read_config(str(ROOT / spec), {}))
    task = collect_labels(run.task, "train")
    assert (len(task.labels), task.multi_label) == plans.CLASSES[data_set]


def test_a_refused_plan_is_a_row(plans):
    [row] = plans.plan_rows("case", ("--config=configs/locost_c4.py", "--device=v99"))
    assert row["case"] == "case"
    assert "v99" in row["note"]


def test_a_config_that_does_not_fit_has_a_remedy(plans, monkeypatch):
    fits = {"h100:1x4"}
    tried: list[tuple[str, ...]] = []

    def plan_rows(case, arguments):
        tried.append(arguments)
        device = plans._device_of(arguments)
        row = {"case": case, "device": device, "devices_of": device, "fits": device in fits}
        trials = [{"tried": "remat=True", "total_gb": 9.0, "fits": "remat" in fits}]
        return [row | {"total_gb": 50.0}, *([] if "--tries=0" in arguments else trials)]

    monkeypatch.setattr(plans, "plan_rows", plan_rows)
    arguments = ("--config=x.py", "--device=h100", "--programs=train")
    [row] = plans.config_rows("x", arguments)
    assert (row["device"], row["fits"]) == ("h100", False)
    assert row["remedy"] == "h100:1x4, mesh.preset=fsdp"
    assert [plans._device_of(one) for one in tried] == ["h100"] * 2 + ["h100:1x2", "h100:1x4"]
    fits.add("remat")
    [row] = plans.config_rows("x", arguments)
    assert (row["remedy"], row["remedy_gb"]) == ("remat=True", 9.0)
    fits.add("h100")
    assert "remedy" not in plans.config_rows("x", arguments)[0]


def test_bytes_of_parts_are_next_to_a_count_by_hand(plans):
    def part(module, stage, num_bytes):
        seconds = {"memory": num_bytes / 1e12, "compute": 0.0, "links": 0.0}
        sizes = {"moved_bytes": num_bytes, "operations": {"bfloat16": 1e12}}
        return {"module": module, "pass": stage, "roofline_seconds": seconds, **sizes}

    parts = [
        part("encoder/layers/self_attention", "gradient", 3e9),
        part("encoder/layers/self_norm", "again", 2e9),
        part("encoder/layers/feed_forward", "forward", 1e9),
        part("", "forward", 5e9),
    ]
    program = {"program": "train", "memory_bytes": {"parameters": 80e6}, "parts": parts}
    program |= {"roofline_seconds": {"memory": 0.05, "compute": 0.01, "links": 0.0}}
    report = {"device": "v5e:16x16", "num_devices": 256, "programs": [program]}
    report |= {"config": str(ROOT / "configs/locost_c4.py"), "changes": {}}
    rows = {(row["part"], row["pass"]): row for row in plans.part_rows("c4", report)}
    gradient = rows["state-space layers", "backward"]
    assert (gradient["moved_gb"], gradient["tflop"], gradient["memory_ms"]) == (5, 2, 5)
    # 12 layers of 3 maps of 768 x 768 over one document
    forward = rows["state-space layers", "forward"]
    assert forward["model_tflop"] == 12 * 6 * 4096 * 768**2 / 1e12
    parameters = 2 * 3 * 768**2 + 4 * 768 * (8 * 256 + 2)
    assert forward["least_gb"] == pytest.approx(12 * (2 * 2 * 4096 * 768 + parameters) / 1e9)
    assert rows["embeddings, weights, optimizer", "both"]["moved_gb"] == 5
    total = rows["all", "both"]
    assert (total["moved_gb"], total["tflop"]) == (11, 4)
    assert total["utilization"] == pytest.approx(total["model_tflop"] / 197 / 0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "attention"),
    [
        ("longt5", (4, 4, 2 * 127 + 1 + 256, 256)),
        pytest.param("led", (7, 6, 512 + 2, 0), marks=pytest.mark.weekly),
        pytest.param("t5", (4, 4, 4096, 0), marks=pytest.mark.weekly),
        pytest.param("bart", (4, 4, 4096, 0), marks=pytest.mark.weekly),
    ],
)
def test_weights_counted_by_hand_are_those_of_the_model(plans, family, attention):
    import jax

    from longsum_jax.models.registry import get_family

    arguments = plans.family_step(family, 4096, "h200")
    flags = [flag.removeprefix("--config.").split("=") for flag in arguments]
    spec = arguments[0].removeprefix("--config=configs/")
    report = {"config": str(ROOT / "configs" / spec), "num_devices": 1}
    report["changes"] = {key: value for key, value in flags if "." in key[:11]}
    program = {"program": "train", "memory_bytes": {"parameters": 0}}
    sizes = plans._sizes(report, program)
    assert sizes.attention == attention
    model = plans.run_config(plans.read_config(report["config"], report["changes"])).model
    params = jax.eval_shape(get_family(family).init_params(model), jax.random.key(0))
    count = 0
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        names = {str(getattr(key, "key", "")) for key in path}
        if not names & {"scale", "bias", "embedding", "final_logits_bias"}:
            rows_read = {"source_positions": 4096, "target_positions": 512}
            [rows] = [rows_read[key] for key in names & rows_read.keys()] or [None]
            count += (leaf.size // leaf.shape[0]) * rows if rows else leaf.size
    assert sizes.weights == count


def test_reading_has_a_forward_pass_alone(plans):
    part = {"module": "decoder/layers", "pass": "forward", "moved_bytes": 1e9}
    part |= {"operations": {"bfloat16": 1e12}}
    part["roofline_seconds"] = {"memory": 1e-3, "compute": 1e-3, "links": 0.0}
    program = {"program": "read", "memory_bytes": {"arguments": 0}, "parts": [part]}
    program["roofline_seconds"] = part["roofline_seconds"]
    report = {"device": "h200", "num_devices": 1, "programs": [program]}
    report |= {"config": str(ROOT / "configs/locost_c4.py"), "changes": {}}
    rows = {(row["part"], row["pass"]): row for row in plans.part_rows("c4", report)}
    assert list(rows) == [
        ("state-space layers", "forward"),
        ("encoder feed-forward", "forward"),
        ("embeddings, weights, optimizer", "both"),
        ("all", "both"),
    ]
    forward = rows["encoder feed-forward", "forward"]
    assert forward["model_tflop"] == 12 * 6 * 4096 * 768 * 2048 / 1e12
    rest = rows["embeddings, weights, optimizer", "both"]
    assert rest["least_gb"] == pytest.approx(2 * 2 * 4096 * 768 / 1e9)
    assert (rest["moved_gb"], rows["all", "both"]["moved_gb"]) == (1, 1)
