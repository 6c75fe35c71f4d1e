"""The tutorial about data of one's own: its files and its commands, before and after the setting."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from muster.infra.deploy.deployment import deploy
from muster.infra.settings.settings_file import parse_settings, parse_tables
from muster.infra.settings.stack_settings import LOCAL_IMAGE, Platform
from muster.local import LocalCloud
from tests.support.terminal import Terminal
from tests.support.workshop import fast_settings

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "your-own-data.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


class Step(NamedTuple):
    """A command, and what is promised after it; … stands for anything."""

    command: str
    promised: str

    def shows(self, text: str) -> bool:
        """Whether `text` is what was promised."""
        pattern = ".*".join(re.escape(part) for part in self.promised.strip().split("…"))
        return re.search(pattern, text, re.DOTALL) is not None


def files() -> dict[str, str]:
    """The files that the page writes, by path."""
    return dict(re.findall(r"`([\w./]+)`:\n\n```\w+\n(.*?)```", PAGE, re.DOTALL))


def steps() -> Iterator[Step]:
    """The commands of the page, in order."""
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for part in block.split("$ ")[1:]:
            command, _, promised = part.partition("\n")
            yield Step(command, promised)


class Reader:
    """A reader of the page at a terminal in an empty folder, with an embedded cloud in place of an account."""

    def __init__(self, folder: Path, cloud: LocalCloud, terminal: Terminal) -> None:
        self._folder = folder
        self._cloud = cloud
        self._terminal = terminal

    def write(self, name: str) -> None:
        """Write one of the page's files."""
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(files()[name], encoding="utf-8")

    def type(self, command: str) -> tuple[int, str]:
        """The exit code and the output of a command."""
        if command == "make deploy":
            return self._deploy()
        if command.startswith("aws s3 "):
            return self._copy(shlex.split(command)[2:])
        answer = self._terminal.run(command, seconds=120)
        return answer.code, answer.text

    def _deploy(self) -> tuple[int, str]:
        """`make deploy` with the settings that are in the folder, if there are any."""
        file = self._folder / "muster.toml"
        document = parse_tables(file.read_text(encoding="utf-8") if file.exists() else "")
        document = {**document, "replicas": {"image": LOCAL_IMAGE, **document.get("replicas", {})}}
        deploy(
            self._cloud.environment(os.environ),
            target=Platform.LOCAL,
            settings=parse_settings(document, Platform.LOCAL),
            outputs=self._folder / "build" / "outputs.json",
            log=self._folder / "build" / "cdk.log",
        )
        return 0, "the outputs of the stack\nMuster is deployed. "

    def _copy(self, words: list[str]) -> tuple[int, str]:
        """`aws s3 mb` and `aws s3 cp --recursive`: the AWS CLI is no dependency."""
        s3 = self._cloud.client("s3")
        if words[0] == "mb":
            s3.create_bucket(Bucket=words[1].removeprefix("s3://"))
            return 0, ""
        verb, source, target, option = words
        assert (verb, option) == ("cp", "--recursive")
        bucket, _, prefix = target.removeprefix("s3://").partition("/")
        for path in (self._folder / source).iterdir():
            s3.put_object(Bucket=bucket, Key=f"{prefix}{path.name}", Body=path.read_bytes())
        return 0, ""


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    folder = tmp_path / "clone"
    folder.mkdir()
    with LocalCloud.start(tmp_path / "cloud", fast_settings(stop_grace_seconds=3.0)) as cloud:
        environment = cloud.environment(os.environ)
        environment["PATH"] = f"{BIN}{os.pathsep}{environment['PATH']}"
        environment.pop("NO_COLOR", None)
        with Terminal(folder, environment, columns=200) as terminal:
            yield Reader(folder, cloud, terminal)


def test_the_page_leads_from_a_refusal_to_a_trained_model(reader: Reader) -> None:
    assert list(files()) == ["data/numbers.csv", "own/training.py", "own/run.yaml", "muster.toml"]
    for name in ("data/numbers.csv", "own/training.py", "own/run.yaml"):
        reader.write(name)
    reader.type("make deploy")
    made = list(steps())
    assert len(made) == 7
    for step in made:
        if step.command == "make deploy":
            reader.write("muster.toml")
        code, text = reader.type(step.command)
        assert step.shows(text), f"{step.command}: {text}"
        assert (code != 0) == ("failed" in step.promised), text
    # The note is gone, and the line is y = 2x + 1.
    assert "Note: the replica role" not in reader.type("muster plan own/run.yaml --deployed")[1]
    logged = reader.type("muster logs numbers --rank 0 --regex slope")[1]
    found = re.search(r"slope=(\S+) intercept=(\S+)", logged)
    assert found is not None, logged
    assert float(found[1]) == pytest.approx(2, abs=0.1)
    assert float(found[2]) == pytest.approx(1, abs=0.1)
