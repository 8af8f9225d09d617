"""Fixtures of all tests, in ``tests`` and ``studies/tests``: a small tokenizer, small models, a
short training run, scripts of benchmarks and studies, real documents if they are available."""

import gc
import importlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import jax
import pytest
from beartype import BeartypeConf, beartype
from jax.experimental.compilation_cache import compilation_cache
from jaxtyping import config as jaxtyping_config
from jaxtyping import install_import_hook

# Modules whose annotated shapes are checked at every call that a test makes: all with arrays in
# them. Options and configs check their values themselves, with sentences of their own.
_LAYERS = (
    "attention.base attention.bigbird attention.cross attention.full attention.global_tokens "
    "attention.hybrid attention.local attention.longformer "
    "attention.lsg attention.multi_head "
    "attention.staggered attention.state_space chunking decoder decoder_cache decoder_layer "
    "dense encoder layer layer_groups memory partitioning s4d"
)
_MODELS = "bart bert bert_heads encoder_decoder extraction_head heads salient_vectors t5"
_DECODING = "beams decoder drafts logits sampling search"
CHECKED_MODULES = (
    "longsum_jax.ops",
    "longsum_jax.experimental.ops",
    "longsum_jax.experimental.attention",
    *(f"longsum_jax.layers.{name}" for name in _LAYERS.split()),
    *(f"longsum_jax.models.{name}" for name in _MODELS.split()),
    *(f"longsum_jax.decoding.{name}" for name in _DECODING.split()),
)


def check_types(function):
    """Checks the annotated types of arguments and result at every call.

    Functions inside of others are left alone: they would be compiled anew whenever the outer one is
    called, which takes longer than everything else that these tests do.
    """
    if "<locals>" in getattr(function, "__qualname__", ""):
        return function
    return beartype(conf=BeartypeConf(is_pep484_tower=True))(function)  # an int is a float


# Other files are named conftest, so the hook finds this one by a name of its own.
sys.modules["root_conftest"] = sys.modules[__name__]
install_import_hook(CHECKED_MODULES, "root_conftest.check_types")

ROOT = Path(__file__).parent
TESTS = ROOT / "tests"
# Rooms whose own tests check the types. Others call the same functions with the same shapes, and
# the check is a tenth of their time.
CHECKED_ROOMS = tuple(
    TESTS / room
    for room in (
        "ops",
        "layers",
        "models",
        "decoding",
        "experimental/ops",
        "experimental/attention",
    )
)


@pytest.fixture(autouse=True, scope="module")
def types_are_checked_in_their_rooms(request):
    elsewhere = not any(map(request.path.is_relative_to, CHECKED_ROOMS))
    jaxtyping_config.update("jaxtyping_disable", elsewhere)


MOST_MEMORY = 3 * 2**30  # bytes of a process, beyond which it forgets what it compiled
MORE_MEMORY = 2**30  # that it takes before it forgets again: freed memory stays with the process
# Traces are millions of objects that stay: looking among them for garbage as often as Python does
# is a tenth of the time of tracing.
GARBAGE_THRESHOLDS = 20_000, 10, 10


