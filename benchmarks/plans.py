"""Plans of shipped configs and of summaries for TPUs and GPUs, compiled and never run.

    python benchmarks/plans.py --out=plans.json [--cases=c4_v5e,c4_v5p]
    python benchmarks/plans.py --out=config_plans.json --configs=h200,h100,a100-40,v5e,v6e
    python benchmarks/plans.py --out=plan_parts.json --parts --cases=c4_v5e,c4_16_v5e

Every case is one call of `longsum plan` in a separate process. TPU cases need the extra `plan-tpu`,
GPU cases `plan-cuda`; neither needs the device. An existing report is continued: its cases are not
compiled again for the same device. On two cores the largest cases take up to an hour.

--configs plans the training step of every shipped config, all modes except the tiny ones, on one
device of each kind. If it does not fit, its row has the changes of the config with which it fits,
or the smallest mesh. --parts compares the bytes of each part of a training step, or of reading a
million tokens, with a count by hand (``least_bytes.py``).
"""

import argparse
import importlib
import json
import pkgutil
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import least_bytes
from common import print_table, write_report

from longsum_jax import configs
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config
from longsum_jax.layers.dense import FEED_FORWARD_KINDS
from longsum_jax.layers.stack import StackConfig
from longsum_plan.devices import GPUS, TPUS

C4 = "--config=configs/locost_c4.py"
FSDP = ("--config.mesh.preset=fsdp", "--config.mesh.batch=1", "--config.mesh.fsdp=-1")
TRAIN = "--programs=train"
C4_H200 = (C4, "--device=h200", TRAIN)
C4_V5E = (C4, "--device=v5e:16x16", *FSDP, "--config.training.accumulation=1", "--tries=0")
C4_V5P = (C4, "--device=v5p:2x2x1", *FSDP, TRAIN)
C4_V6E = (C4, "--device=v6e:2x2", *FSDP, TRAIN)
C4_16_V5E = (C4, "--device=v5e:4x4", *FSDP)
SAVED = ("--config.model.remat=False", "--tries=0")
FUSED_ATTENTION = ("--config.model.ssm_backend=fused", "--config.model.remat=attention")
SQUARE = ("--config.mesh.batch=16", "--config.mesh.fsdp=16")
# one of the eight micro-batches of one device
C4_ONE = (C4, "--config.data.batch_size=32", "--config.training.accumulation=1", "--tries=0")
C4_H200_ONE, C4_H100_ONE = ((*C4_ONE, f"--device={name}") for name in ("h200", "h100"))
# Stands for a directory with the config of a preset, "PRESET:FAMILY:NAME", which reads so many
# tokens.
PRESET = "PRESET:"
LONGEST_INPUT = 131_072
TRAINING = (TRAIN, "--config.data.batch_size=8", "--config.training.accumulation=1")
TRAINING += ("--config.task.max_target_length=1024",)
# One document, sharded over all chips.
LONG = (TRAIN, "--config.data.batch_size=1", "--config.training.accumulation=1")
LONG += ("--config.task.max_target_length=1024", "--config.model.remat=True", "--tries=0")
LONG += ("--config.mesh.preset=fsdp+sequence", "--config.mesh.batch=1", "--config.mesh.sequence=-1")
LONG += ("--config.data.source_lengths=4194304",)
# Its loss, over a longer one.
LONGEST = ("--programs=loss", *LONG[1:-1], "--config.data.source_lengths=10485760")
LONGEST += ("--config.task.max_source_length=10485760",)
DECODING = ("--dtype=bfloat16", "--max_new_tokens=512")
SUMMARIES = (f"--model={PRESET}locost:base", *DECODING)
GEMMAS = ("t5gemma:2b", "t5gemma:9b_2b", "t5gemma2:270m", "t5gemma2:1b", "t5gemma2:4b")
# T5's attention to all tokens, with position biases; `reference` is without fused kernels.
T5 = (C4, "--device=h200", TRAIN, "--tries=0", "--config.training.accumulation=1")
T5 += ("--config.model.family=t5", "--config.model.encoder_attention=full")
T5 += ("--config.task.max_target_length=1024", "--config.data.batch_size=2")
T5 += ("--config.task.max_source_length=16384",)
# Other families at the size base: T5 1.1, LongT5, BART with as many positions as it needs, LED.
BASELINES = "--config=configs/long_baselines.py"
BART_BASE = (
    *("--config.model.d_model=768", "--config.model.encoder_layers=6"),
    *("--config.model.decoder_layers=6", "--config.model.encoder_ffn_dim=3072"),
    *("--config.model.decoder_ffn_dim=3072", "--config.model.encoder_attention_heads=12"),
    "--config.model.decoder_attention_heads=12",
)
FULL = "--config.model.encoder_attention=full"
FAMILIES = {
    "longt5": (f"{BASELINES}:longt5", "--config.model.encoder_attention=transient_global"),
    "led": (f"{BASELINES}:led", *BART_BASE),
    "bart": (f"{BASELINES}:block_attention", *BART_BASE, FULL),
    "t5": (f"{BASELINES}:longt5", "--config.model.family=t5", FULL),
}
POSITIONS = {
    "led": "--config.model.max_encoder_position_embeddings",
    "bart": "--config.model.max_position_embeddings",
}
READ = ("--programs=read", "--config.evaluation.batch_size=1", "--tries=0")


