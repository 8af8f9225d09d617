"""Encoders and training steps beside their peers, decoding, and the models that they measure."""

import functools
import math
import sys
import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

TINY = "--size=tiny", "--repeats=1"


@pytest.fixture(scope="module", autouse=True)
def peak_is_measured_once(scripts):
    sweep = scripts("sweep")
    sweep.peak_flops = functools.cache(sweep.peak_flops)


def by(report):
    return {(row["length"], row["by"]): row for row in report["rows"]}


@pytest.mark.weekly  # layers have tests of their own; this is a script of measurements
def test_encoders_beside_their_peers(report):
    result = report("encode", *TINY, "--models=locost", "--lengths=64")
    rows = by(result)
    assert list(rows) == [
        (64, "longsum_jax"),
        (64, "longsum_jax, Model.encode"),
        (64, "PyTorch published"),
        (64, "PyTorch published_plain"),
        (64, "PyTorch longt5"),
    ]
    ours, published, longt5 = (
        rows[64, name] for name in ("longsum_jax", "PyTorch published", "PyTorch longt5")
    )
    assert published["difference"] < 1e-4
    assert "difference" not in longt5
    assert longt5["ratio"] == pytest.approx(longt5["seconds"] / ours["seconds"])
    assert (
        longt5["public_ratio"]
        == longt5["seconds"] / rows[64, "longsum_jax, Model.encode"]["seconds"]
    )
    assert longt5["memory_share"] == pytest.approx(ours["gib"] / longt5["gib"])
    assert 0 < ours["work_gib"] < ours["gib"]
    work = [row["roofline"] * row["seconds"] * result["peak_flops"] for row in (ours, longt5)]
    assert work[0] == pytest.approx(work[1])  # of our model, whoever is measured


@pytest.mark.weekly  # layers have tests of their own; this is a script of measurements
def test_training_steps_start_from_the_same_loss(report):
    rows = by(report("train_step", *TINY, "--models=bart", "--lengths=64", "--target=8"))
    assert rows[64, "PyTorch bart"]["difference"] < 1e-5
    assert rows[64, "longsum_jax"]["tokens_per_second"] == pytest.approx(
        72 / rows[64, "longsum_jax"]["seconds"]
    )
    # Weights, gradients and two moments at least.
    assert min(row["gib"] for row in rows.values()) > 4 * 4 * 50_000 / 2**30


@pytest.mark.weekly
def test_passes_of_the_published_protocol(report):
    """One report holds all programs; ours and the peer agree in loss and logits."""
    flags = (*TINY, "--models=bart", "--lengths=64", "--target=8")
    report("train_step", *flags, "--program=step", "--compiled_only")
    report("train_step", *flags, "--program=gradient")
    rows = report("train_step", *flags, "--program=forward")["rows"]
    held = {(row.get("program"), row["by"]): row["gib"] for row in rows}
    for by in ("longsum_jax", "PyTorch bart"):
        assert held["forward", by] < held["gradient", by]
    # A step also holds two moments of every parameter.
    assert held["gradient", "longsum_jax"] < held[None, "longsum_jax"]
    differences = [row["difference"] for row in rows if "difference" in row]
    assert len(differences) == 2
    assert max(differences) < 1e-5
    # Started again, nothing is measured.
    assert report("train_step", *flags, "--program=gradient")["rows"] == rows


@pytest.mark.parametrize(
    ("model", "length", "row", "note"),
    [
        ("led", 2048, {"gib": 3.0}, None),
        ("led", 2048, {"gib": 5.0}, "about 5 gib, over the budget of 4"),
        ("led", 4096, {"gib": 3.0}, "about 12 seconds, over the budget of 10"),
        ("bart", 2048, {"gib": 3.0}, "about 12 seconds, over the budget of 10"),
        (
            "bart",
            2048,
            {},
            "about 7 gib, over the budget of 4",
        ),  # a peer: what it works with grows like its seconds
    ],
)
def test_rows_beyond_the_budget_are_marked(scripts, model, length, row, note):
    args = SimpleNamespace(budget_gib=4.0, budget_seconds=10.0)
    before = [
        {"model": model, "by": "x", "length": 1024, "seconds": 3.0, "gib": 2.5, "work_gib": 1.5}
    ]
    row = {"model": model, "by": "x"} | row
    result = scripts("sweep")._beyond(
        SimpleNamespace(name=model, length=length, args=args), row, before
    )
    assert result == note
    # What was not run once is not run at a greater length, either.
    if note:
        after = [{"model": model, "by": "x", "length": length, "note": note}]
        assert (
            scripts("sweep")._beyond(
                SimpleNamespace(name=model, length=2 * length, args=args), row, after
            )
            == note
        )


@pytest.mark.slow
def test_memory_is_told_without_running(report, scripts, monkeypatch):
    def never(*_):
        raise AssertionError("made arrays")

    monkeypatch.setattr(scripts("sweep"), "make_model", never)
    rows = report("encode", *TINY, "--models=bart", "--lengths=64,128", "--compiled_only")["rows"]
    assert [row["length"] for row in rows] == [64, 128]
    assert rows[1]["work_gib"] > 2 * rows[0]["work_gib"]