def pytest_collection_finish():
    """What is imported by now stays: it is not looked through for garbage again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def memory_limit():
    return {"bytes": MOST_MEMORY}


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_are_forgotten(memory_limit):
    """Compiled programs stay in memory, gigabytes of them by the end of a run."""
    yield
    if _resident_bytes() > memory_limit["bytes"]:
        jax.clear_caches()
        gc.collect()
        memory_limit["bytes"] = max(MOST_MEMORY, _resident_bytes() + MORE_MEMORY)


def _resident_bytes():
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # not on Linux
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def resident_bytes():
    """A function that returns the memory of this process, 0 where that is not known."""
    return _resident_bytes


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser, for tests marked `browser`."""
    path = Path(__file__).parent / "tests" / "evaluation" / "browser.py"
    spec = importlib.util.spec_from_file_location("evaluation_browser", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    program = os.environ["LONGSUM_JAX_BROWSER"]
    started = module.Browser(program, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


# Environment variables that name what is not part of the repository, by the marker of its tests.
VARIABLES = {
    "shared_data": "LONGSUM_JAX_DATA",
    "minilm": "LONGSUM_JAX_MINILM",
    "browser": "LONGSUM_JAX_BROWSER",
    "axe": "LONGSUM_JAX_AXE",
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")  # looked for where none is named


# Modules of which one must be installed, by the marker of the tests that compile with them.
COMPILERS = {
    "tpu_compiler": ("libtpu",),
    "cuda_compiler": ("jax_cuda12_plugin", "jax_cuda13_plugin"),
}


# Compiling is most of what these tests do: it is done with few optimizations. Processes that tests
# start inherit that, and keep what they compiled for each other.
FAST_COMPILATION = {
    "jax_disable_most_optimizations": True,
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
# Without fusion emitters code is made in half the time; in pieces it is made on several cores,
# which the processes of a run fill already.
XLA_FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
# Threads of torch and numpy would wait for each other at every product, for the same reason.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


# Rooms whose tests compile the same programs again and again, on either worker: they are kept in a
# folder of the run. Elsewhere one in ten recurs, and keeping all takes longer than that saves.
RECURRING_ROOMS = tuple(TESTS / room for room in ("commands", "training"))


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_are_kept_where_they_recur(request):
    recur = any(map(request.path.is_relative_to, RECURRING_ROOMS))
    if recur != jax.config.jax_enable_compilation_cache:
        jax.config.update("jax_enable_compilation_cache", recur)
        compilation_cache.reset_cache()  # or the first answer would stay


# Hosts that tests may reach: processes of theirs on this machine.
LOCAL_HOSTS = (None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::")


def refuse_network(event, arguments):
    """Nothing may be downloaded: an audit hook that refuses connections to other machines."""
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    else:
        return
    if host not in (*LOCAL_HOSTS, socket.gethostname()):
        raise RuntimeError(f"a test reaches for {host}; tests need no network")


def pytest_configure(config):
    jax.config.update("jax_enable_compilation_cache", False)
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    sys.addaudithook(refuse_network)
    if hasattr(config, "workerinput"):
        return  # the environment is that of the process that started this one
    installed = next(filter(None, map(shutil.which, BROWSERS)), None)
    if installed is not None:
        os.environ.setdefault(VARIABLES["browser"], installed)
    programs = tempfile.TemporaryDirectory(prefix="compiled_programs")
    config.add_cleanup(programs.cleanup)
    for name, value in {**FAST_COMPILATION, "jax_compilation_cache_dir": programs.name}.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)
    os.environ.update(ONE_THREAD)
    if _are_known(XLA_FLAGS):
        os.environ["XLA_FLAGS"] = f"{XLA_FLAGS} {os.environ.get('XLA_FLAGS', '')}"


def _are_known(flags):
    """Asks a process of its own: XLA ends one that has a flag which it does not know."""
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL).returncode == 0


# Rooms whose tests compile a program for every case.
COMPILED_ROOMS = [
    "tests/benchmarks",
    "tests/experiment",
    "tests/inference",
    "tests/layers",
    "tests/models",
    "tests/ops",
    "tests/parity",
    "studies/tests",
]


def pytest_collection_modifyitems(config, items):
    """Leaves the quick half one case of a test that compiles; deselects tests of what is not at
    hand (no run reports skipped tests); files that take long come first, so that processes end
    together."""
    _mark_further_cases_slow(items)
    missing = [marker for marker, variable in VARIABLES.items() if variable not in os.environ]
    for marker, modules in COMPILERS.items():
        if not any(map(importlib.util.find_spec, modules)):
            missing.append(marker)
    deselected = [item for item in items if any(map(item.get_closest_marker, missing))]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]
    slow = Counter(item.path for item in items if _is_slow_every_day(item))
    items.sort(key=lambda item: slow[item.path], reverse=True)


def _is_slow_every_day(item):
    return item.get_closest_marker("slow") and not item.get_closest_marker("weekly")


def _mark_further_cases_slow(items):
    seen = set()
    for item in items:
        room = "/".join(item.path.relative_to(ROOT).parts[:2])
        test = (item.path, item.originalname)
        if item.get_closest_marker("weekly") or (room in COMPILED_ROOMS and test in seen):
            item.add_marker(pytest.mark.slow)
        seen.add(test)


@pytest.fixture(scope="session")
def minilm():
    """A pretrained BERT that embeds texts, for tests marked `minilm`."""
    import longsum_jax

    return longsum_jax.load(os.environ[VARIABLES["minilm"]])


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real documents, for tests marked `shared_data`."""
    return Path(os.environ[VARIABLES["shared_data"]])


@pytest.fixture(scope="session")
def topics():
    """English documents that every CPython carries: its language reference, by topic."""
    from pydoc_data import topics

    return list(topics.topics.values())


@pytest.fixture(scope="session")
def tiny_tokenizer(topics):
    """A SentencePiece tokenizer of 1,000 pieces and 10 extra ids, trained on `topics`."""
    from longsum_jax.tokenizers.train import train_sentencepiece

    return train_sentencepiece(topics, 1000, extra_ids=10)


GOLDEN = TESTS / "golden" / "locost"


@pytest.fixture(scope="module")
def optimized_compilation():
    """Compiles as users do, for tests that look into compiled programs or run for long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS")
        jax.config.update("jax_disable_most_optimizations", False)
        yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def draw_params():
    """Random parameters of a module without compiling its ``init``: ``draw_params(init,
    *arguments)``, unboxed."""
    import flax.linen as nn
    import numpy as np

    def value(path, leaf, rng):
        name, shape = path[-1].key, leaf.shape
        fixed = {
            "log_dt": lambda: rng.uniform(np.log(1e-3), np.log(1e-1), shape),
            "inv_A_real": lambda: np.full(shape, np.log(0.5)),
            "A_imag": lambda: np.broadcast_to(np.pi * np.arange(shape[-1]), shape),
            "scale": lambda: 1 + 0.1 * rng.normal(size=shape),
            "embedding": lambda: rng.normal(size=shape),
        }
        return np.asarray(fixed.get(name, lambda: 0.2 * rng.normal(size=shape))(), leaf.dtype)

    def draw(init, *arguments, seed=0):
        shapes = nn.meta.unbox(jax.eval_shape(init, jax.random.key(0), *arguments))
        rng = np.random.default_rng(seed)
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: jax.device_put(value(path, leaf, rng)), shapes
        )

    return draw


@contextmanager
def quick_starts():
    """A context in which models of this process start from waves where they would start from random
    numbers, as compiling those is a third of a small run, and runs train a tokenizer once for the
    same texts."""
    import numpy as np

    from longsum_jax.models.family import Family
    from longsum_jax.tokenizers import train

    def wave(path, leaf):
        (name,) = [entry.key for entry in path if hasattr(entry, "key")][-1:]
        places = np.arange(leaf.size, dtype=np.float32).reshape(leaf.shape)
        wave = np.sin(len(str(path)) + 37.7 * places)
        values = {
            "log_dt": -5 + 2 * wave,
            "inv_A_real": np.full(leaf.shape, -0.7),
            "A_imag": np.pi * (places % leaf.shape[-1]),
            "scale": 1 + 0.1 * wave,
        }
        return values.get(name, 0.2 * wave).astype(leaf.dtype)

    def init_params(family, config):
        shapes = jax.eval_shape(random(family, config), jax.random.key(0))
        return lambda key: jax.tree_util.tree_map_with_path(wave, shapes)

    def train_sentencepiece(texts, vocab_size, **options):
        texts = tuple(texts)
        key = (hash(texts), len(texts), vocab_size, *options.items())
        if key not in tokenizers:
            tokenizers[key] = trained(texts, vocab_size, **options)
        return tokenizers[key]

    random, trained, tokenizers = Family.init_params, train.train_sentencepiece, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Family, "init_params", init_params)
        patch.setattr(train, "train_sentencepiece", train_sentencepiece)
        yield