def family_arguments(family: str, length: int) -> tuple[str, ...]:
    """Returns the flags of a family of base size that reads sources of so many tokens."""
    lengths = (f"--config.task.max_source_length={length}",)
    if family in POSITIONS:
        lengths += (f"{POSITIONS[family]}={length}",)
    return (*FAMILIES[family], *lengths)


def family_step(family: str, length: int, device: str) -> tuple[str, ...]:
    """Returns the flags of a training step of 32,768 tokens and summaries of 512."""
    rows = (f"--config.data.batch_size={32_768 // length}", "--config.training.accumulation=1")
    target = "--config.task.max_target_length=512"
    flags = (f"--device={device}", TRAIN, "--tries=0")
    return (*family_arguments(family, length), *rows, target, *flags)


# families that read a million tokens
MILLION = {
    "c4": (C4, "--config.task.max_source_length=1048576", "--config.training.accumulation=1"),
    "longt5": family_arguments("longt5", 1_048_576),
    "led": family_arguments("led", 1_048_576),
}
# Name -> arguments of longsum plan.
CASES = {
    "c4_v5e": C4_V5E,
    "c4_16_v5e": (*C4_16_V5E, "--config.training.accumulation=1", "--tries=0"),
    # an evaluation on one chip, with the document that each of 256 has
    "c4_one_v5e": (
        C4,
        "--device=v5e",
        "--programs=read,search",
        "--config.evaluation.batch_size=1",
        "--config.training.accumulation=1",
        "--tries=0",
    ),
    "c4_v5p": (*C4_V5P, "--tries=0"),
    "c4_v6e": (*C4_V6E, "--tries=0"),
    "c4_h100": (C4, "--device=h100", TRAIN, "--tries=0"),
    "c4_h200": (C4, "--device=h200:1x8", *FSDP),
    "c4_h200_one": C4_H200_ONE,
    "c4_h200_one_fused": (*C4_H200_ONE, "--config.model.ssm_backend=fused"),
    # as c4_h200_one, without computing convolutions or layers again
    "c4_h200_one_attention": (*C4_H200_ONE, "--config.model.remat=attention"),
    "c4_h200_one_saved": (*C4_H200_ONE, "--config.model.remat=False"),
    "c4_h200_one_fused_attention": (*C4_H200_ONE, *FUSED_ATTENTION),
    "c4_h100_one_attention": (*C4_H100_ONE, "--config.model.remat=attention"),
    "c4_h100_one_fused_attention": (*C4_H100_ONE, *FUSED_ATTENTION),
    # changes of the config with which the step is faster
    "c4_fastest_h200": (*C4_H200, "--fastest"),
    "c4_fastest_v5e": (*C4_V5E[:-1], "--fastest"),
    "c4_fastest_v5p": (*C4_V5P, "--fastest"),
    "c4_saved_v5p": (*C4_V5P, *SAVED),
    "c4_fastest_v6e": (*C4_V6E, "--fastest"),
    # micro-batches of one document for each chip, the fastest step on four v6e
    "c4_single_v6e": (*C4_V6E, "--config.training.accumulation=64", *SAVED),
    "c4_16_single_v5e": (*C4_16_V5E, "--config.training.accumulation=16", TRAIN, *SAVED),
    # the fastest step on 256 chips
    "c4_square_v5e": (*C4_V5E[:-1], *SQUARE, TRAIN, *SAVED),
    "c4_16k_h200": (C4, "--device=h200", *TRAINING, "--config.task.max_source_length=16384"),
    "c4_32k_h200": (C4, "--device=h200", *TRAINING, "--config.task.max_source_length=32768"),
    "t5_16k_h200": T5,
    "t5_16k_reference_h200": (*T5, "--config.model.attention_backend=reference"),
    "c4_tiny_v5e": (f"{C4}:tiny", "--device=v5e:2x2", "--tries=0"),
    "c4_small_v5e": (f"{C4}:small", "--device=v5e", TRAIN, "--tries=0"),
    "c4_4m_v5p": (C4, "--device=v5p:4x4x4", *LONG, "--config.task.max_source_length=4194304"),
    "c4_10m_v5p": (C4, "--device=v5p:4x2x2", *LONGEST),
    "summaries_v5e": (*SUMMARIES, "--device=v5e", "--input_length=16384", "--tries=0"),
    "summaries_v5p": (*SUMMARIES, "--device=v5p", "--input_length=16384", "--tries=0"),
    "summaries_4m_v5p": (*SUMMARIES, "--device=v5p", "--input_length=4194304", "--tries=0"),
    "summaries_h100": (*SUMMARIES, "--device=h100", "--input_length=1024", "--batch_size=1,8"),
    "summaries_h200": (*SUMMARIES, "--device=h200", "--input_length=16384,131072,1048576"),
    "summaries_a100": (*SUMMARIES, "--device=a100-40", "--input_length=16384", "--batch_size=1,8"),
    **{
        f"{model.replace(':', '_')}_{device}": (
            f"--model={PRESET}{model}",
            *DECODING,
            f"--device={device}",
            f"--input_length={LONGEST_INPUT}",
            "--tries=0",
        )
        for model in GEMMAS
        for device in ("v5e", "v5p", "h100", "h200")
    },
    **{
        f"{family}_base_{length // 1024}k_{device}": family_step(family, length, device)
        for device in ("h200", "h100", "v5e", "v5p", "v6e")
        for length in (4096, 16_384)
        for family in FAMILIES
    },
    **{
        f"{family}_1m_{device}": (*arguments, f"--device={device}", *READ)
        for device in ("h200", "v5e", "v5p", "v6e")
        for family, arguments in MILLION.items()
        if (family, device) != ("longt5", "v5e")  # does not fit
    },
}
# Classes of data sets that are not at hand (Condevaux and Harispe 2022, section 4.2; LexGLUE), and
# whether documents have several: documents are made of which configs count them.
CLASSES = {
    "imdb": (2, False),
    "arxiv": (11, False),
    "patent": (9, False),
    "scotus": (14, False),
    "ecthr_a": (10, True),
    "ecthr_b": (10, True),
}
# Topologies of several devices, from the smallest.
MESHES = {"v5e": ("2x2", "2x4", "4x4"), "v6e": ("2x2", "2x4", "4x4")}
GPU_MESHES = ("1x2", "1x4", "1x8")
Row = dict[str, Any]


