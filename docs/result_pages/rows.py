"""Rows that tables of results derive from the rows of a file."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from result_pages.tables import Row, Rows

Read = Callable[[str], Mapping[str, Any]]

ENCODERS = ("full", "transient_global", "lsg", "local", "s4d")  # of all probes
# Names of plans such as "led_base_16k_v5e".
FAMILY_STEP = re.compile(r"(\w+)_base_(\d+)k_")
# Values of the rows of meshes whose largest one counts.
DIFFERENCES = ("loss_difference", "gradient_difference", "parameter_difference")


def with_peers(rows: Rows) -> Rows:
    """Returns one row per baseline, with our values of the same case as ``our_...``."""
    ours: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        if row["by"].startswith("longsum_jax"):
            # Rows of Model.encode, if there are any, replace the module's.
            ours[_case(row)] = ours.get(_case(row), {}) | row
    pairs = []
    for row in rows:
        if not row["by"].startswith("longsum_jax"):
            own = {f"our_{key}": value for key, value in ours[_case(row)].items()}
            # Users call Model.encode, so its ratio precedes the module's.
            times = row.get("public_ratio", row.get("ratio"))
            pairs.append(own | row | {"times": times, "by": row["by"].removeprefix("PyTorch ")})
    return pairs


def _case(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(key) for key in ("model", "length", "beams", "batch"))


def equal_plans(rows: Rows, device: str) -> Rows:
    """Returns rows of configs, one for all modes that have equal plans on ``device``.

    On other devices, the last row of any of these modes counts.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["device"] == device:
            file = row["case"].partition(":")[0]
            size = (row["documents"], row["tokens"], row["accumulation"], f"{row['total_gb']:.1f}")
            groups.setdefault((file, *size, f"{row['least_ms']:.3g}"), []).append(row)
    result: dict[tuple[str, str], Row] = {}
    for first, *others in groups.values():
        names = [first["case"], *(row["case"] for row in others)]
        modes = (name.partition(":")[2] for name in names[1:])
        shared = {key: first[key] for key in ("documents", "tokens", "accumulation")}
        shared["case"] = ", ".join([names[0], *modes])
        for row in rows:
            if row["case"] in names:
                result[shared["case"], row["device"]] = row | shared
    return list(result.values())


def furthest_parts(rows: Rows, device: str) -> Rows:
    """Returns the three parts of every plan that move most bytes above their least, and the sum.

    Steps of other families than LOCOST are left out if they are for another device than
    ``device``.
    """
    plans: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["device"] == device or not FAMILY_STEP.match(row["case"]):
            plans.setdefault((row["case"], row["device"]), []).append(row)
    result: list[Row] = []
    for *parts, whole in plans.values():
        parts.sort(key=lambda row: row["least_gb"] - row["moved_gb"])
        result += [*parts[:3], whole]
    return result


def family_steps(rows: Rows) -> Rows:
    """Returns the sums of the steps of other families than LOCOST, with family and length."""
    result = []
    for row in rows:
        step = FAMILY_STEP.match(row["case"])
        if step and row["part"] == "all":
            result.append(row | {"family": step[1], "length": 1024 * int(step[2])})
    return result


def trials(rows: Rows, section: str) -> Rows:
    """Returns the rows of a section, and a row with their sums."""
    rows = [row | {"failed": len(row["failures"])} for row in rows if row["section"] == section]
    total: Row = {"what": "all"}
    for key in dict.fromkeys(key for row in rows for key in row):
        values = [row[key] for row in rows if isinstance(row.get(key), int | float)]
        if values:
            total[key] = max(values) if key.startswith("largest_") else sum(values)
    return [*rows, total]


def shapes_by_reader(rows: Rows) -> Rows:
    """Returns counts of shapes, and the fastest growth of the time, by reader and over all."""
    readers = dict.fromkeys(row["shape"].partition(":")[0] for row in rows)
    groups = {
        name: [row for row in rows if row["shape"].startswith(f"{name}:")] for name in readers
    }
    return [
        {
            "reader": name,
            "shapes": len(group),
            "refused": sum(row["end"] not in ("time", "the largest number") for row in group),
            "seconds": max(row["seconds"] for row in group),
            "exponent": max((row["exponent"] for row in group if row["exponent"]), default=None),
        }
        for name, group in [*groups.items(), ("all", rows)]
    ]


