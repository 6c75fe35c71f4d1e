"""`python -m muster.infra.release`: builds a release and verifies it. `make release` runs all checks and tests before.

Nothing is published: the last lines are the commands that do it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import muster
from muster.infra.build_places import PACKAGE
from muster.infra.release.artifacts import (
    build_distributions,
    build_wheel,
    differences,
    install_wheel,
    make_environment,
    user_environment,
    write_sums,
)
from muster.infra.release.kernels import KernelError
from muster.infra.release.readiness import Candidate, release_problems

CLONE = PACKAGE.parent
_IMPORT_ALL = """
import importlib, pkgutil
for name in ("muster.contract", "muster.client"):
    for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
        importlib.import_module(module.name)
"""


class ReleaseError(Exception):
    """The release is not what it must be."""


def main() -> int:
    """Build the release of this commit in build/release; the exit code."""
    candidate = Candidate(
        version=muster.__version__,
        changelog=(CLONE / "CHANGELOG.md").read_text(encoding="utf-8"),
        changes=tuple(line[3:] for line in _git("status", "--porcelain").splitlines()),
        tags=tuple(_git("tag", "--list").split()),
    )
    problems = list(release_problems(candidate))
    if problems:
        print("\n".join([f"{candidate.version} is not released; nothing was built.", *problems]), file=sys.stderr)
        return 1
    folder = CLONE / "build" / "release" / candidate.version
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        build_release(folder, candidate.version)
    except (ReleaseError, KernelError, subprocess.CalledProcessError) as error:
        print(f"{candidate.version} is not released: {error}", file=sys.stderr)
        return 1
    print("\n".join(_steps(folder.relative_to(CLONE), candidate)))
    return 0


def build_release(folder: Path, version: str) -> None:
    """Build sdist, wheel and template of the commit, each by what a user would run, and verify them.

    Raises:
        ReleaseError: one is not what it must be.
        KernelError: the replica's kernel cannot be compiled.
        subprocess.CalledProcessError: a command failed.
    """
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        print("Building sdist and wheel of the commit")
        sdist, wheel = build_distributions(_checked_out(work / "tree"), folder)
        direct = build_wheel(_checked_out(work / "tree of the wheel"), work / "direct")
        if found := differences(sdist, wheel) or differences(direct, wheel):
            message = f"the wheel is not what the commit and its sdist have: {', '.join(found)}"
            raise ReleaseError(message)
        print("Installing the wheel with the oldest packages that it allows")
        oldest = make_environment(work / "oldest")
        install_wheel(oldest, wheel, options=["--resolution", "lowest-direct"])
        _check_version(oldest, version, work)
        subprocess.run([str(oldest), "-c", _IMPORT_ALL], cwd=work, env=user_environment(work), check=True)
        print("Installing the wheel with the tested packages, and writing the template with it")
        python = make_environment(work / "tested")
        install_wheel(python, wheel, "deploy", ["--constraint", str(CLONE / "requirements.txt")])
        _check_version(python, version, work)
        _run(python, work, "template", str(folder / "template"))
    _check_template(folder / "template" / "muster.template.json")
    shutil.copy(CLONE / "requirements.txt", folder)  # the versions that images get (docker/)
    write_sums(folder)


def _checked_out(tree: Path) -> Path:
    """The files of the commit."""
    tree.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=CLONE, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=tree, input=archive, check=True)
    return tree


def _run(python: Path, work: Path, *arguments: str) -> str:
    """What the installed command prints, outside the clone and with an empty cache of Muster's own."""
    command = [str(python.with_name("muster")), *arguments]
    environment = user_environment(work / "cache")
    return subprocess.run(command, cwd=work, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def _check_version(python: Path, version: str, work: Path) -> None:
    found = _run(python, work, "--version").strip()
    if found != f"muster {version}":
        message = f"the installed command says {found!r}, not 'muster {version}'"
        raise ReleaseError(message)


def _check_template(template: Path) -> None:
    """cfn-lint accepts it, as `.cfnlintrc` says."""
    command = [str(Path(sys.executable).with_name("cfn-lint")), "--template", str(template)]
    subprocess.run(command, cwd=CLONE, check=True)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=CLONE, capture_output=True, text=True, check=True).stdout


def _steps(folder: Path, candidate: Candidate) -> Iterator[str]:
    yield f"Muster {candidate.version} is built and verified: see {folder}. To publish it:"
    yield ""
    yield f"git tag --annotate {candidate.tag} --message 'Muster {candidate.version}'"
    yield f"git push origin {candidate.tag}"
    yield f"uv publish {folder}/*.tar.gz {folder}/*.whl"
    yield f"aws s3 cp --recursive {folder}/template s3://BUCKET/muster/{candidate.version}/  # in each region"


if __name__ == "__main__":
    sys.exit(main())