def step_sizes(spec: str) -> Row:
    """Returns what one update of a config reads: documents and their tokens at most."""
    run = run_config(read_config(spec, {}))
    row = {"documents": run.data.batch_size, "accumulation": run.training.accumulation}
    return row | {"tokens": run.task.max_source_length}


def write_documents(directory: Path) -> None:
    """Writes the files that configs/classify.py and its like count the labels of."""
    _write_labelled(directory / "data", ("CORRECT", "INCORRECT"))
    for data_set, (count, is_several) in CLASSES.items():
        names = [f"class {number:02}" for number in range(count)]
        labels = [[name] for name in names] if is_several else names
        _write_labelled(directory / data_set, labels)


def _write_labelled(directory: Path, labels: Sequence[Any]) -> None:
    text = "In 1998 Anna Smith brought 14 ships to Hamburg. She was never paid for it by Berlin."
    document = {"text": text, "document": text, "claim": "It was paid."}
    rows = [document | {"id": str(place), "label": label} for place, label in enumerate(labels)]
    directory.mkdir()
    for split in ("train", "validation", "test"):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (directory / f"{split}.jsonl").write_text(lines)


def config_cases(device: str) -> dict[str, tuple[str, ...]]:
    """Returns a case for every mode of every shipped config."""
    result = {}
    for module in pkgutil.iter_modules(configs.__path__):
        modes = getattr(importlib.import_module(f"{configs.__name__}.{module.name}"), "MODES", ())
        for mode in modes:
            if mode != "tiny":
                spec = f"configs/{module.name}.py:{mode}"
                if mode in CLASSES and module.name == "lsg_classify":
                    spec += f",data={mode}/{{split}}.jsonl"
                result[f"{module.name}:{mode}"] = (f"--config={spec}", f"--device={device}")
    return {name: (*case, TRAIN) for name, case in result.items()}


