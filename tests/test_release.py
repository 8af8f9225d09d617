"""What a release promises of its dependencies and of its build."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import re
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import longsum_jax

ROOT = Path(__file__).parents[1]
# Extras that no user's program runs with, and those that only choose devices of jax.
OTHER_EXTRAS = ("docs", "test", "all", "cuda12", "cuda13", "tpu", "plan-tpu", "plan-cuda")


@pytest.fixture(scope="module")
def requirements():
    """The dependencies of the core and of every extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    groups = [project["dependencies"], *(extras[name] for name in extras.keys() - OTHER_EXTRAS)]
    return [Requirement(line) for group in groups for line in group]


def lower_bound(requirement):
    [version] = [part.version for part in requirement.specifier if part.operator in (">=", "==")]
    return version


def test_oldest_versions_are_those_of_pyproject(requirements):
    lines = (ROOT / ".ci" / "oldest.txt").read_text().splitlines()
    listed = [Requirement(line) for line in lines if line and not line.startswith("#")]
    oldest = {requirement.name: lower_bound(requirement) for requirement in listed}
    assert oldest == {requirement.name: lower_bound(requirement) for requirement in requirements}
    assert len(listed) == len(oldest)
    assert [name.lower() for name in oldest] == sorted(name.lower() for name in oldest)


def test_versions_with_known_vulnerabilities_are_not_allowed(requirements):
    """Of libraries that read what others send: the first versions without them."""
    fixed = {
        "nltk": "3.9",  # CVE-2024-39705, pickles
        "python-multipart": "0.0.18",  # CVE-2024-53981, endless logs
        "starlette": "0.49.1",  # CVE-2025-62727, quadratic headers
        "torch": "2.6",  # CVE-2025-32434, the loader of weights alone
    }
    bounds = {requirement.name: lower_bound(requirement) for requirement in requirements}
    for name, version in fixed.items():
        assert Version(bounds[name]) >= Version(version), name


def test_what_is_installed_is_not_older(requirements):
    for requirement in requirements:
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            continue  # of an extra that is not there
        assert requirement.specifier.contains(version, prereleases=True), requirement


@pytest.fixture(scope="module")
def release():
    loader = importlib.machinery.SourceFileLoader("release", str(ROOT / ".ci" / "release"))
    spec = importlib.util.spec_from_loader("release", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_the_bill_of_materials_lists_what_the_core_needs(release):
    bill = json.loads(json.dumps(release.bill_of_materials("1.0", b"wheel", "86400")))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["timestamp"] == "1970-01-02T00:00:00Z"
    names = [part["name"] for part in bill["components"]]
    assert {"jax", "jaxlib", "scipy", "flax", "sentencepiece"} <= set(names)  # scipy: jax needs it
    assert not {"torch", "transformers", "tensorflow", "pytest"} & set(names)
    for part in bill["components"]:
        assert part["purl"] == f"pkg:pypi/{part['name']}@{metadata.version(part['name'])}"
    assert bill == release.bill_of_materials("1.0", b"wheel", "86400")
    assert bill["serialNumber"] != release.bill_of_materials("1.0", b"other", "0")["serialNumber"]


def archive():
    """The files that a wheel is made of, as git would archive them."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in (
            "longsum_jax",
            "configs",
            "setup.py",
            "pyproject.toml",
            "README.md",
            "LICENSE",
        ):
            tar.add(ROOT / name, name, filter=lambda x: None if "__pycache__" in x.name else x)
    return out.getvalue()


@pytest.mark.slow
def test_a_wheel_is_built_twice_alike(release, monkeypatch):
    monkeypatch.setattr(release, "committed_files", archive)
    source, content = release.build_twice("1600000000").values()
    with tarfile.open(fileobj=io.BytesIO(source)) as tar:
        assert {entry.mtime for entry in tar} == {1600000000}
        assert any(entry.name.endswith("/longsum_jax/checksums.py") for entry in tar)
    with zipfile.ZipFile(io.BytesIO(content)) as wheel:
        assert {entry.date_time[0] for entry in wheel.infolist()} == {2020}


def test_a_source_archive_is_made_twice_alike(release, tmp_path):
    """Whatever the order, times and owners of the files in it."""
    contents = []
    for number, names in enumerate(("ab", "ba")):
        path = tmp_path / f"{number}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name in names:
                info = tarfile.TarInfo(f"x-1/{name}")
                info.size, info.mtime, info.uid, info.uname = 1, 9 + number, number, f"u{number}"
                info.mode = 0o664 if number else 0o600
                archive.addfile(info, io.BytesIO(name.encode()))
        release.normalise(path, "86400")
        contents.append(path.read_bytes())
        with tarfile.open(path) as archive:
            members = {info.name: archive.extractfile(info).read() for info in archive}
            assert {info.mtime for info in archive} == {86400}
        assert members == {"x-1/a": b"a", "x-1/b": b"b"}
    assert contents[0] == contents[1]


def test_two_builds_that_differ_end_a_release(release, monkeypatch):
    def build(folder, epoch):
        path = folder / "a.whl"
        path.write_text(str(folder))
        return [path]

    monkeypatch.setattr(release, "build", build)
    with pytest.raises(SystemExit, match=r"a\.whl: two builds differ"):
        release.build_twice("0")


@pytest.mark.parametrize("code", [0, 1])
def test_what_an_audit_finds_or_cannot_look_for_ends_a_release(release, monkeypatch, capsys, code):
    asked = []

    def run(*command):
        asked.append((command[1:], Path(command[-1]).read_text()))
        if code:
            raise release.subprocess.CalledProcessError(code, command)
        return b""

    monkeypatch.setattr(release, "run", run)
    monkeypatch.setattr(release, "find_spec", lambda name: object())
    with pytest.raises(release.subprocess.CalledProcessError) if code else contextlib.nullcontext():
        release.audit()
    [(command, pinned)] = asked
    assert command[:2] == ("-m", "pip_audit")
    assert "--strict" in command  # else it passes over what its service does not know
    assert f"jax=={metadata.version('jax')}\n" in pinned
    assert capsys.readouterr().out == ""


def test_a_release_says_that_nobody_looked_for_vulnerabilities(release, monkeypatch, capsys):
    monkeypatch.setattr(release, "find_spec", lambda name: None)
    release.audit()
    assert "known vulnerabilities were not looked for" in capsys.readouterr().out


def test_version_is_the_newest_section_of_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    version, date = re.search(r"^## (\d\S*) \((\d{4}-\d\d-\d\d)\)$", changelog, re.M).groups()
    assert version == longsum_jax.__version__
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {version}\ndate-released: {date}\n" in citation


def test_entries_of_the_changelog_begin_with_the_kind_of_change():
    entries = re.findall(r"^- (\w+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert set(entries) == {"Added", "Changed", "Fixed", "Removed"}