@pytest.mark.slow
def test_decoding_beside_transformers(report):
    rows = report("decode", *TINY, "--models=bart", "--lengths=16", "--beams=4", "--new_tokens=4")[
        "rows"
    ]
    assert [(row["beams"], row["by"]) for row in rows] == [(4, "longsum_jax"), (4, "PyTorch bart")]
    assert rows[1]["equal"] == 1
    assert rows[1]["ratio"] == pytest.approx(rows[1]["seconds"] / rows[0]["seconds"])
    # The same command goes on from what there is, and begins nothing after its minutes.
    more = "--lengths=16,32", "--beams=4", "--new_tokens=4", "--batches=1,2", "--minutes=0"
    assert report("decode", *TINY, "--models=bart", *more)["rows"] == rows


def fail():
    raise RuntimeError("no such cache")


def test_a_search_that_fails_leaves_the_others(scripts, monkeypatch):
    decode = scripts("decode")
    ours = decode.Timed(*2 * [lambda count: np.zeros((1, count), np.int32)])
    made = {decode.OURS: lambda: ours, "PyTorch bart": fail, "PyTorch bart, static": lambda: ours}
    monkeypatch.setattr(decode, "timed_calls", lambda case, args: made)
    case, args = (
        decode.Case("bart", 16, 1, 1),
        SimpleNamespace(new_tokens=4, repeats=1, statistic=min),
    )
    first, failed, static = decode.measure(case, args)
    assert failed["note"] == "RuntimeError: no such cache"
    assert "seconds" not in failed
    assert static["ratio"] == static["seconds"] / first["seconds"]
    assert static["equal"] == 1.0
    made[decode.OURS] = fail
    with pytest.raises(RuntimeError):
        decode.measure(case, args)


@pytest.mark.parametrize("has_static", [True, False])
def test_a_peer_without_a_static_cache_has_another_one(scripts, monkeypatch, has_static):
    decode = scripts("decode")
    ours = decode.Timed(*2 * [lambda count: np.zeros((1, count), np.int32)])
    made = {decode.OURS: lambda: ours, "PyTorch bart": lambda: ours}
    static = (lambda: ours) if has_static else fail
    made = {decode.OURS: made[decode.OURS], "PyTorch bart, static cache": static} | made
    monkeypatch.setattr(decode, "timed_calls", lambda case, args: made)
    args = SimpleNamespace(new_tokens=4, repeats=1, statistic=min)
    rows = decode.measure(decode.Case("bart", 16, 1, 1), args)
    timed = [row["by"] for row in rows if "ratio" in row]
    assert timed == ["PyTorch bart, static cache" if has_static else "PyTorch bart"]


@pytest.fixture
def bart_case(scripts):
    """Measures a case with a fake peer, which gets its options."""
    sweep = scripts("sweep")
    limits = {"budget_gib": 1.0, "budget_seconds": 1.0, "repeats": 1, "enough": 1.0}
    flags = {"compiled_only": False, "profile": False, "statistic": min, "peers": None}
    args = SimpleNamespace(**limits, **flags, device=None, dtype="bfloat16")
    program = SimpleNamespace(compile_seconds=1.0, held_bytes=2.0, work_bytes=1.0)
    sizes = {"name": "bart", "length": 16, "tokens": 16, "flops": 1.0, "in_a_row": 1}

    def measure(call, alone=None, **attributes):
        args.alone = alone
        case = SimpleNamespace(args=args, program=program, **sizes, **attributes)
        case.ours = lambda: {sweep.OURS: lambda: 1.0}
        case.peer = lambda name, options: sweep.Peer(lambda: call(options), 1, {"attention": "a"})
        case.difference = lambda ours, theirs: abs(ours - theirs)
        return {row["by"]: row for row in sweep.measure(case, [], 1.0)}

    return measure


def test_products_are_timed_without_pytorch(scripts, monkeypatch):
    models = scripts("models")
    names = []
    seconds = SimpleNamespace(wall=2.0)
    monkeypatch.setattr(
        models, "fastest", lambda calls, _: names.append([*calls]) or dict.fromkeys(calls, seconds)
    )
    assert models.peak_flops("float32") == 2 * 2048**3 / 2.0
    monkeypatch.setitem(sys.modules, "torch", None)
    assert models.peak_flops("float32") == 2 * 2048**3 / 2.0
    assert names == [["jax", "torch"], ["jax"]]


def test_a_peer_that_fails_leaves_ours(bart_case):
    rows = bart_case(lambda options: fail(), can_recompute=True)
    assert rows["PyTorch bart"]["note"] == "RuntimeError: no such cache"
    assert rows["longsum_jax"]["seconds"] > 0
    assert len(rows) == 2
    rows = bart_case(lambda options: 1.0, can_recompute=True)
    peer, ours = rows["PyTorch bart"], rows["longsum_jax"]
    assert peer["ratio"] == peer["seconds"] / ours["seconds"]
    assert peer["attention"] == "a"
    assert peer["loss"] == ours["loss"] == 1.0