def write_preset(directory: Path, name: str) -> None:
    """Writes the config of a preset, "FAMILY:NAME", where a training run would have it."""
    from longsum_jax.checkpoints.huggingface import write_model
    from longsum_jax.inference.loading import TRAINING_MODEL
    from longsum_jax.models.registry import get_family

    family_name, preset = name.split(":")
    family = get_family(family_name)
    config = family.presets[preset]
    if config.max_source_length is not None:
        config = config.with_max_source_length(LONGEST_INPUT)
    write_model(directory / TRAINING_MODEL, family, config, None, {})


def program_rows(case: str, report: dict[str, Any]) -> Iterator[Row]:
    """Yields a row for every program of a case, for every trial, and for every longest document."""
    shared = {"case": case, "device": report["device"]}
    shared |= {"devices_of": f"{report['num_devices']} x {report['title']}"}
    shared |= {"device_gb": report["device_memory_bytes"] / 1e9}
    for program in report["programs"]:
        memory = {f"{name}_gb": size / 1e9 for name, size in program["memory_bytes"].items()}
        row = shared | {"program": program["program"]} | memory
        row |= {name: program[name] for name in ("batch_size", "length") if name in program}
        if "operations" in program:
            sent = sum(traffic["sent"] for traffic in program["collectives"].values())
            row |= {"tflop": sum(program["operations"].values()) / 1e12, "sent_gb": sent / 1e9}
            row |= {"moved_gb": program["moved_bytes"] / 1e9, "bound": program["bound"]}
            row |= {"least_ms": 1e3 * max(program["roofline_seconds"].values())}
            row |= {"collectives": _counts(program["collectives"])}
            row |= _longest_part(program["parts"])
        yield row | {"fits": program["fits"], "compile_seconds": program["compile_seconds"]}
    for name, trials in report.get("trials", {}).items():
        for trial in trials:
            yield shared | {"program": name} | _tried(trial)
    for trial in report.get("faster", []):
        least_ms = 1e3 * trial["least_seconds"]
        yield shared | {"program": "train"} | _tried(trial) | {"least_ms": least_ms}
    for result in report.get("longest", []):
        yield shared | {"program": "longest document"} | result


def _tried(trial: dict[str, Any]) -> Row:
    changes = ", ".join(f"{key}={value}" for key, value in trial["changes"].items())
    total = trial["total_bytes"] and trial["total_bytes"] / 1e9
    return {"tried": changes, "total_gb": total, "fits": trial["fits"]}


