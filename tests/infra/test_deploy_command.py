"""`muster deploy` and `muster destroy` on the embedded cloud: what is kept, refused, deleted and taken over."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from muster.client.sdk import Muster
from muster.local import LocalCloud
from tests.support.template import ROOT
from tests.support.workshop import fast_settings

HELD = "import time; time.sleep(600)"


@dataclass(frozen=True)
class Shell:
    """A user's shell on the embedded cloud, in a folder with a settings file."""

    cloud: LocalCloud
    folder: Path

    def write(self, text: str) -> None:
        (self.folder / "muster.toml").write_text(text, encoding="utf-8")

    def run(self, *arguments: str, code: int = 0) -> str:
        """What `muster ARGUMENTS` prints; an error is on its last lines."""
        outcome = subprocess.run(
            [sys.executable, "-m", "muster.client.cli.program", *arguments, "--target", "local"],
            env={**self.cloud.environment(), "PYTHONPATH": str(ROOT)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert outcome.returncode == code, (outcome.stdout, outcome.stderr)
        return outcome.stdout + outcome.stderr

    def deploy(self, *arguments: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run("deploy", "--yes", "--json", *arguments))
        return answer

    def muster(self, stack: str | None) -> Muster:
        return Muster(stack, session=self.cloud.session())


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("deploy-command")
    with LocalCloud.start(folder / "cloud", fast_settings(code=(ROOT,))) as cloud:
        yield Shell(cloud, folder)


def test_the_life_of_a_stack(shell: Shell) -> None:
    """Deployed, deployed again without a key, looked at, reset, written down, destroyed, its bucket taken over."""
    name = "Lifecycle"
    shell.write(
        f"""
        [stack]
        name = "{name}"
        tags = {{ team = "research" }}
        [notify]
        email = "team@example.com"
        [runs]
        sweep_hours = 12
        """
    )
    first = shell.deploy()
    assert first["deployed"]
    bucket = first["outputs"]["BucketName"]

    # A key that the file leaves out keeps its deployed value, and a line says so.
    shell.write(f'[stack]\nname = "{name}"\n[runs]\nsweep_hours = 24\n')
    shown = shell.run("deploy", "--diff")
    assert "notify.email = team@example.com (kept from the deployment)" in shown
    assert "runs.sweep_hours: 12 -> 24" in shown
    assert "~ AWS::Events::Rule SweepSchedule" in shown
    rules = shell.cloud.client("events").list_rules()["Rules"]
    assert "rate(12 hours)" in [rule.get("ScheduleExpression") for rule in rules]  # --diff changed nothing
    again = shell.deploy()
    assert [change["key"] for change in again["settings"]] == ["runs.sweep_hours"]
    assert {"notify.email", "stack.tags", "stack.job_prefix"} <= {*again["kept"]}
    topic = first["outputs"]["NotificationTopicArn"]
    subscriptions = shell.cloud.client("sns").list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    assert [item["Endpoint"] for item in subscriptions] == ["team@example.com"]

    # A misspelled key is refused with the nearest one, before anything is asked or changed.
    shell.write(f'[stack]\nname = "{name}"\n[runs]\nsweep_hour = 24\n')
    refused = shell.run("deploy", "--yes", code=2)
    assert "line 4: runs.sweep_hour: unknown field; did you mean sweep_hours?" in refused

    # A lost file is written again from the deployment.
    (shell.folder / "muster.toml").unlink()
    shell.run("deploy", "--write", "--stack", name)
    written = (shell.folder / "muster.toml").read_text(encoding="utf-8")
    assert 'email = "team@example.com"' in written
    assert "sweep_hours = 24" in written
    assert shell.deploy("--stack", name)["resources"] == []

    # Only --reset takes a key back.
    shell.write(f'[stack]\nname = "{name}"\n')
    reset = shell.deploy("--reset", "notify.email")
    assert [(change["key"], change["new"]) for change in reset["settings"]] == [("notify.email", None)]

    # The data stays, and the next stack takes it over without a step by hand.
    shell.cloud.client("s3").put_object(Bucket=bucket, Key="output/old/result", Body=b"1")
    destroyed = json.loads(shell.run("destroy", "--stack", name, "--yes", "--json"))
    assert destroyed["kept_bucket"] == bucket
    stacks = shell.cloud.client("cloudformation").list_stacks()["StackSummaries"]
    assert name not in [item["StackName"] for item in stacks if item["StackStatus"] != "DELETE_COMPLETE"]
    shell.write(f'[stack]\nname = "{name}"\n[bucket]\nexisting = "{bucket}"\n')
    taken = shell.deploy()
    assert (taken["outputs"]["BucketName"], taken["commands"]) == (bucket, [])
    refused = shell.run("destroy", "--stack", name, "--yes", "--delete-data", bucket, code=2)
    assert "did not make the bucket" in refused
