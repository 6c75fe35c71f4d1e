"""An assembly for the embedded cloud is synthesized once for the same inputs; one for AWS is always synthesized."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from muster.infra.deploy.cdk_tools import cdk_environment
from muster.infra.deploy.kept_assemblies import KeptAssembly
from muster.infra.settings.settings_file import parse_settings
from muster.infra.settings.stack_settings import LOCAL_IMAGE, Platform, ReplicasTable, StackSettings
from muster.infra.settings.toml_text import toml_text
from tests.support.source_patch import ROOT
from tests.support.template import app_environment, run_app

SETTINGS = StackSettings(replicas=ReplicasTable(image=LOCAL_IMAGE))
CONTEXT = {"target": "local"}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package like Muster's: a file, a folder, and a folder that is a link."""
    made = tmp_path / "package"
    (made / "control").mkdir(parents=True)
    (made / "__init__.py").write_text("")
    (made / "control" / "react.py").write_text("REACT = 1")
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "stack.py").write_text("STACK = 1")
    (made / "infra").symlink_to(tmp_path / "infra")
    return made


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """What a synthesis has written."""
    folder = tmp_path / "cdk.out"
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    return folder


def kept(tmp_path: Path, package: Path, settings: StackSettings = SETTINGS, **context: str) -> KeptAssembly:
    return KeptAssembly(settings, {**CONTEXT, **context}, package=package, folder=tmp_path / "kept")


def test_the_same_inputs_give_what_was_written(tmp_path: Path, package: Path, written: Path) -> None:
    assert not kept(tmp_path, package).restore(tmp_path / "first")
    kept(tmp_path, package).keep(written)
    assert kept(tmp_path, package).restore(tmp_path / "second")
    assert (tmp_path / "second" / "manifest.json").read_text() == "{}"


@pytest.mark.parametrize("file", ["__init__.py", "control/react.py", "infra/stack.py", "control/schema.json"])
def test_another_file_of_the_package_is_another_assembly(
    tmp_path: Path, package: Path, written: Path, file: str
) -> None:
    kept(tmp_path, package).keep(written)
    (package / file).write_text("CHANGED = True")
    assert not kept(tmp_path, package).restore(tmp_path / "other")


def test_bytecode_changes_nothing(tmp_path: Path, package: Path, written: Path) -> None:
    kept(tmp_path, package).keep(written)
    (package / "control" / "__pycache__").mkdir()
    (package / "control" / "__pycache__" / "react.pyc").write_bytes(b"1")
    assert kept(tmp_path, package).restore(tmp_path / "other")


def test_other_settings_and_another_context_are_another_assembly(tmp_path: Path, package: Path, written: Path) -> None:
    kept(tmp_path, package).keep(written)
    other = parse_settings({"replicas": {"image": LOCAL_IMAGE}, "stack": {"name": "Other"}}, Platform.LOCAL)
    assert not kept(tmp_path, package, other).restore(tmp_path / "other")
    assert not kept(tmp_path, package, published="true").restore(tmp_path / "other")


def test_another_version_of_the_cdk_is_another_assembly(
    tmp_path: Path, package: Path, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tmp_path, package).keep(written)
    monkeypatch.setattr("muster.infra.deploy.kept_assemblies.version", lambda name: f"{name} of tomorrow")
    assert not kept(tmp_path, package).restore(tmp_path / "other")


def test_those_that_were_used_last_are_kept(tmp_path: Path, package: Path, written: Path) -> None:
    for number in range(9):
        # Files' times may be as coarse as a clock's tick.
        kept(tmp_path, package, run=str(number)).keep(written)
        for age, place in enumerate(sorted((tmp_path / "kept").iterdir(), key=lambda one: -one.stat().st_mtime)):
            os.utime(place, (1e9 - age, 1e9 - age))
        assert kept(tmp_path, package, run="0").restore(tmp_path / f"first-{number}")
    assert len(list((tmp_path / "kept").iterdir())) == 6
    assert kept(tmp_path, package, run="8").restore(tmp_path / "last")
    assert not kept(tmp_path, package, run="1").restore(tmp_path / "removed")


def test_one_that_vanishes_while_it_is_copied_leaves_no_part(tmp_path: Path, package: Path, written: Path) -> None:
    (written / "gone").symlink_to(tmp_path / "nothing")
    shutil.copytree(written, tmp_path / "made", symlinks=True)
    one = kept(tmp_path, package)
    (tmp_path / "kept").mkdir(exist_ok=True)
    (tmp_path / "made").rename(one._place)
    assert not one.restore(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_folder_that_cannot_be_written_keeps_nothing_and_stops_nothing(
    tmp_path: Path, package: Path, written: Path
) -> None:
    (tmp_path / "kept").write_text("a file")
    kept(tmp_path, package).keep(written)
    assert not kept(tmp_path, package).restore(tmp_path / "other")


def synthesized(folder: Path, target: Platform, **variables: str) -> subprocess.CompletedProcess[str]:
    """The app as a deployment runs it."""
    folder.mkdir()
    settings = folder / "muster.toml"
    # A name that nothing else has: no other test, and no deployment on this machine, has kept its assembly.
    named = parse_settings({"stack": {"name": f"Kept{os.getpid()}"}}, target)
    settings.write_text(toml_text(named.tables), encoding="utf-8")
    base = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))}
    environment = cdk_environment(base, target, folder / "cdk.out", settings) | variables
    return subprocess.run(
        [sys.executable, "-m", "muster.infra.app"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_synthesis_that_is_repeated_needs_no_cdk(tmp_path: Path) -> None:
    assert synthesized(tmp_path / "first", Platform.LOCAL).returncode == 0
    # jsii starts this in the place of node.
    broken = {"JSII_NODE": shutil.which("false") or "/bin/false"}
    assert synthesized(tmp_path / "second", Platform.LOCAL, **broken).returncode == 0
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "cdk.out").iterdir()}
        for name in ("first", "second")
    )
    assert first == second
    assert f"Kept{os.getpid()}.template.json" in first
    assert synthesized(tmp_path / "aws", Platform.AWS, **broken).returncode != 0


def test_settings_that_are_wrong_are_refused_as_before_a_synthesis(tmp_path: Path) -> None:
    environment = app_environment({"runs": {"rearm_seconds": "soon"}}, tmp_path, target="local")
    assert json.loads(environment["CDK_CONTEXT_JSON"])["target"] == "local"
    outcome = run_app({**environment, "CDK_OUTDIR": str(tmp_path / "cdk.out")})
    assert outcome.returncode == 1
    assert outcome.stderr.startswith("muster.toml: 1 problem; nothing was changed.")
