"""Whether a commit may become a release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import muster
from muster.infra.release.readiness import Candidate, release_problems

ROOT = Path(__file__).resolve().parents[2]
READY = Candidate("1.2.3", "# Changelog\n\n## 1.2.3 (2026-11-22)\n\n- It trains.\n\n## 1.2.2 (2026-01-01)\n\n- Old.\n")


def test_a_commit_that_is_ready_has_no_problems() -> None:
    assert list(release_problems(READY)) == []


@pytest.mark.parametrize(
    ("candidate", "problem"),
    [
        (
            replace(READY, version="1.2.3-dirty"),
            "muster/__init__.py: the version is 1.2.3-dirty; write one such",
        ),
        (replace(READY, changes=("a.py", "b.py")), "The tree differs from its commit in a.py, b.py: commit or remove"),
        (replace(READY, tags=("v1.2.2", "v1.2.3")), "The tag v1.2.3 is there already: raise __version__"),
        (replace(READY, version="1.3.0"), "CHANGELOG.md begins with 1.2.3: begin it with a section `## 1.3.0 (YYYY-"),
        (replace(READY, changelog="# Changelog\n"), "CHANGELOG.md begins with no version"),
        (replace(READY, changelog="## 1.2.3\n\n- It trains.\n"), "CHANGELOG.md: the section 1.2.3 has no date"),
        (replace(READY, changelog="## 1.2.3 (2026-11-22)\n\n## 1.2.2\n"), "CHANGELOG.md: the section 1.2.3 is empty"),
    ],
)
def test_each_problem_is_one_line(candidate: Candidate, problem: str) -> None:
    found = list(release_problems(candidate))
    assert [line for line in found if line.startswith(problem)]
    assert len(found) <= 2  # a version that is written wrongly has no section either


def test_all_problems_come_at_once() -> None:
    candidate = Candidate("next", "", changes=("a.py",), tags=("vnext",))
    assert len(list(release_problems(candidate))) == 4


def test_the_changelog_of_this_tree_begins_with_its_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert list(release_problems(Candidate(muster.__version__, changelog))) == []
