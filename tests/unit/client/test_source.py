"""Packing source: the same bytes for the same files, what is left out, and what is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from muster.client.launch import source_archive as source
from muster.client.launch.dry_run import dry_run
from muster.client.launch.source_archive import pack
from muster.contract.errors import SpecError
from muster.contract.run.source_delivery import source_key
from muster.contract.spec.spec_reader import parse_spec
from muster.replica.entry.unpack import unpack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "code"
    (place / "package").mkdir(parents=True)
    (place / "train.py").write_text("print('training')")
    (place / "package" / "__init__.py").write_text("")
    (place / "run.sh").write_text("#!/bin/sh\n")
    (place / "run.sh").chmod(0o750)
    return place


def files(place: Path, tmp_path: Path) -> dict[str, str]:
    packed = pack(place)
    archive = tmp_path / f"{packed.digest}.tar.gz"
    archive.write_bytes(packed.compressed())
    out = tmp_path / f"out-{packed.digest}"
    unpack(archive, out)
    return {str(path.relative_to(out)): path.read_text() for path in out.rglob("*") if path.is_file()}


def test_the_same_files_give_the_same_bytes_on_every_machine_at_any_time(folder: Path, tmp_path: Path) -> None:
    first = pack(folder)
    elsewhere = folder.rename(tmp_path / "elsewhere")
    os.utime(elsewhere / "train.py", (1, 1))
    (elsewhere / "train.py").chmod(0o600)
    again = pack(elsewhere)
    assert (again.digest, again.compressed()) == (first.digest, first.compressed())
    assert first.key == source_key(first.digest)
    for change in (lambda: (elsewhere / "train.py").write_text("x"), lambda: (elsewhere / "run.sh").chmod(0o600)):
        change()
        assert pack(elsewhere).digest != first.digest


def test_what_is_packed_comes_out_again(folder: Path, tmp_path: Path) -> None:
    assert files(folder, tmp_path) == {
        "train.py": "print('training')",
        "package/__init__.py": "",
        "run.sh": "#!/bin/sh\n",
    }
    out = next(tmp_path.glob("out-*"))
    assert [(out / name).stat().st_mode & 0o777 for name in ("run.sh", "train.py")] == [0o755, 0o644]


def test_what_is_ignored_stays(folder: Path, tmp_path: Path) -> None:
    for name in (".git/config", "package/__pycache__/a.pyc", "data/big.bin", "package/notes.txt", "notes.txt", "a/b/c"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / ".musterignore").write_text("# data lies in S3\ndata/\n\npackage/*.txt\nc\n")
    assert set(files(folder, tmp_path)) == {"train.py", "package/__init__.py", "run.sh", "notes.txt", ".musterignore"}


@pytest.mark.parametrize(
    ("patterns", "left_out"),
    [
        ("/notes.txt", {"notes.txt"}),  # an anchor: at the root alone
        ("package/notes.txt", {"package/notes.txt"}),
        ("*.txt\n!package/notes.txt", {"notes.txt", "data/notes.txt", "data/deep/notes.txt", "#1.txt"}),
        ("data/**/notes.txt", {"data/notes.txt", "data/deep/notes.txt"}),
        ("**/deep", {"data/deep/notes.txt"}),
        ("data/*", {"data/notes.txt", "data/deep/notes.txt"}),
        ("data/*\n!data/deep", {"data/notes.txt"}),
        ("data\n!data/notes.txt", {"data/notes.txt", "data/deep/notes.txt"}),  # its folder is left out
        ("train.py/", set()),  # a folder of that name, which there is not
        ("[mn]otes.txt ", {"notes.txt", "package/notes.txt", "data/notes.txt", "data/deep/notes.txt"}),
        (r"\#1.txt", {"#1.txt"}),
        ("!.env\n!venv", set()),  # what is never code stays out
    ],
)
def test_an_ignore_file_reads_like_one_of_git(folder: Path, tmp_path: Path, patterns: str, left_out: set[str]) -> None:
    names = {"notes.txt", "package/notes.txt", "data/notes.txt", "data/deep/notes.txt", "#1.txt"}
    for name in (*names, ".env", "venv/bin/python"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / ".musterignore").write_text(patterns)
    always = {"train.py", "package/__init__.py", "run.sh", ".musterignore"}
    assert set(files(folder, tmp_path)) == (names | always) - left_out


def test_a_pattern_that_means_nothing_is_refused_with_its_line(folder: Path) -> None:
    (folder / ".musterignore").write_text("*.txt\n!\n")
    with pytest.raises(SpecError, match=r"source_dir: found '!' in line 2 of .musterignore"):
        pack(folder)


def test_a_link_within_the_folder_is_the_file_that_it_names(folder: Path, tmp_path: Path) -> None:
    (folder / "link.py").symlink_to("train.py")
    assert files(folder, tmp_path)["link.py"] == "print('training')"


@pytest.mark.parametrize("target", ["../outside.txt", "package", "missing"])
def test_any_other_link_is_refused(folder: Path, tmp_path: Path, target: str) -> None:
    (tmp_path / "outside.txt").write_text("secret")
    (folder / "link").symlink_to(target)
    with pytest.raises(
        SpecError,
        match="source_dir: found link, which is a link to something outside this folder, or not a file; remove it",
    ):
        pack(folder)


def test_too_much_is_refused_with_the_largest_file_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    monkeypatch.setattr(source, "SOURCE_BYTES_MAX", size)
    assert pack(folder).files == 3
    monkeypatch.setattr(source, "SOURCE_BYTES_MAX", size - 1)
    with pytest.raises(
        SpecError, match=r"found 27 bytes \(train.py alone has 17\); at most 26 bytes; exclude everything"
    ):
        pack(folder)
    monkeypatch.setattr(source, "SOURCE_FILES_MAX", 2)
    with pytest.raises(SpecError, match="found 3 files; at most 2"):
        pack(folder)


def test_a_folder_that_is_too_deep_to_be_unpacked_is_refused(folder: Path) -> None:
    deepest = folder.joinpath(*"a" * 99)
    deepest.mkdir(parents=True)
    (deepest / "b.py").write_text("")
    assert pack(folder).files == 4
    (deepest / "c").mkdir()
    (deepest / "c" / "b.py").write_text("")
    with pytest.raises(SpecError, match=r"found a/a/a/.*…, a path of 101 parts; at most 100"):
        pack(folder)


@pytest.mark.parametrize("name", ["missing", "code/train.py", "empty"])
def test_what_is_no_folder_of_code_is_refused(folder: Path, name: str) -> None:
    (folder.parent / "empty").mkdir()
    with pytest.raises(SpecError, match="source_dir: found"):
        pack(folder.parent / name)


def test_a_dry_run_shows_the_two_channels_and_the_start(folder: Path) -> None:
    spec = {"replicas": 1, "entrypoint": ["python", "train.py"], "image": "image:1", "source_dir": str(folder)}
    dry = dry_run(parse_spec(spec))
    [request] = dry.requests
    channels = {item["ChannelName"]: item["DataSource"]["S3DataSource"] for item in request["InputDataConfig"]}
    assert channels["muster-source"]["S3Uri"] == f"s3://<bucket>/{pack(folder).key}"
    assert channels["muster-package"]["S3DataType"] == "S3Prefix"
    start = request["AlgorithmSpecification"]["ContainerEntrypoint"]
    assert start[0] == "sh"
    assert max(map(len, start)) <= 256
    assert dry.source is not None
    assert dry.source.files == 3


def test_files_that_usually_hold_credentials_are_not_packed(folder: Path) -> None:
    expected = pack(folder)
    for name in (".env", ".env.production", ".aws/credentials", "package/.ssh/id_rsa", ".netrc", ".git-credentials"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("secret")
    assert pack(folder) == expected


def test_a_file_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(SpecError, match=r"package/__init__\.py, which cannot be read \(permission denied\)"):
        pack(folder)
