"""The source of a spec: which folder is meant; the same bytes for the same files, what is left out, what is refused."""

import errno
import io
import json
import os
import pwd
import tarfile
from pathlib import Path
from typing import NoReturn

import pytest

import muster
from muster.client.cli.spec_file import read_spec
from muster.client.launch import source_archive as source
from muster.client.launch.source_archive import PAGE_MARK, pack, source_files
from muster.contract.errors import SpecError
from muster.contract.training.source_delivery import source_key
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


def test_an_ignore_file_reads_like_one_of_git_and_what_is_never_code_stays_out(folder: Path, tmp_path: Path) -> None:
    names = {"notes.txt", "package/notes.txt", "data/notes.txt", "data/deep/notes.txt"}
    for name in (*names, ".env", "venv/bin/python", ".git/config", "package/__pycache__/a.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    always = {"train.py", "package/__init__.py", "run.sh", ".musterignore"}
    for patterns, left_out in (
        ("# a comment\n\n/notes.txt", {"notes.txt"}),  # an anchor: at the root alone
        ("*.txt\n!package/notes.txt", {"notes.txt", "data/notes.txt", "data/deep/notes.txt"}),
        ("data/*\n!data/deep", {"data/notes.txt"}),
        ("data\n!data/notes.txt", {"data/notes.txt", "data/deep/notes.txt"}),  # its folder is left out
        ("train.py/\n!.env\n!venv", set()),  # a folder of that name, which there is not
    ):
        (folder / ".musterignore").write_text(patterns)
        assert set(files(folder, tmp_path)) == (names | always) - left_out, patterns


def test_a_pattern_that_means_nothing_is_refused_with_its_line(folder: Path) -> None:
    (folder / ".musterignore").write_text("*.txt\n!\n")
    with pytest.raises(SpecError, match=r"source_dir: found '!' in line 2 of .musterignore"):
        pack(folder)


def test_what_is_packed_comes_out_again_and_a_link_is_the_file_that_it_names(folder: Path, tmp_path: Path) -> None:
    (folder / "link.py").symlink_to("train.py")
    training = "print('training')"
    packed = {"train.py": training, "link.py": training, "package/__init__.py": "", "run.sh": "#!/bin/sh\n"}
    assert files(folder, tmp_path) == packed
    out = next(tmp_path.glob("out-*"))
    assert [(out / name).stat().st_mode & 0o777 for name in ("run.sh", "train.py")] == [0o755, 0o644]


def test_any_other_link_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("secret")
    for target in ("../outside.txt", "package", "missing"):
        (folder / "link").unlink(missing_ok=True)
        (folder / "link").symlink_to(target)
        with pytest.raises(SpecError, match="source_dir: found link, which is a link to something outside"):
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


def test_what_is_no_folder_of_code_is_refused(folder: Path) -> None:
    (folder.parent / "empty").mkdir()
    for name in ("missing", "code/train.py", "empty"):
        with pytest.raises(SpecError, match="source_dir: found"):
            pack(folder.parent / name)


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


def test_a_folder_that_cannot_be_read_is_named_unless_it_is_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def refused(path: str) -> object:
        if Path(path).name == "package":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    # The superuser may read everything.
    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(SpecError, match=r"found package, which cannot be read \(permission denied\)"):
        pack(folder)
    (folder / ".musterignore").write_text("package/\n")
    assert {"run.sh", "train.py"} <= set(source_files(folder))


TRAIN = "def train(context): pass\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a package, and a folder with a spec and a module beside it."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "training.py").write_text(TRAIN)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "training.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def source_of(trainer: str, **fields: object) -> object:
    Path("own/run.json").write_text(json.dumps({"replicas": 1, "trainer": trainer, **fields}))
    return read_spec("own/run.json").document.get("source_dir")


