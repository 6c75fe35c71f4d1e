"""The kernel for arm64 makes the same bits as NumPy: an emulator of that processor runs it."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.infra.build_places import PACKAGE
from muster.infra.release.kernels import FOLDER
from muster.replica.kernel import Kernel
from muster.replica.kernel.library import SOURCE
from tests.release.arm64.remote_kernel import RemoteLibrary
from tests.support.kernels import CHECKS
from tests.support.source_patch import ROOT

ZIG = ROOT / "build" / "zig" / "bin" / "python-zig"
CACHE = str(ROOT / "build" / "zig-cache")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """The kernel for arm64, in a program that an emulator runs."""
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    assert emulator is not None, "QEMU's user emulation of arm64 is not installed: `make test-release` installs it"
    program = tmp_path_factory.mktemp("arm64") / "driver"
    sources = [PACKAGE / FOLDER / SOURCE, Path(__file__).with_name("kernel_driver.c")]
    options = ["-target", "aarch64-linux-musl", "-static", "-std=c11", "-O3", "-ffp-contract=off"]
    environment = {"ZIG_GLOBAL_CACHE_DIR": CACHE, "ZIG_LOCAL_CACHE_DIR": CACHE}
    subprocess.run([ZIG, "cc", *options, "-o", program, *sources], check=True, env=environment)
    library = RemoteLibrary([emulator, program])
    yield Kernel(library)  # type: ignore[arg-type] # has the functions of one
    library.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_kernel_for_arm64_makes_the_same_bits_as_numpy(compiled: Kernel, check: Callable[[Kernel], None]) -> None:
    check(compiled)
