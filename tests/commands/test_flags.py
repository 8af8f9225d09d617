from pathlib import Path

import pytest

from longsum_jax.commands import console, flags
from longsum_jax.errors import InputError
from longsum_jax.readers import ReadOptions


@pytest.fixture
def parser():
    parser = console.parser("summarize", "Summarizes.", "  longsum summarize a.txt")
    flags.add_model_flags(parser)
    flags.add_generation_flags(parser)
    return parser


def test_options_are_what_the_command_line_says(parser):
    args = parser.parse_args(["--model=a", "--matmul_precision=default", "--num_beams=2"])
    assert flags.load_options(args)["matmul_precision"] == "default"
    assert flags.generation_options(args) == {"num_beams": 2}
    assert flags.given(args, ["tokenizer", "num_beams"]) == {"num_beams": 2}


def test_the_largest_number_of_shards():
    parser = console.parser("prepare", "Prepares.", "  longsum prepare")
    parser.add_argument("--num_shards", type=int)
    assert parser.parse_args(["--num_shards=16384"]).num_shards == 16384
    with pytest.raises(InputError, match="num_shards"):
        parser.parse_args(["--num_shards=16385"])


def test_a_flag_without_effect_is_refused(parser):
    args = parser.parse_args(["--model=a", "--which=latest"])
    assert flags.changed(args, parser, ["which", "dtype"]) == ["which"]
    flags.refuse_idle(args, parser, ["dtype"], "with --x")
    with pytest.raises(InputError, match="--which has no effect with --x; leave it out"):
        flags.refuse_idle(args, parser, ["dtype", "which"], "with --x")


def test_files_that_could_not_be_written_are_refused_at_once(tmp_path, monkeypatch):
    flags.check_file("report", None)
    flags.check_file("report", str(tmp_path / "a.html"))
    monkeypatch.setattr("os.access", lambda path, mode: False)
    for path, problem in (
        (tmp_path, " is a directory; give a file"),
        (
            tmp_path / "no" / "a.html",
            f": directory {tmp_path / 'no'} does not exist; create it first",
        ),
        (tmp_path / "a.html", f": {tmp_path} cannot be written; give another --report"),
    ):
        with pytest.raises(InputError) as caught:
            flags.check_file("report", str(path))
        assert str(caught.value) == f"--report={path}{problem}"


def test_files_that_are_read_are_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("An old bridge fell.", encoding="utf-8")
    Path("b.txt").symlink_to("a.txt")
    flags.refuse_input("report", "a.html", ["a.txt", None])
    flags.refuse_input("report", "a.txt", ["b.json"])
    for path in ("a.txt", "./a.txt", "b.txt", "[a].txt", "json:*.txt"):
        with pytest.raises(InputError, match="is read by this command; give another --report"):
            flags.refuse_input("report", "a.txt", [path])


def test_help_says_what_happens_beyond_the_limit_of_pages(parser):
    flags.add_file_flags(parser)
    shown = " ".join(parser.format_help().split())
    limit = f"longer files are refused; default: {ReadOptions.max_pages:,}"
    assert limit in shown
