"""The files of a release: sdist, wheel and template, and what is checked of them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from uv import find_uv_bin

from muster.infra.packages import uv_pip
from muster.infra.release.kernels import add_kernels

PACKAGE = "muster/"


def build_distributions(tree: Path, folder: Path) -> tuple[Path, Path]:
    """The sdist of a clean tree, and the wheel that is built from that sdist; both in `folder`.

    Nothing is downloaded: setuptools is installed here, and so is the compiler of the kernels.

    Raises:
        KernelError: the replica's kernel cannot be compiled.
        subprocess.CalledProcessError: setuptools failed; its output was printed.
    """
    _build(tree, folder)
    [sdist], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def build_wheel(tree: Path, folder: Path) -> Path:
    """The wheel that is built from a clean tree itself.

    Raises:
        KernelError: the replica's kernel cannot be compiled.
        subprocess.CalledProcessError: setuptools failed; its output was printed.
    """
    _build(tree, folder, "--wheel")
    [wheel] = folder.glob("*.whl")
    return wheel


def _build(tree: Path, folder: Path, *options: str) -> None:
    add_kernels(tree)
    command = [find_uv_bin(), "build", "--quiet", "--no-build-isolation", "--python", sys.executable, *options]
    subprocess.run([*command, "--out-dir", str(folder), str(tree)], check=True)


def contents(archive: Path) -> dict[str, bytes]:
    """The files of a wheel or an sdist, without the sdist's own folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(archive) as sdist:
        opened = {member.name.partition("/")[2]: sdist.extractfile(member) for member in sdist if member.isfile()}
        return {name: file.read() for name, file in opened.items() if file is not None}


def differences(one: Path, other: Path) -> list[str]:
    """The files of the package that two distributions do not have in common, or not with the same bytes."""
    ours = [{name: body for name, body in contents(path).items() if name.startswith(PACKAGE)} for path in (one, other)]
    return sorted(name for name in ours[0].keys() | ours[1].keys() if ours[0].get(name) != ours[1].get(name))


def make_environment(folder: Path) -> Path:
    """An environment without packages; its interpreter.

    Raises:
        subprocess.CalledProcessError: uv failed; its output was printed.
    """
    subprocess.run([find_uv_bin(), "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    return folder / "bin" / "python"


def install_wheel(python: Path, wheel: Path, extra: str = "", options: Sequence[str] = ()) -> None:
    """Install a wheel with one of its extras into an environment; `options` are those of `uv pip install`.

    Raises:
        subprocess.CalledProcessError: uv failed; its output was printed.
    """
    wanted = f"muster-train{f'[{extra}]' if extra else ''} @ {wheel.absolute().as_uri()}"
    command, environment = uv_pip(["install", "--quiet", "--python", str(python), *options, wanted])
    subprocess.run(command, env=environment, check=True)


def write_sums(folder: Path) -> Path:
    """The SHA-256 of every file below `folder`, in a file that `sha256sum --check` reads."""
    sums = folder / "SHA256SUMS"
    sums.write_text("".join(f"{line}\n" for line in _sums(folder)), encoding="utf-8")
    return sums


def _sums(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in {"SHA256SUMS", ".gitignore"}:
            yield f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}"


def user_environment(cache: Path) -> dict[str, str]:
    """The environment of a user who has no clone, with Muster's cache below `cache`.

    What uv has downloaded for this user is used again.
    """
    misleading = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV"}
    chosen = {name: value for name, value in os.environ.items() if name not in misleading}
    asked = subprocess.run([find_uv_bin(), "cache", "dir"], capture_output=True, text=True, check=True)
    return {**chosen, "XDG_CACHE_HOME": str(cache), "UV_CACHE_DIR": asked.stdout.strip()}
