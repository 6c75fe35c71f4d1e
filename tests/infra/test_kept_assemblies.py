"""An assembly for the embedded cloud is synthesized once for the same inputs; one for AWS is always synthesized."""

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
from tests.plugins.stack import SETTINGS as STACK
from tests.support.source_patch import ROOT

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


def test_the_same_inputs_give_what_was_written_and_other_inputs_another_assembly(
    tmp_path: Path, package: Path, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not kept(tmp_path, package).restore(tmp_path / "first")
    kept(tmp_path, package).keep(written)
    assert kept(tmp_path, package).restore(tmp_path / "second")
    assert (tmp_path / "second" / "manifest.json").read_text() == "{}"
    other = parse_settings({"replicas": {"image": LOCAL_IMAGE}, "stack": {"name": "Other"}}, Platform.LOCAL)
    assert not kept(tmp_path, package, other).restore(tmp_path / "other")
    assert not kept(tmp_path, package, published="true").restore(tmp_path / "other")
    with monkeypatch.context() as patched:
        patched.setattr("muster.infra.deploy.kept_assemblies.version", lambda name: f"{name} of tomorrow")
        assert not kept(tmp_path, package).restore(tmp_path / "other")
    assert kept(tmp_path, package).restore(tmp_path / "same")
    for file in ("__init__.py", "control/react.py", "infra/stack.py", "control/schema.json"):
        (package / file).write_text("CHANGED = True")
        assert not kept(tmp_path, package).restore(tmp_path / "other"), file
        kept(tmp_path, package).keep(written)


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


def synthesized(folder: Path, target: Platform, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """The app as a deployment runs it."""
    folder.mkdir()
    settings = parse_settings(STACK if target is Platform.LOCAL else {}, target)
    base = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))}
    environment = cdk_environment(base, target, folder, settings) | variables
    return subprocess.run([sys.executable, "-m", "muster.infra.app"], env=environment, cwd=ROOT, check=False)


def test_a_synthesis_that_is_repeated_needs_no_cdk(tmp_path: Path) -> None:
    # Other tests deploy this stack: it may be kept already.
    assert synthesized(tmp_path / "first", Platform.LOCAL).returncode == 0
    # jsii starts this in the place of node.
    broken = {"JSII_NODE": shutil.which("false") or "/bin/false"}
    assert synthesized(tmp_path / "second", Platform.LOCAL, **broken).returncode == 0
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "cdk.out").iterdir()}
        for name in ("first", "second")
    )
    assert first == second
    assert "Muster.template.json" in first
    assert synthesized(tmp_path / "aws", Platform.AWS, **broken).returncode != 0
