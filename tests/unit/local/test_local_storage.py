"""Where a job's files lie, in its tree and in S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.local.sagemaker.job_storage import DownloadError, _inside, _relative
from muster.local.sagemaker.job_tree import JobTree
from muster.local.sagemaker.local_image import command, environment, is_local, working_directory
from tests.support.local_samples import REQUEST


@pytest.mark.parametrize(
    ("key", "prefix", "relative"),
    [
        ("data/train/a.txt", "data/train/", "a.txt"),
        ("data/train/a.txt", "data/train", "a.txt"),
        ("data/train/deep/a.txt", "data/train", "deep/a.txt"),
        ("data/train-2.txt", "data/train", "train-2.txt"),
        ("data/train.csv", "data/train.csv", "train.csv"),
        ("train.csv", "train.csv", "train.csv"),
        ("a/b", "", "a/b"),
    ],
)
def test_a_keys_place_in_its_channel(key: str, prefix: str, relative: str) -> None:
    assert _relative(key, prefix) == relative


@pytest.mark.parametrize("name", ["../escape", "a/../../escape", "/etc/passwd"])
def test_no_name_leads_out_of_a_channel(tmp_path: Path, name: str) -> None:
    with pytest.raises(DownloadError):
        _inside(tmp_path / "channel", name)
    assert _inside(tmp_path / "channel", "a/b") == tmp_path / "channel" / "a" / "b"


@pytest.mark.parametrize("path", ["/tmp/checkpoints", "/opt/mlx", "/opt/ml/../../etc", "relative"])  # noqa: S108
def test_only_what_is_below_opt_ml_is_a_containers_path(tmp_path: Path, path: str) -> None:
    tree = JobTree(tmp_path)
    assert tree.local(path) is None
    assert tree.local("/opt/ml/checkpoints/deep") == tree.root / "checkpoints" / "deep"


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ("muster-local/python", True),
        ("muster-local/python:3.11-cpu", True),
        ("muster-local/python3:1", False),
        ("registry.example/muster-local/python:1", False),
        ("", False),
    ],
)
def test_there_is_one_image(image: str, known: bool) -> None:
    assert is_local(image) == known


def test_a_process_starts_in_the_first_code_directory_with_all_of_them_to_import_from(tmp_path: Path) -> None:
    tree, code = JobTree(tmp_path), (tmp_path / "a", tmp_path / "b")
    variables = environment(tree, code, REQUEST, {"AWS_CA_BUNDLE": "ca.pem", "MUSTER_RANK": "platform"})
    assert working_directory(code, tree) == tmp_path / "a"
    assert working_directory((), tree) == tree.root
    assert variables["PYTHONPATH"] == f"{tmp_path / 'a'}:{tmp_path / 'b'}"
    # What the platform sets, the job cannot change.
    assert variables["MUSTER_RANK"] == "platform"
    assert command(REQUEST["AlgorithmSpecification"]) == ["python", "-m", "muster.replica"]
    assert command({}) == ["train"]


def test_the_failure_file_is_read_as_far_as_it_is_shown(tmp_path: Path) -> None:
    tree = JobTree(tmp_path)
    assert tree.failure() == ""
    tree.make(REQUEST)
    assert tree.failure() == ""
    (tree.root / "output" / "failure").write_bytes(b"\xff" + b"x" * 5000)
    assert tree.failure() == "�" + "x" * 1023
