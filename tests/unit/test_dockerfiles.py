"""The Dockerfiles: pinned bases, nothing copied that is not there. tests/e2e/test_installed.py runs the commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from muster.contract.aws.stock_images import STOCK_ACCOUNT, EcrImage
from tests.support.dockerfile import instructions

ROOT = Path(__file__).resolve().parents[2]
REPLICAS = [ROOT / "docker" / "cpu.Dockerfile", ROOT / "docker" / "cuda.Dockerfile"]
EXAMPLES = sorted((ROOT / "examples").glob("*/Dockerfile"))
RELEASED = ("muster_train-*.whl", "requirements.txt")
"""What lies in the folder of a release, beside the sdist, the template and the sums."""


@pytest.mark.parametrize("path", [*REPLICAS, *EXAMPLES], ids=lambda path: str(path.relative_to(ROOT)))
def test_the_base_is_named_with_its_version(path: Path) -> None:
    [base] = [value for name, value in instructions(path) if name == "FROM"]
    assert re.search(r":\d+\.\d+", base)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_copies_what_the_repository_has(path: Path) -> None:
    copied = [word for name, value in instructions(path) if name == "COPY" for word in value.split()[:-1]]
    assert copied
    assert [word for word in copied if not (ROOT / word).exists()] == []


@pytest.mark.parametrize("path", REPLICAS, ids=lambda path: path.name)
def test_a_replicas_image_is_made_of_a_release(path: Path) -> None:
    copied = {word for name, value in instructions(path) if name == "COPY" for word in value.split()[:-1]}
    assert "muster_train-*.whl" in copied
    assert copied <= set(RELEASED)


def test_the_image_for_gpus_is_the_stock_image_that_the_guides_name() -> None:
    [base] = [value for name, value in instructions(ROOT / "docker" / "cuda.Dockerfile") if name == "FROM"]
    image = EcrImage.parse(base)
    assert image is not None
    assert image.account == STOCK_ACCOUNT
    for page in ("README.md", "docs/running.md"):
        assert base in (ROOT / page).read_text(encoding="utf-8")
