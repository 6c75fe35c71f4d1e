"""The stack, synthesized once per session: as it is, with the CDK's own validation on, and with other settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.variants import Variant
from tests.support.once import once
from tests.support.template import REARM_SECONDS, ROOT, Template, app_environment, run_app


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cloud assembly's folder."""

    def synthesize(folder: Path) -> None:
        settings = {"runs": {"rearm_seconds": REARM_SECONDS}, "replicas": {"image": "example/image:1"}}
        outcome = run_app(app_environment(settings, folder))
        assert outcome.returncode == 0, outcome.stderr

    return once(tmp_path_factory, "assembly", synthesize)


@pytest.fixture(scope="session")
def template(assembly: Path) -> Template:
    return Template(json.loads((assembly / "Muster.template.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def variant(tmp_path_factory: pytest.TempPathFactory) -> Variant:
    """Gives the template of one of `tests.infra.variants`."""

    def synthesize(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "tests.infra.variants", str(folder)], cwd=ROOT, check=True)

    folder = once(tmp_path_factory, "variants", synthesize)

    def read(name: str) -> Template:
        [file] = (folder / name).glob("*.template.json")
        return Template(json.loads(file.read_text(encoding="utf-8")))

    return read
