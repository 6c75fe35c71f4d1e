"""Which library of the kernel a process loads: from a folder or a zip file, or none, which one line of the log says."""

import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from muster.infra.deploy.bundle import build_replica_package
from muster.infra.release import kernels
from muster.infra.release.kernels import FOLDER, KernelError, compile_native, compiled
from muster.replica.kernel import library
from muster.replica.kernel.library import SOURCE, library_name, source_digest
from tests.support.kernels import with_other_digest
from tests.support.source_patch import ROOT

LIBRARY = library_name(platform.machine())
PROGRAM = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
import numpy as np
from muster.replica.algorithms.outer_optimizer import Nesterov
from muster.replica.kernel import kernel
for _ in range(3):
    Nesterov().step(*(np.ones(4, np.float32) for _ in range(3)))
print("kernel" if kernel() else "NumPy")
"""
OLD_PYTHON = "import os; del os.memfd_create\n"
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def compiled_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with a library for this machine."""
    folder = tmp_path_factory.mktemp("package")
    for name in ("__init__.py", "torch.py", "torchft.py", "contract", "options", "replica"):
        source, target = ROOT / "muster" / name, folder / "muster" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(source, target)
    assert compile_native(folder / "muster") == f"The kernel for {platform.machine()} is compiled."
    return folder


def run(place: Path, before: str = "") -> list[str]:
    """What a program prints that imports Muster from `place`; `before`: what it does first."""
    command = [sys.executable, "-P", "-c", before + PROGRAM]
    environment = {"PYTHONPATH": str(place), "PATH": "/usr/bin:/bin"}
    result = subprocess.run(command, cwd=place.parent, env=environment, capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return result.stdout.splitlines()


@needs_compiler
def test_without_a_library_that_fits_numpy_takes_its_place_and_one_line_says_why(compiled_package: Path) -> None:
    path = compiled_package / "muster" / FOLDER / LIBRARY
    sound = path.read_bytes()
    contents = {
        f"{LIBRARY} is not installed": None,
        "invalid ELF header": b"#!/bin/sh\n" + bytes(5000),
        "was made from another source": with_other_digest(sound, source_digest(path.with_name(SOURCE).read_bytes())),
    }
    assert run(compiled_package) == ["kernel"]
    try:
        for reason, content in contents.items():
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
            line, answer = run(compiled_package)
            assert answer == "NumPy", reason
            assert line.startswith("event=no-kernel reason="), reason
            assert reason in line
    finally:
        path.write_bytes(sound)


@needs_compiler
def test_the_replica_package_brings_its_library_and_needs_no_folder(compiled_package: Path, tmp_path: Path) -> None:
    archive = build_replica_package(compiled_package / "muster", tmp_path)
    with zipfile.ZipFile(archive) as built:
        assert {f"muster/{FOLDER}/{SOURCE}", f"muster/{FOLDER}/{LIBRARY}"} <= set(built.namelist())
    assert run(archive) == ["kernel"]
    # One that was built for older systems has no files in memory.
    assert run(archive, OLD_PYTHON) == ["kernel"]


def test_a_processor_that_cannot_run_it_uses_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "muster.replica")
    monkeypatch.setattr(library, "_CPUS", tmp_path / "cpuinfo")
    cases = [
        ("riscv64", "", "there is none for linux on riscv64"),
        ("x86_64", "flags : fpu sse2 f16c\n", "this processor lacks avx2"),
        ("x86_64", None, "this processor lacks avx2 and f16c"),
    ]
    for machine, cpus, reason in cases:
        caplog.clear()
        library._loaded.cache_clear()
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        (tmp_path / "cpuinfo").unlink(missing_ok=True)
        if cpus is not None:
            (tmp_path / "cpuinfo").write_text(cpus, encoding="utf-8")
        try:
            assert library.kernel() is library.kernel() is None
        finally:
            library._loaded.cache_clear()
        assert [reason in record.message for record in caplog.records] == [True], reason


def test_a_compiler_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / SOURCE
    source.write_text("this is no C", encoding="utf-8")
    with pytest.raises(KernelError, match="false failed"):
        compiled(["false"], "x86_64", source, tmp_path / LIBRARY)
    assert [path.name for path in tmp_path.iterdir()] == [SOURCE]


def test_a_wheel_that_is_built_leaves_the_library_that_a_process_has_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_BUILD", tmp_path / "build")
    folder = tmp_path / "muster" / FOLDER
    kept = tmp_path / "build" / "kernels" / source_digest(b"int one;")
    for place, content in ((folder, "old"), (kept, "new")):
        place.mkdir(parents=True)
        for machine in kernels.MACHINES:
            (place / library_name(machine)).write_text(content, encoding="utf-8")
    (folder / SOURCE).write_bytes(b"int one;")
    with (folder / LIBRARY).open(encoding="utf-8") as loaded:
        kernels.add_kernels(tmp_path)
        assert (loaded.read(), (folder / LIBRARY).read_text(encoding="utf-8")) == ("old", "new")
    assert len(list(folder.iterdir())) == 1 + len(kernels.MACHINES)
