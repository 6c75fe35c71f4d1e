"""The stack, synthesized once per session for AWS and with the CDK's own validation on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.once import once
from tests.support.template import REARM_SECONDS, Template, app_environment, run_app


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