def meshes_by(rows: Rows, key: str) -> Rows:
    """Returns counts and largest differences by a key, and over all cases."""
    names = sorted({row[key] for row in rows})
    groups = {name: [row for row in rows if row[key] == name] for name in names}
    return [
        {
            key: name,
            "cases": len(group),
            "skipped": sum(row.get("skipped", False) for row in group),
            "ids": sum(row.get("equal_ids", False) for row in group),
            "faults": sum(bool(row["fault"]) for row in group),
        }
        | {
            name: max(row[name] for row in group if row.get(name) is not None)
            for name in DIFFERENCES
            if any(row.get(name) is not None for row in group)
        }
        for name, group in {**groups, "all": rows}.items()
    ]


def soaked(rows: Rows) -> Rows:
    """Returns one row per process: work, memory once all programs are compiled, and its growth."""
    ends = []
    for section in dict.fromkeys(row["section"] for row in rows):
        parts = [row for row in rows if row["section"] == section]
        compiled = [place for place, row in enumerate(parts) if row["compiled"]]
        start = parts[min(compiled[-1] + 1 if compiled else 0, len(parts) - 1)]
        done = sum(row["done"] for row in parts)
        ends.append(parts[-1] | {"done": done} | _growth(start, parts[-1]))
    return ends


def served(rows: Rows) -> Rows:
    """Returns the sums of a server's steady load, with the growth of its memory.

    Memory counts from the second part on; the first one has the requests for which it is reserved.
    """
    parts = [row for row in rows if row["section"] == "load" and "resident_mib" in row]
    [total] = [row for row in rows if row["section"] == "load" and row["part"] == "all"]
    errors = sum(row["errors"] for row in parts)
    return [total | {"errors": errors} | _growth(parts[1], parts[-1])]


def _growth(start: Row, end: Row) -> Row:
    first, last = start["resident_mib"], end["resident_mib"]
    return {"first_mib": first, "last_mib": last, "growth": last / first - 1}


def killed(rows: Rows) -> Rows:
    """Returns one row per signal that ended a server, with sums and longest times, and the sums."""
    ends = [row for row in rows if row["section"] == "kills"]
    groups = {
        name: [row for row in ends if row["signal"] == name and "waiting" in row]
        for name in dict.fromkeys(row["signal"] for row in ends if row["signal"] != "all")
    }
    counts = ("waiting", "answered", "cut", "different")
    sums = [
        {"signal": name, "ends": len(group)}
        | {key: sum(row[key] for row in group) for key in counts}
        | {key: max(row[key] for row in group) for key in ("seconds_to_end", "seconds_to_ready")}
        for name, group in groups.items()
    ]
    total = [row for row in ends if row["signal"] == "all"]
    return [*sums, *(row | {"ends": sum(each["ends"] for each in sums)} for row in total)]


def attacked(rows: Rows) -> Rows:
    """Returns the kinds of hostile requests, and a row with their sums."""
    kinds = [row for row in rows if row["section"] == "hostile"]
    keys = ("requests", "sentences", "closed", "failed")
    total: Row = {"kind": "all"} | {key: sum(row[key] for row in kinds) for key in keys}
    return [*kinds, total | {"largest_seconds": max(row["largest_seconds"] for row in kinds)}]


def mutated(rows: Rows) -> Rows:
    """Returns the rooms with the mutants that tests notice today."""
    return [row | {"killed_now": row["killed"] + row["killed_later"]} for row in rows]


def far_tokens(rows: Rows) -> Rows:
    """Returns one row per memory and seed: right tokens of facts outside the nearest quarter."""
    shares = []
    for row in rows:
        if "seed" in row:
            parts = zip(row["tokens_by_distance"], row["texts_by_distance"], strict=True)
            _, *far = [(right, texts) if texts else (0.0, 0) for right, texts in parts]
            share = sum(right * texts for right, texts in far) / sum(texts for _, texts in far)
            shares.append(row | {"far": share})
    return shares


def steps_of_probes(rows: Rows) -> Rows:
    """Returns rows of probes with the number of training steps, and a model's parts in words."""
    named = []
    for row in rows:
        model = row["encoder"] + (f" x {row['cross']}" if row["cross"] != "full" else "")
        model += ", lengths in turn" if "+" in row["plan"] else ""
        steps = sum(int(part.split(":")[1]) for part in row["plan"].split(","))
        is_variant = row["encoder"] not in ENCODERS or model != row["encoder"]
        named.append(row | {"model": model, "steps": steps, "is_variant": is_variant})
    return named


