"""What a release needs: a commit that may become one, and Dockerfiles with pinned bases that copy what is there.

test_installed.py runs the commands of the Dockerfiles.
"""

import re
from dataclasses import replace
from pathlib import Path

import muster
from muster.contract.aws.stock_images import STOCK_ACCOUNT, EcrImage
from muster.infra.release.readiness import Candidate, release_problems
from tests.support.dockerfile import instructions

ROOT = Path(__file__).resolve().parents[2]
READY = Candidate("1.2.3", "# Changelog\n\n## 1.2.3 (2026-11-22)\n\n- It trains.\n\n## 1.2.2 (2026-01-01)\n\n- Old.\n")
PROBLEMS = [
    (replace(READY, version="1.2.3-dirty"), "muster/__init__.py: the version is 1.2.3-dirty;"),
    (replace(READY, changes=("a.py", "b.py")), "The tree differs from its commit in a.py, b.py:"),
    (replace(READY, tags=("v1.2.2", "v1.2.3")), "The tag v1.2.3 is there already:"),
    (replace(READY, version="1.3.0"), "CHANGELOG.md begins with 1.2.3:"),
    (replace(READY, changelog="# Changelog\n"), "CHANGELOG.md begins with no version"),
    (replace(READY, changelog="## 1.2.3\n\n- It trains.\n"), "CHANGELOG.md: the section 1.2.3 has no date"),
    (replace(READY, changelog="## 1.2.3 (2026-11-22)\n\n## 1.2.2\n"), "CHANGELOG.md: the section 1.2.3 is empty"),
]


def test_a_commit_becomes_a_release_unless_something_stands_against_it() -> None:
    assert list(release_problems(READY)) == []
    for candidate, problem in PROBLEMS:
        found = list(release_problems(candidate))
        assert any(line.startswith(problem) for line in found), (problem, found)
    assert len(list(release_problems(Candidate("next", "", changes=("a.py",), tags=("vnext",))))) == 4
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert list(release_problems(Candidate(muster.__version__, changelog))) == []


REPLICAS = [ROOT / "docker" / "cpu.Dockerfile", ROOT / "docker" / "cuda.Dockerfile"]
EXAMPLES = sorted((ROOT / "examples").glob("*/Dockerfile"))
RELEASED = {"muster_train-*.whl", "requirements.txt"}
"""What lies in the folder of a release, beside the sdist, the template and the sums."""


def values(path: Path, instruction: str) -> list[str]:
    return [value for name, value in instructions(path) if name == instruction]


def test_an_image_has_a_pinned_base_and_copies_what_there_is() -> None:
    for path in [*REPLICAS, *EXAMPLES]:
        [base] = values(path, "FROM")
        assert re.search(r":\d+\.\d+", base), path
        copied = [word for value in values(path, "COPY") for word in value.split()[:-1]]
        if path in EXAMPLES:
            assert [word for word in copied if not (ROOT / word).exists()] == [], path
        else:
            assert {"muster_train-*.whl"} <= set(copied) <= RELEASED, path
    # That for GPUs is the stock image that the guides name.
    [base] = values(ROOT / "docker" / "cuda.Dockerfile", "FROM")
    image = EcrImage.parse(base)
    assert image is not None
    assert image.account == STOCK_ACCOUNT
    assert [page for page in ("README.md", "docs/running.md") if base not in (ROOT / page).read_text()] == []
