import errno
import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from longsum_jax.commands import console
from longsum_jax.commands.console import keep_compiled_programs, run
from longsum_jax.errors import InputError

PROGRAM = """
from longsum_jax.commands import console
def main(argv):
    import jax
    print(jax.jit(lambda x: x + 1)(1))
console.run(main)
"""


def test_programs_are_kept_in_the_cache_of_the_user(tmp_path):
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    keep_compiled_programs(environment)
    directory = environment["JAX_COMPILATION_CACHE_DIR"]
    assert os.path.dirname(directory) == str(tmp_path / "longsum_jax" / "compiled")
    assert os.path.isdir(directory)


@pytest.mark.parametrize(
    "given",
    [
        {"JAX_COMPILATION_CACHE_DIR": "mine"},
        {"JAX_ENABLE_COMPILATION_CACHE": "False"},
        {"XDG_CACHE_HOME": "f"},
    ],
)
def test_programs_go_where_one_says_or_nowhere(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_text("a file in the place of a directory")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "f"), **given}
    before = dict(environment)
    keep_compiled_programs(environment)
    assert environment == before


@pytest.mark.slow
def test_commands_keep_their_programs(tmp_path):
    own = {
        "XDG_CACHE_HOME": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PLATFORMS": "cpu",
    }
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"):
        own[name] = None
    environment = {key: value for key, value in (os.environ | own).items() if value is not None}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("2\n", "")
    assert list(tmp_path.rglob("jit_*-cache"))


WAITING = """
import threading, time
from longsum_jax.commands import console
from longsum_jax.errors import InputError

def main(argv):
    print("told", flush=True)
    threading.Thread(target=time.sleep, args=(60,)).start()  # as of a save that failed
    raise InputError("the disk is gone")

console.run_process(main)
"""


def test_a_process_ends_with_its_error_whatever_its_threads_wait_for():
    done = subprocess.run(
        [sys.executable, "-c", WAITING], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout) == (2, "told\n")
    assert done.stderr == "error: the disk is gone\n"


def test_an_error_of_the_program_is_shown_whatever_its_threads_wait_for():
    program = WAITING.replace('InputError("the disk is gone")', 'KeyError("a fault")')
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout) == (1, "told\n")
    assert done.stderr.endswith("KeyError: 'a fault'\n")


NOTING = """
import logging
from longsum_jax.commands import console

def main(argv):
    logging.basicConfig()  # as by absl
    logging.getLogger("longsum_jax.text").warning("a note")

console.run_process(main)
"""


def test_notes_of_the_library_have_no_prefix():
    done = subprocess.run([sys.executable, "-c", NOTING], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "a note\n")


