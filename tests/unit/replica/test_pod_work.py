"""What a pod says of work that it cannot do."""

import json
from pathlib import Path
from typing import Any

import pytest

from muster.options.hyperpod.contract.pod_work import ENV_POD_WORK
from muster.options.hyperpod.replica.pod import read_pod
from muster.replica.replica_errors import InputError

WORK: dict[str, Any] = {
    "job": "muster-digits-r0-a1",
    "program": ["python"],
    "checkpoints_uri": "s3://bucket/checkpoints/digits/r0/",
    "output_uri": "s3://bucket/output/digits/",
    "notices_uri": "s3://bucket/notices/digits/",
    "instances": 1,
}


def refusal(base: Path, text: str) -> list[str]:
    """What is wrong with this work of a pod."""
    with pytest.raises(InputError) as caught:
        read_pod({ENV_POD_WORK: text, "SAGEMAKER_BASE_DIR": str(base)})
    return [problem.removeprefix(f"{ENV_POD_WORK}: ") for problem in caught.value.problems]


def channels(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "uri": "s3://bucket/data/"} for name in names]


def test_work_without_a_mistake_is_read(tmp_path: Path) -> None:
    work = {**WORK, "channels": channels("train", "...", ".a")}
    pod = read_pod({ENV_POD_WORK: json.dumps(work), "SAGEMAKER_BASE_DIR": str(tmp_path)})
    assert [channel.name for channel in pod.work.channels] == ["train", "...", ".a"]


def test_every_mistake_is_named_with_what_was_found_and_what_is_allowed(tmp_path: Path) -> None:
    wrong = {
        "job": "nope",
        "output_uri": "http://x",
        "checkpoints_uri": "s3:///x",
        "notices_uri": "s3://bucket/other/",
        "channels": [*channels("train", ".", ".."), {"name": "a/b", "uri": "x"}],
        "hyper_parameters": {"token": 12345},
    }
    file = tmp_path / "file"
    file.touch()
    remedy = "let the container run as a user that may write there, or mount a volume"
    names = "allowed: 1 to 64 letters, digits, dots, hyphens and underscores, but not . or .."
    assert sorted(refusal(file, json.dumps({**WORK, **wrong}))) == sorted(
        [
            "job: found 'nope'; allowed: a name that ends with -r0-a1 (rank, attempt)",
            "output_uri: found 'http://x'; allowed: s3://bucket/prefix",
            "checkpoints_uri: found 's3:///x'; allowed: s3://bucket/prefix",
            "notices_uri: found 's3://bucket/other/'; allowed: s3://bucket/notices/RUN/",
            f"channels.1.name: found '.'; {names}",
            f"channels.2.name: found '..'; {names}",
            f"channels.3.name: found 'a/b'; {names}",
            "channels.3.uri: found 'x'; allowed: s3://bucket/prefix",
            "hyper_parameters.token: Input should be a valid string",
            f"{file} cannot be written (File exists): {remedy}",
        ]
    )
    assert refusal(tmp_path, "{")[0].startswith("the document: Invalid JSON")


def test_each_channel_has_a_name_of_its_own(tmp_path: Path) -> None:
    work = {**WORK, "channels": channels("a", "b", "a", "c", "c", "c")}
    assert refusal(tmp_path, json.dumps(work)) == ["channels: 2 have the name 'a', 3 have the name 'c'; allowed: one"]