def short_names(rows: Rows) -> Rows:
    """Returns rows whose data sets are named without their file."""
    return [row | {"data": re.sub(r"/[\w.]+", "", row["data"])} for row in rows]


def errors_of_splitters(rows: Rows) -> Rows:
    """Returns the rows of all texts of a gold set."""
    names = {"own": "generated", "real": "real"}
    return [
        row | {"texts": f"{names[row['data']]}, {row['part']}"}
        for row in rows
        if row["data"] in names and row.get("group") == "all" and row["part"] != "both"
    ]


def cases_of(rows: Rows, kind: str) -> Rows:
    """Returns the measurements of one kind, the first word of their case; ``title`` is the rest."""
    named = [(*row.get("case", "").partition(" "), row) for row in rows]
    return [row | {"title": title} for first, _, title, row in named if first == kind]


def case_operations(rows: Rows) -> Rows:
    """Returns a row for each operation of profiled cases."""
    return [
        operation | {"case": row["title"], "ms": 1e3 * operation["seconds"]}
        for row in cases_of(rows, "profile")
        for operation in row.get("operations", ())
    ]


def exactness(read: Read) -> Rows:
    """Returns one row per comparison: cases and the largest difference."""
    parity, metrics = read("parity")["rows"], read("metrics")["rows"]
    *_, meshes = meshes_by(read("meshes")["rows"], "mesh")
    errors = [row for row in read("ssm")["rows"] if row["table"] == "error"]
    logits = [row["logits_error"] for row in parity if "logits_error" in row]
    checks = [row for row in read("accelerator")["rows"] if "check" in row]
    float32 = [row["error"] for row in checks if row["check"].endswith(", float32")]
    scores = [row["largest_difference"] for row in metrics if "largest_difference" in row]
    return [
        {"what": what, "against": against, "cases": cases, "difference": difference}
        for what, against, cases, difference in (
            ("states of model families", "transformers, float32", len(parity),
             max(row["states_error"] for row in parity)),
            ("their logits", "transformers, float32", len(logits), max(logits)),
            ("metrics, scores of 0 to 100", "reference packages", len(scores), max(scores)),
            ("losses on 2 and 4 devices", "one device", meshes["cases"], meshes["loss_difference"]),
            ("gradients on 2 and 4 devices", "one device", meshes["cases"],
             meshes["gradient_difference"]),
            ("losses and gradients on a GPU", "the CPU, float32", len(float32), max(float32)),
            ("state-space kernels", "float64", len(errors),
             max(row["relative_l2"] for row in errors)),
        )
    ]  # fmt: skip


def reliability(read: Read) -> Rows:
    """Returns one row per kind of trial: number and failures."""
    runs = read("reliability")["rows"]
    sections = ("kill", "signal", "commands", "elastic", "disk")
    totals = {name: trials(runs, name)[-1] for name in sections}
    damage = trials(runs, "damage")[-1]
    server = read("serving_soak")["rows"]
    [load] = served(server)
    hostile, ends = attacked(server)[-1], killed(server)[-1]
    fuzz, mutants = read("fuzz")["rows"], mutated(read("mutants")["rows"])[-1]
    return [
        {"trial": trial, "number": number, "failed": failed}
        for trial, number, failed in (
            ("training killed by SIGKILL", totals["kill"]["kills"], totals["kill"]["failed"]),
            ("training stopped by SIGTERM or SIGINT", totals["signal"]["signals"],
             totals["signal"]["failed"]),
            ("other command killed by SIGKILL", totals["commands"]["kills"],
             totals["commands"]["failed"]),
            ("training moved to other hosts, devices or processes", totals["elastic"]["changes"],
             totals["elastic"]["failed"]),
            ("damaged model, checkpoint, shard or predictions", damage["flips"] + damage["cuts"],
             damage["wrong"] + damage["crashed"]),
            ("command on a failing or slow disk", totals["disk"]["equal"],
             totals["disk"]["failed"]),
            ("server: answers under steady load", load["answers"],
             load["different"] + load["errors"] + load["lost"]),
            ("server: stops while clients wait", ends["ends"], ends["lost"] + ends["different"]),
            ("server: hostile requests", hostile["requests"], hostile["failed"]),
            ("damaged files read (faults since fixed)", sum(row["files"] for row in fuzz),
             sum(row["failures"] for row in fuzz)),
            ("mutants of the code, not noticed at first (tests since added)",
             mutants["mutants"] - mutants["equivalent"],
             mutants["mutants"] - mutants["equivalent"] - mutants["killed"]),
        )
    ]  # fmt: skip