def test_a_peer_alone_has_no_ours(bart_case, scripts, monkeypatch):
    monkeypatch.setattr(scripts("sweep"), "_ours", None)
    for alone, by in (("plain", "PyTorch bart"), ("compiled", "PyTorch bart, compiled")):
        [(name, row)] = bart_case(lambda options: 2.0, alone).items()
        assert name == by
        assert row["seconds"] > 0
        assert row["loss"] == 2.0
        assert not {"ratio", "memory_share", "difference"} & row.keys()


def test_a_peer_without_memory_recomputes(bart_case):
    def call(options):
        if "recomputing" not in options:
            raise MemoryError
        return 1.0

    for alone, name in ((None, "PyTorch bart"), ("compiled", "PyTorch bart, compiled")):
        rows = bart_case(call, alone, can_recompute=True)
        assert list(rows)[-2:] == [name, f"{name}, recomputing"]
        assert rows[name]["note"] == "out of memory"
        assert rows[f"{name}, recomputing"]["seconds"] > 0
    # If that is not enough, there is nothing else to try.
    rows = bart_case(lambda options: call(()), can_recompute=True)
    assert [row.get("note") for row in rows.values()] == [None, *2 * ["out of memory"]]
    assert len(bart_case(call, can_recompute=False)) == 2


def products(jaxpr):
    """Operations of all matrix products, those of a loop as often as it goes round."""
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            inner = math.prod(eqn.invars[0].aval.shape[axis] for axis in contracted)
            total += 2 * math.prod(eqn.outvars[0].aval.shape) * inner
        times = eqn.params["length"] if eqn.primitive.name == "scan" else 1
        total += times * sum(map(products, jaxprs_in_params(eqn.params)))
    return total


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("bart", 0.99),
        ("bart_pages", 0.99),
        ("lsg_bart", 0.99),
        ("longt5_local", 0.9),
        ("led", 0.7),
        ("locost", 0.5),
    ],
)
def test_operations_are_those_of_the_program(scripts, name, least):
    """What the program computes besides: keys that a mask hides, the kernels of state-space
    layers."""
    models = scripts("models")
    family, config = models.make_config(name, "small", 4096)
    module, ids = family.module_class(config), jnp.zeros((1, 4096), "int32")
    encode = lambda params: module.apply({"params": params}, ids, ids == 0, method="encode")  # noqa: E731
    counted = products(jax.make_jaxpr(encode)(models.parameter_shapes(family, config)).jaxpr)
    if name == "locost":
        counted += config.num_layers * config.d_model * 3 * 2.5 * 8192 * 13  # FFTs
    assert least < models.forward_flops(family, config, 4096) / counted < 1.01


def test_every_model_has_every_size_and_known_peers(scripts):
    models = scripts("models")
    for name, entry in models.MODELS.items():
        assert set(entry.peers) <= {*models.MODELS, *models.PUBLISHED}
        for size in models.SIZES:
            _, config = models.make_config(name, size, 2048)
            assert config.max_source_length is None or config.max_source_length >= 2048
            assert (
                models.encoder_keys(config, 2048) > 0
                if config.encoder_attention != "s4d"
                else name[:6] == "locost"
            )


@pytest.mark.slow
def test_attentions_by_length(report):
    [row] = report("lsg", "--kinds=full", "--lengths=64", "--repeats=1", "--train_limit=32")["rows"]
    assert row["forward_seconds"] > 0
    assert row["training_seconds"] is None
    assert row["training_mib"] > row["forward_mib"] > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # the script leaves it
def test_a_first_summary_beside_transformers(scripts, report, monkeypatch):
    """The peer's script runs in this process, which has imported transformers already."""
    first = scripts("first_summary")
    seconds_of = first.seconds_of

    def seconds_of_command(command, *options):
        if first.PEER not in command:
            return seconds_of(command, *options)
        start = time.perf_counter()
        monkeypatch.setattr(sys, "argv", command[2:])
        exec(first.PEER, {})
        return time.perf_counter() - start

    monkeypatch.setattr(first, "seconds_of", seconds_of_command)
    flags = "--models=t5", "--words=40", "--new_tokens=2"
    rows = {row["what"]: row for row in report("first_summary", *TINY, *flags)["rows"]}
    assert list(rows)[5:] == ["cold", "warm", "transformers", "where, cold", "where, warm"]
    for what in ("cold", "warm"):
        seconds = rows[what]["seconds"]
        assert rows[what]["ratio"] == pytest.approx(seconds / rows["transformers"]["seconds"])
        assert sum(rows[f"where, {what}"][stage] for stage in ("import", "read")) < 60
    assert 0 < rows["--help"]["seconds"] < rows["cold"]["seconds"]