def part_rows(case: str, report: dict[str, Any]) -> Iterator[Row]:
    """Yields the bytes of each part of a training step, or of the program ``read``: by hand, and by
    the plan.

    The last row is for the whole program. ``utilization`` is the share of the products' peak rate
    that its model FLOPs have if it takes the roofline time.
    """
    sums = ("least_gb", "moved_gb", "model_tflop", "tflop", "memory_ms", "compute_ms")
    [program] = [p for p in report["programs"] if p["program"] in ("train", "read")]
    has_gradients = program["program"] == "train"
    sizes = _sizes(report, program)
    parts = (least_bytes.train_parts if has_gradients else least_bytes.read_parts)(sizes)
    rows: dict[tuple[str, str], Row] = {}
    for name, (count, _) in parts.items():
        least = count(sizes)
        passes = {"forward": (least.forward, 1), "backward": (least.backward, 2)}
        for stage in ("forward", "backward")[: 1 + has_gradients]:
            num_bytes, times = passes[stage]
            row = rows.setdefault(_part_and_pass(name, stage), dict.fromkeys(sums, 0.0))
            row["least_gb"] += num_bytes / 1e9
            row["model_tflop"] += times * least.operations / 1e12
    for part in program["parts"]:
        name = least_bytes.part_of(part["module"], parts)
        row = rows[_part_and_pass(name, part["pass"])]
        row["moved_gb"] += part["moved_bytes"] / 1e9
        row["tflop"] += sum(part["operations"].values()) / 1e12
        for kind in ("memory", "compute"):
            row[f"{kind}_ms"] += 1e3 * part["roofline_seconds"][kind]
    total = {name: sum(row[name] for row in rows.values()) for name in sums}
    hardware = {**TPUS, **GPUS}[report["device"].partition(":")[0]]
    peak = hardware.products["bfloat16"] / 1e12
    seconds = max(program["roofline_seconds"].values())
    total["utilization"] = total["model_tflop"] / peak / seconds
    for (name, stage), row in {**rows, ("all", "both"): total}.items():
        ratio = {"ratio": row["moved_gb"] / row["least_gb"]}
        yield {"case": case, "device": report["device"], "part": name, "pass": stage} | row | ratio


def _part_and_pass(name: str, stage: str) -> tuple[str, str]:
    """Returns the key of a row; the origins of the last part's instructions name no pass."""
    if name == least_bytes.REST:
        return name, "both"
    if stage == "forward":
        return name, stage
    return name, "backward"


def _sizes(report: dict[str, Any], program: Row) -> least_bytes.Sizes:
    """Returns the sizes of one device in a config's step with one micro-batch."""
    run = run_config(read_config(report["config"], report["changes"]))
    model, num_devices = run.model, report["num_devices"]
    encoder, decoder = model.encoder_stack, model.decoder_stack
    is_training = program["program"] == "train"
    source, target = run.task.max_source_length, run.task.max_target_length
    is_state_space = encoder.encoder_attention == "s4d"
    return least_bytes.Sizes(
        rows=run.data.batch_size / num_devices if is_training else 1,
        source=source,
        target=target,
        d_model=encoder.d_model,
        d_ff=encoder.d_ff,
        inner_maps=1 + FEED_FORWARD_KINDS[encoder.feed_forward][1],
        heads=encoder.num_heads * encoder.d_kv,
        attention=None if is_state_space else _attention(encoder, source),
        modes=encoder.attention.d_state // 2 if is_state_space else 0,
        encoder_layers=encoder.num_layers,
        decoder_layers=decoder.num_layers,
        vocabulary=model.vocab_size,
        positions=source + target if getattr(model, "positions", "") == "learned" else 0,
        is_tied=model.tie_word_embeddings,
        updated=program["memory_bytes"]["parameters"] / least_bytes.WHOLE if is_training else 0,
        is_sharded=num_devices > 1,
    )


def _attention(stack: StackConfig, length: int) -> least_bytes.Attention:
    """Returns the maps and keys of an encoder's attention, see the table of ``least_bytes``."""
    name, options = stack.encoder_attention, stack.attention
    if name == "full":
        return least_bytes.Attention(4, 4, length)
    if name == "longformer":
        [window] = options.attention_window
        return least_bytes.Attention(7, 4, window + 2)
    pooled = length / options.global_block_size if name == "transient_global" else 0
    return least_bytes.Attention(4, 4, 2 * options.local_radius + 1 + pooled, pooled)


def _longest_part(parts: list[dict[str, Any]]) -> Row:
    """Returns the module that takes longest and its share, where the device's rates are known."""
    seconds = [max(part["roofline_seconds"].values(), default=0.0) for part in parts]
    if not sum(seconds):
        return {}
    name = f"{parts[0]['module'] or 'no module'}, {parts[0]['pass']}"
    return {"longest_part": name, "share": seconds[0] / sum(seconds)}


def _counts(collectives: dict[str, Any]) -> str:
    result = [f"{traffic['count']:,.0f} {kind}" for kind, traffic in sorted(collectives.items())]
    return ", ".join(result) or "none"