@pytest.fixture(scope="module")
def drawn_start():
    """``quick_starts`` for all tests of a module."""
    with quick_starts():
        yield


@pytest.fixture(scope="session")
def run_worker():
    """Runs a script in a process of its own and returns the JSON of its last line:
    ``run_worker(path, *arguments)``. Warnings are errors there unless ``strict`` is false."""

    def run(path, *arguments, strict=True):
        options = ("-W", "error") if strict else ()
        places = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, *options, str(path), *map(str, arguments)],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": places},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture
def free_port():
    """Finds a port that nobody listens on."""

    def find():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    return find


@pytest.fixture(scope="session")
def golden():
    """Reads golden arrays by name; see golden/locost/README.md."""
    import numpy as np

    def read(name):
        with np.load(GOLDEN / f"{name}.npz") as arrays:
            return dict(arrays)

    return read


@pytest.fixture(scope="session")
def publish(golden):
    """Writes a directory as published: config.json, and weights with tied copies, as safetensors or
    .bin."""
    arrays = ("greedy", "logits", "input_ids", "attention_mask", "labels")

    def make(
        directory,
        name,
        *,
        weights="model.safetensors",
        generation=None,
        change=lambda state: state,
        **config,
    ):
        directory.mkdir()
        values = json.loads((GOLDEN / "c_full_config.json").read_text()) | config
        (directory / "config.json").write_text(json.dumps(values))
        if generation is not None:
            (directory / "generation_config.json").write_text(json.dumps(generation))
        state = change({key: value for key, value in golden(name).items() if key not in arrays})
        _write_weights(directory / weights, state)
        return directory

    return make


@pytest.fixture
def published(tmp_path, publish):
    """`publish` into a directory of the test's own."""
    return lambda name="c_full_state", **options: publish(tmp_path / "published", name, **options)


