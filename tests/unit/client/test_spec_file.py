"""A spec's file: its source folder, named or meant."""

from __future__ import annotations

import io
import json
import pwd
from pathlib import Path
from typing import NoReturn

import pytest

from muster.client.cli.spec_file import read_spec
from muster.contract.errors import SpecError

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


def source(trainer: str, **fields: object) -> object:
    Path("own/run.json").write_text(json.dumps({"replicas": 1, "trainer": trainer, **fields}))
    return read_spec("own/run.json").document.get("source_dir")


def test_the_source_of_a_local_trainer_is_the_folder_of_its_module(project: Path) -> None:
    assert source("training:train") == "own"
    assert read_spec("own/run.json").meant == "own"
    assert source("package.training:train") == "."
    assert source("elsewhere.training:train") is None
    # A misspelled module means its folder, where the mistake is found.
    assert source("trianing:train") == "own"
    assert source("muster.torch:train") is None


def test_a_source_that_is_named_is_beside_the_file_and_null_is_none(project: Path) -> None:
    assert source("training:train", source_dir="code") == "own/code"
    assert read_spec("own/run.json").meant is None
    assert source("training:train", source_dir=None) is None
    assert source("training:train", source_dir="s3://bucket/a.tar.gz") == "s3://bucket/a.tar.gz"


def test_a_home_folder_is_never_meant(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project / "own"))
    assert source("training:train") is None
    (project / "link").symlink_to(project / "own")
    monkeypatch.setenv("HOME", str(project / "link"))
    assert source("training:train") is None


def test_a_user_without_a_home_folder_has_a_source(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = source("training:train")

    def no_user(number: int) -> NoReturn:
        raise KeyError(number)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", no_user)
    assert source("training:train") == expected
    assert expected is not None


def test_a_spec_from_standard_input_has_no_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("replicas: 1\ntrainer: package.training:train\n"))
    assert read_spec("-", "named").document == {"replicas": 1, "trainer": "package.training:train", "name": "named"}
    monkeypatch.setattr("sys.stdin", io.StringIO("- a list\n"))
    with pytest.raises(SpecError, match="write a mapping"):
        read_spec("-")
