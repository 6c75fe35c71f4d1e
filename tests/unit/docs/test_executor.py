"""docs/executor.md has a row for every name of the former executor, with a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from docs.generate import DOCS
from muster.executor import MusterExecutor
from tests.mutants.fault_table import named_tests
from tests.support.source_patch import ROOT

# The former executor's public names: its class with arguments, attributes and methods, what these take and return, and
# what it promised to trainers.
FORMER = [
    *("SageMakerExecutor", "role_arn", "image_uri", "output_s3_path", "instance_type", "cpu_instance_type"),
    *("volume_size_gb", "run_id", "region", "sagemaker_client", "logs_client"),
    *("backend_name", "supports_inter_replica_network"),
    *("launch_replicas", "n_replicas", "entrypoint", "entrypoint_args", "gpu", "timeout"),
    *("rendezvous_uri", "trainer_module", "trainer_fn", "trainer_kwargs", "rank_env"),
    *("ReplicaHandle", "rank", "metadata", "training_job_name", "submit_ts"),
    *("poll", "stream_logs", "n_lines", "cancel", "collect", "status", "exit_code", "error", "result"),
    *("ObjectStoreAllReduce", "MockManager", "replica_entrypoint", "REPLICA_RANK", "WORLD_SIZE", "RENDEZVOUS_URI"),
    *("ValueError", "RuntimeError"),
]


@cache
def rows() -> list[list[str]]:
    """The cells of each row."""
    _, _, section = (DOCS / "executor.md").read_text(encoding="utf-8").partition("## Every name of the former executor")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_every_row_names_one_test_that_exists() -> None:
    assert len(rows()) > 50
    for name, counterpart, remark, test in rows():
        assert name, (counterpart, remark)
        assert counterpart or remark, name
        [found] = named_tests(test)
        file, function = found.split("::")
        assert function in functions_of(file), name


@pytest.mark.parametrize("name", FORMER)
def test_every_name_of_the_former_executor_has_a_row(name: str) -> None:
    quoted = [
        word for former, counterpart, *_ in rows() for word in re.findall(r"`([^`]+)`", f"{former} {counterpart}")
    ]
    assert any(name in re.findall(r"\w+", words) for words in quoted)


def test_every_public_name_of_the_executor_is_in_the_page() -> None:
    page = (DOCS / "executor.md").read_text(encoding="utf-8")
    public = [name for name in vars(MusterExecutor) if not name.startswith("_")]
    assert len(public) == 7
    assert [name for name in public if f"`{name}" not in page] == []