def _write_weights(path, state):
    if path.suffix == ".safetensors":
        from safetensors.numpy import save_file

        save_file(state, path)
    else:
        import torch

        torch.save({key: torch.from_numpy(value) for key, value in state.items()}, path)


@pytest.fixture(scope="session")
def small_model(tiny_tokenizer, tmp_path_factory, draw_params):
    """A model directory of one layer each with random weights and `tiny_tokenizer`."""
    from longsum_jax.models.registry import get_family
    from longsum_jax.summarization.model import Model

    family = get_family("locost")
    sizes = {
        "d_model": 16,
        "d_state": 8,
        "d_kv": 8,
        "d_ff": 16,
        "num_heads": 2,
        "num_layers": 1,
        "num_decoder_layers": 1,
    }
    # Tied and untrained, it would repeat its start token.
    config = family.config(
        {"vocab_size": tiny_tokenizer.vocab_size, "tie_word_embeddings": False, **sizes}
    )
    directory = tmp_path_factory.mktemp("small") / "model"
    params = draw_params(family.init_params(config))
    Model(family, config, params, tiny_tokenizer, {"max_new_tokens": 6}).save(directory)
    return directory


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The workdir of `train --config=configs/quickstart.py:tiny` cut down to seconds: two
    evaluations, three steps."""
    from longsum_jax.commands import train

    workdir = tmp_path_factory.mktemp("trained") / "run"
    with quick_starts():
        command = [f"--config=configs/quickstart.py:{TINY_RUN}", f"--workdir={workdir}"]
        assert train.main(command) == 0
    return workdir


# The smallest run of the quickstart's tiny mode.
TINY_RUN = (
    "tiny,training.steps=3,training.eval_every=2,model.vocab_size=384,model.d_model=16,model.d_state=8,model.d_kv=8,"
    "model.d_ff=16,model.num_heads=2,model.num_layers=1,model.num_decoder_layers=1,task.max_source_length=64,"
    "task.max_target_length=16,evaluation.max_new_tokens=4"
)


@pytest.fixture(scope="session")
def tiny_run():
    """The --config of `trained`, for commands that go on with it or start another like it."""
    return f"configs/quickstart.py:{TINY_RUN}"


METRICS_LINES = (
    {"step": 10, "loss": 4.0, "learning_rate": 0.1},
    {"step": 20, "loss": None, "learning_rate": 0.2},
    {"step": 20, "eval": {"mean_rouge": 12.5, "lead_mean_rouge": 30.0}},
    {"step": 30, "loss": 2.0, "learning_rate": 0.05},
)


@pytest.fixture
def write_run(tmp_path):
    """Returns a function that writes metrics.jsonl into a new workdir."""

    def write(name, lines=METRICS_LINES, end=""):
        workdir = tmp_path / name
        workdir.mkdir()
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (workdir / "metrics.jsonl").write_text(text + end)
        return str(workdir)

    return write


# Folders of scripts that import each other by name.
SCRIPT_FOLDERS = (ROOT / "studies", ROOT / "benchmarks")


@pytest.fixture(scope="module")
def scripts(drawn_start):
    """Imports a script by its name; `common` of configs/ is another module of that name."""
    names = {path.stem for folder in SCRIPT_FOLDERS for path in folder.glob("*.py")}
    before = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    with pytest.MonkeyPatch.context() as patch:
        for folder in SCRIPT_FOLDERS:
            patch.syspath_prepend(str(folder))
        yield importlib.import_module
    for name in names & sys.modules.keys():
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def report(scripts, tmp_path, monkeypatch, capsys):
    """Runs a script with flags and returns the JSON report that it wrote."""

    def run(name, *flags):
        out = tmp_path / f"{name}.json"
        script = scripts(name)
        monkeypatch.setattr(sys, "argv", [script.__file__, *flags, f"--out={out}"])
        script.main()
        assert capsys.readouterr().out.count("\n") >= 2  # the table
        return json.loads(out.read_text())

    return run


@pytest.fixture(scope="session")
def with_programs_of():
    """with_programs_of(compiled, model): the model with what was compiled for another of the same
    config, which would be compiled once more for it."""

    def share(compiled, model):
        assert model.config == compiled.config
        model._runner.share_programs(compiled._runner)
        model._runner.kernels._make = compiled._runner.kernels._make
        if model.config.has_memory:
            for name in ("_start", "_read_segment", "_search", "_write_segment", "_keep"):
                own = getattr(compiled.segment_summarizer, name)
                setattr(model.segment_summarizer, name, own)
        return model

    return share