def test_the_source_of_a_local_trainer_is_the_folder_of_its_module(project: Path) -> None:
    assert source_of("training:train") == "own"
    assert read_spec("own/run.json").meant == "own"
    assert source_of("package.training:train") == "."
    assert source_of("elsewhere.training:train") is None
    # A misspelled module means its folder, where the mistake is found.
    assert source_of("trianing:train") == "own"
    assert source_of("muster.torch:train") is None


def test_a_source_that_is_named_is_beside_the_file_and_null_is_none(project: Path) -> None:
    assert source_of("training:train", source_dir="code") == "own/code"
    assert read_spec("own/run.json").meant is None
    assert source_of("training:train", source_dir=None) is None
    assert source_of("training:train", source_dir="s3://bucket/a.tar.gz") == "s3://bucket/a.tar.gz"


def test_a_home_folder_is_never_meant(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project / "own"))
    assert source_of("training:train") is None
    (project / "link").symlink_to(project / "own")
    monkeypatch.setenv("HOME", str(project / "link"))
    assert source_of("training:train") is None


def test_a_user_without_a_home_folder_has_a_source(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = source_of("training:train")

    def no_user(number: int) -> NoReturn:
        raise KeyError(number)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", no_user)
    assert source_of("training:train") == expected
    assert expected is not None


LOCK = """version = 1
requires-python = ">=3.11"

[[package]]
name = "own"
version = "1"
source = { virtual = "." }
dependencies = [{ name = "six", marker = "sys_platform == 'linux'" }]

[package.dev-dependencies]
dev = [{ name = "iniconfig" }]
"""
LOCKED = """
[[package]]
name = "{name}"
version = "1.17.0"
source = { registry = "https://packages.example/simple" }
wheels = [{ url = "https://packages.example/{name}-1.17.0-py3-none-any.whl", hash = "sha256:%s" }]
"""


def test_a_locked_project_brings_its_packages(tmp_path: Path) -> None:
    (tmp_path / "training.py").touch()
    (tmp_path / "uv.lock").write_text(
        LOCK + "".join(LOCKED.replace("{name}", name) % ("0" * 64) for name in ("six", "iniconfig"))
    )
    assert "requirements.txt" not in unpacked(tmp_path)
    project = '[project]\nname = "own"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["six"]\n'
    (tmp_path / "pyproject.toml").write_text(f'{project}[dependency-groups]\ndev = ["iniconfig"]\n')
    assert unpacked(tmp_path)["requirements.txt"] == "six==1.17.0 ; sys_platform == 'linux'\n"
    (tmp_path / "uv.lock").write_text("version = ")
    with pytest.raises(SpecError, match=r"source_dir: found uv.lock, which uv refuses: .*; correct it with `uv lock`"):
        pack(tmp_path)
    # A list of the user's comes first.
    (tmp_path / "requirements.txt").write_text("own-choice\n")
    assert unpacked(tmp_path)["requirements.txt"] == "own-choice\n"


def unpacked(folder: Path) -> dict[str, str]:
    """What a replica finds in the source that is packed from a folder."""
    with tarfile.open(fileobj=io.BytesIO(pack(folder).tar)) as tar:
        return {name: (tar.extractfile(name) or io.BytesIO()).read().decode() for name in tar.getnames()}


def test_what_commands_have_written_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "run-model").mkdir()
    (tmp_path / ".muster").mkdir()
    for name in ("training.py", "page.html", "run-model/model.safetensors", ".muster/local.json"):
        (tmp_path / name).write_text("text")
    (tmp_path / "run.html").write_text(f"<!doctype html>\n<head>{PAGE_MARK}")
    assert list(source_files(tmp_path)) == ["page.html", "training.py"]
    (tmp_path / ".musterignore").write_text("!*.safetensors\n")
    assert "run-model/model.safetensors" in source_files(tmp_path)
    for page in ("page.html", "runs.html"):
        assert PAGE_MARK in read_asset(page)[:500]


def read_asset(name: str) -> str:
    return (Path(muster.__file__).parent / "report" / "assets" / name).read_text(encoding="utf-8")