def plan_rows(
    case: str,
    arguments: tuple[str, ...],
    rows_of: Callable[[str, dict[str, Any]], Iterator[Row]] = program_rows,
) -> list[Row]:
    """Runs longsum plan and returns the rows of a case; a refusal is a row with a note."""
    with tempfile.TemporaryDirectory() as directory:
        model, out = Path(directory) / "model", Path(directory) / "plan.json"
        filled = []
        for argument in arguments:
            flag, is_preset, name = argument.partition(PRESET)
            if is_preset:
                write_preset(model, name)
                argument = f"{flag}{model}"
            filled.append(argument)
        write_documents(Path(directory))
        command = [sys.executable, "-m", "longsum_jax", "plan", *filled, f"--out={out}"]
        done = subprocess.run(command, cwd=directory, stderr=subprocess.PIPE, text=True)
        if done.returncode == 2:
            note = done.stderr.splitlines()[-1].removeprefix("error: ")
            return [{"case": case, "device": _device_of(arguments), "note": note}]
        sys.stderr.write(done.stderr)
        done.check_returncode()
        report = json.loads(out.read_text())
        sizes = step_sizes(report["config"]) if case not in CASES else {}
        return [row | sizes for row in rows_of(case, report)]


def config_rows(case: str, arguments: tuple[str, ...]) -> list[Row]:
    """Returns the row of a config; one that does not fit has a ``remedy``, if there is one."""
    rows = plan_rows(case, (*arguments, "--tries=0"))
    if all(row.get("fits", True) for row in rows):
        return rows
    [row, *trials] = plan_rows(case, arguments)
    fitting = [trial for trial in trials if trial.get("fits")]
    if fitting:
        return [row | {"remedy": fitting[-1]["tried"], "remedy_gb": fitting[-1]["total_gb"]}]
    device = _device_of(arguments)
    for topology in MESHES.get(device, GPU_MESHES):
        on_mesh = [x for x in arguments if not x.startswith("--device=")]
        on_mesh += [f"--device={device}:{topology}", *FSDP, "--tries=0"]
        [larger] = plan_rows(case, tuple(on_mesh))
        if larger.get("fits"):
            remedy = f"{larger['devices_of']}, mesh.preset=fsdp"
            return [row | {"remedy": remedy, "remedy_gb": larger["total_gb"]}]
    return [row]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", help="default: all")
    parser.add_argument(
        "--configs",
        type=lambda text: text.split(","),
        metavar="DEVICE[,DEVICE]",
        help="shipped configs in place of the cases",
    )
    parser.add_argument("--out", required=True, help="JSON report to write or continue")
    parser.add_argument(
        "--parts", action="store_true", help="parts of training steps in place of programs"
    )
    args = parser.parse_args()
    out = Path(args.out)
    rows = json.loads(out.read_text())["rows"] if out.exists() else []
    for cases in map(config_cases, args.configs) if args.configs else [CASES]:
        for case in args.cases.split(",") if args.cases else cases:
            device = _device_of(cases[case])
            if any((row["case"], row["device"]) == (case, device) for row in rows):
                continue
            if args.parts:
                selected = [flag for flag in cases[case] if flag.startswith("--programs=")]
                arguments = (*cases[case], *([] if selected else [TRAIN]))
                result = plan_rows(case, arguments, part_rows)
            elif args.configs:
                result = config_rows(case, cases[case])
            else:
                result = plan_rows(case, cases[case])
            print_table(result)
            rows += result
            command = _command_of(rows, out, bool(args.configs), args.parts)
            write_report(out, rows, command=command)


def _device_of(arguments: Sequence[str]) -> str:
    [device] = [flag.partition("=")[2] for flag in arguments if flag.startswith("--device=")]
    return device


def _command_of(rows: list[Row], out: Path, has_configs: bool, has_parts: bool) -> str:
    """Returns the command that makes all rows, those of earlier starts too."""
    cases = ",".join(dict.fromkeys(row["case"] for row in rows))
    devices = ",".join(dict.fromkeys(row["device"] for row in rows))
    selected = [f"--configs={devices}"] * has_configs
    selected += ["--parts"] * has_parts
    flags = [f"--out={out.name}", *selected, f"--cases={cases}"]
    return shlex.join(["python", "benchmarks/plans.py", *flags])


if __name__ == "__main__":
    main()
