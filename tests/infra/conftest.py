"""Stacks with different settings, all synthesized once per session, by one process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.variants import Variant
from tests.support.once import once
from tests.support.template import ROOT, Template


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


@pytest.fixture(scope="session")
def template(variant: Variant) -> Template:
    """That of most tests."""
    return variant("plain")
