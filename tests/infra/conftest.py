"""Stacks with different settings, all synthesized once per session, by one process."""

import subprocess
import sys
from functools import partial
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

    return partial(Template.in_folder, once(tmp_path_factory, "variants", synthesize))


@pytest.fixture(scope="session")
def template(variant: Variant) -> Template:
    """That of most tests."""
    return variant("plain")
