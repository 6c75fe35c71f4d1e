"""Where a job's files lie, in its tree and in S3."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from muster.contract.layout import path_in_channel
from muster.local.sagemaker.job_hosts import Host, hosts_of, name_variables
from muster.local.sagemaker.job_storage import (
    DownloadError,
    JobStorage,
    UploadError,
    _inside,
    check_names_differ,
)
from muster.local.sagemaker.job_tree import JobTree
from muster.local.sagemaker.local_image import command, environment, is_local, working_directory
from tests.support.local_samples import REQUEST


def test_a_keys_place_in_its_channel() -> None:
    places = {
        ("data/train/deep/a.txt", "data/train/"): "deep/a.txt",
        ("data/train/a.txt", "data/train"): "a.txt",
        ("data/train-2.txt", "data/train"): "train-2.txt",
        ("train.csv", "train.csv"): "train.csv",
        ("a/b", ""): "a/b",
    }
    assert {given: path_in_channel(*given) for given in places} == places


def test_no_name_leads_out_of_a_channel_or_of_opt_ml(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    assert _inside(channel, "a/b") == channel / "a" / "b"
    for name in ("../escape", "a/../../escape", "/etc/passwd"):
        with pytest.raises(DownloadError):
            _inside(channel, name)
    tree = JobTree(tmp_path)
    assert tree.local("/opt/ml/checkpoints/deep") == tree.root / "checkpoints" / "deep"
    for path in ("/tmp/checkpoints", "/opt/mlx", "/opt/ml/../../etc", "relative"):  # noqa: S108
        assert tree.local(path) is None, path


def test_what_s3_refuses_is_told_in_sagemakers_words_whatever_its_size(tmp_path: Path) -> None:
    file = tmp_path / "model"
    with mock_aws():
        storage = JobStorage(boto3.client("s3", "us-east-1"), "arn:aws:iam::123456789012:role/jobs")
        for size in (1, 9 * 1024**2):
            with file.open("wb") as stream:
                stream.truncate(size)
            with pytest.raises(UploadError, match=r"role/jobs may write to s3://nowhere/model.*NoSuchBucket"):
                storage.upload(file, "s3://nowhere/model")


def test_there_is_one_image() -> None:
    other = ("muster-local/python3:1", "registry.example/muster-local/python:1", "")
    images = ("muster-local/python", "muster-local/python:3.11-cpu", *other)
    assert [image for image in images if is_local(image)] == ["muster-local/python", "muster-local/python:3.11-cpu"]


def test_a_process_starts_in_the_first_code_directory_with_all_of_them_to_import_from(tmp_path: Path) -> None:
    tree, code = JobTree(tmp_path), (tmp_path / "a", tmp_path / "b")
    variables = environment(
        tree, code, REQUEST, {"AWS_CA_BUNDLE": "ca.pem", "MUSTER_RANK": "platform"}, hosts_of({"VolumeSizeInGB": 1})
    )
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
    tree.make(REQUEST, ["algo-1"], "algo-1")
    assert tree.failure() == ""
    (tree.root / "output" / "failure").write_bytes(b"\xff" + b"x" * 5000)
    assert tree.failure() == "�" + "x" * 1023


def test_every_instance_has_its_own_place_in_one_list_of_hosts(tmp_path: Path) -> None:
    hosts = hosts_of({"VolumeSizeInGB": 1, "InstanceCount": 11, "InstanceType": "ml.m5.large"})
    assert [host.name for host in hosts] == [f"algo-{number}" for number in range(1, 12)]
    assert len({host.address for host in hosts}) == 11
    assert all(host.address.startswith("127.") for host in hosts)
    tree = JobTree(tmp_path)
    tree.make(REQUEST, [host.name for host in hosts], "algo-2")
    found = json.loads((tree.root / "input" / "config" / "resourceconfig.json").read_text())
    assert found["current_host"] == "algo-2"
    # As documented, sorted as text.
    assert found["hosts"][:4] == ["algo-1", "algo-10", "algo-11", "algo-2"]
    assert found["network_interface_name"] in {name for _, name in socket.if_nameindex()}


def test_python_finds_the_names_of_the_instances_and_the_users_own_sitecustomize(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('own')\n")
    hosts = [Host("algo-1", "127.16.0.1"), Host("algo-2", "127.16.0.2")]
    code = "import socket; print(socket.getaddrinfo('algo-2', 80)[0][4][0], socket.gethostbyname('localhost'))"
    own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**own, **name_variables(hosts, own)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == ["own", "127.16.0.2", "127.0.0.1"]
    assert name_variables(hosts[:1], own) == {}


def test_two_containers_that_write_the_same_name_are_told(tmp_path: Path) -> None:
    for name in ("a/shared/x", "a/one", "b/shared/y", "b/one"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    check_names_differ([tmp_path / "a", tmp_path / "b" / "shared"])
    with pytest.raises(UploadError, match="one"):
        check_names_differ([tmp_path / "a", tmp_path / "b"])