PRINTING = """
import sys
from longsum_jax.commands import console
console.run(lambda argv: print("summary", sys.stdin.read(), file=sys.stderr) or print("summary"))
"""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        (
            ">/dev/full",
            2,
            r"summary \nerror: standard output, or a file: No space .*; free up space.*\n",
        ),
        (">&-", 0, r"summary \n"),
        ("2>&-", 0, ""),
        ("<&-", 0, r"summary \n"),
        ("<&- >&- 2>&-", 0, ""),
    ],
)
def test_streams_that_are_full_or_closed(streams, code, said):
    command = f'"{sys.executable}" -c "$PRINTING" </dev/null {streams}'
    done = subprocess.run(
        command,
        shell=True,
        env=os.environ | {"PRINTING": PRINTING},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == code
    assert re.fullmatch(said, done.stderr)


@pytest.mark.parametrize(
    ("take", "said"),
    [
        (lambda: bytearray(2**62), "too little memory; end other programs"),
        (lambda: np.empty((2**40, 2**20), np.uint8), r"too little memory \(Unable to allocate 1"),
    ],
)
def test_a_machine_without_memory_is_one_sentence(monkeypatch, tmp_path, take, said):
    text = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    for name, stream in zip(("stdout", "stderr"), text, strict=True):
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        run(lambda argv: take())
    assert ended.value.code == 2
    printed = sys.stderr.buffer.getvalue().decode()
    assert re.match(f"error: this machine has {said}", printed)
    assert printed.count("\n") == 1


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("kind", "printed"),
    [
        (io.TextIOWrapper, b'{"caf\xc3\xa9": "\xe2\x80\x94", "name": "\\udce9"}\n'),
        (Terminal, b'{"caf\\xe9": "\\u2014", "name": "\\udce9"}\n'),
    ],
)
def test_what_programs_read_is_utf_8_in_every_locale(monkeypatch, tmp_path, kind, printed):
    text = (kind(io.BytesIO(), encoding="ascii", write_through=True) for _ in range(2))
    for name, stream in zip(("stdout", "stderr"), text, strict=True):
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    line = json.dumps({"café": "—", "name": "\udce9"}, ensure_ascii=False)
    with pytest.raises(SystemExit):
        run(lambda argv: print(line))
    assert sys.stdout.buffer.getvalue() == printed


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_fails_is_one_sentence(monkeypatch, tmp_path, number):
    def main(argv):
        raise OSError(number, os.strerror(number), str(tmp_path / "file"))

    text = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    for name, stream in zip(("stdout", "stderr"), text, strict=True):
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SystemExit) as caught:
        run(main)
    assert caught.value.code == 2
    said = sys.stderr.buffer.getvalue().decode()
    problem = os.strerror(number)
    assert said.startswith(f"error: {tmp_path / 'file'}: {problem}; free up space")


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["--lenght=short", "a.txt"], "; did you mean --length?"),
        (["--num-beams", "4"], "; did you mean --num_beams?"),
        (["--xyzzy"], ""),
        (["-out=a"], "; did you mean --out?"),
        (["-length", "short"], "; did you mean --length?"),
    ],
)
def test_an_unknown_flag_is_named_with_the_one_that_is_meant(argv, meant):
    parser = console.parser("summarize", "Summarizes.", "  longsum summarize a.txt")
    for flag in ("--length", "--num_beams", "--out"):
        parser.add_argument(flag, required=True)  # which is missing, too
    parser.add_argument("files", nargs="*")
    flag = argv[0].partition("=")[0]
    with pytest.raises(
        InputError, match=f"^unknown flag {flag}{re.escape(meant)}; run longsum summ"
    ):
        parser.parse_args(argv)


def test_a_key_of_a_config_without_its_prefix():
    parser = console.parser("train", "Trains.", "  longsum train --config=a.py")
    parser.add_argument("--config.KEY")
    with pytest.raises(InputError, match=re.escape("did you mean --config.training.steps?")):
        parser.parse_args(["--training.steps=3"])
    with pytest.raises(InputError, match="unknown flag --steps; values of the config are --config"):
        parser.parse_args(["--steps=3"])


def test_what_looks_like_a_flag_and_is_none():
    parser = console.parser("summarize", "Summarizes.", "  longsum summarize a.txt")
    parser.add_argument("files", nargs="*")
    assert parser.parse_args(["--", "--name.txt"]).files == ["--name.txt"]
    assert parser.parse_args(["-"]).files == ["-"]


def test_the_home_directory_behind_a_flag(monkeypatch, tmp_path):
    """Shells replace ``~`` at the beginning of an argument alone."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    given = ["--out=~/x", "-o=~/x", "--config.init_from=~/a=b", "~/y", "--text=~", "a~/b"]
    monkeypatch.setattr(sys, "argv", ["longsum", *given])
    result = []
    with pytest.raises(SystemExit):
        console.run(result.extend)
    expected = [f"--out={tmp_path}/x", f"-o={tmp_path}/x", f"--config.init_from={tmp_path}/a=b"]
    assert result == [*expected, *given[3:]]


def test_texts_of_flags_are_utf_8_where_the_locale_cannot_decode_them():
    """Names of files keep the bytes that the system has given."""
    parser = console.parser("x", "", "")
    parser.add_argument("--query", metavar="TEXT")
    parser.add_argument("--document_key", default="document")
    parser.add_argument("file", metavar="FILE")
    undecoded = "K\udcc3\udcb6ln"
    result = parser.parse_args([f"--query={undecoded}", f"--document_key={undecoded}", undecoded])
    assert (result.query, result.document_key, result.file) == ("Köln", "Köln", undecoded)
