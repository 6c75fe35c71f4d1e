"""Compiles the replica's kernel: for this machine with its own compiler, or for all machines with Zig.

`python -m muster.infra.release.kernels` is what `make setup` runs. Without a compiler it does nothing: NumPy computes
the same bits. A release has the libraries of all machines; Zig compiles them on any one, from one package.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from muster.infra.build_places import PACKAGE
from muster.replica.kernel.library import MACHINES, SOURCE, library_name, source_digest

FOLDER = Path("replica/kernel")
"""In the package: of the source, and of the libraries."""
# Each operation of float32 is rounded by itself, as in NumPy: nothing is contracted.
_FLAGS = (
    "-std=c11",
    "-O3",
    "-ffp-contract=off",
    "-ffreestanding",
    "-nostdlib",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
)
_MACHINE_FLAGS: Mapping[str, Sequence[str]] = {"x86_64": ("-mavx2", "-mf16c")}
_COMPILERS = ("cc", "gcc", "clang")
_BUILD = PACKAGE.parent / "build"
_ZIG = _BUILD / "zig" / "bin" / "python-zig"


class KernelError(Exception):
    """The kernel cannot be compiled; says why."""


def compiled(compiler: Sequence[str], machine: str, source: Path, target: Path) -> None:
    """Compile `source` for `machine` to `target`.

    Raises:
        KernelError: the compiler failed; with what it said.
    """
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    origin = f'-DSOURCE="{source_digest(source.read_bytes())}"'
    command = [*compiler, *_FLAGS, *_MACHINE_FLAGS.get(machine, ()), origin, "-o", str(partial), str(source)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
        if result.returncode:
            message = f"{compiler[0]} failed: {result.stderr.strip()[-1000:]}"
            raise KernelError(message)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def compile_native(package: Path = PACKAGE) -> str:
    """Compile the kernel for this machine into `package`; what came of it, in a line."""
    machine = platform.machine()
    compiler = next((found for name in _COMPILERS if (found := shutil.which(name))), None)
    if sys.platform != "linux" or machine not in MACHINES:
        return f"No kernel for {sys.platform} on {machine}: NumPy takes its place."
    if compiler is None:
        return "No kernel: this machine has no C compiler. NumPy takes its place."
    folder = package / FOLDER
    try:
        compiled([compiler], machine, folder / SOURCE, folder / library_name(machine))
    except KernelError as error:
        return f"No kernel: {error}\nNumPy takes its place."
    return f"The kernel for {machine} is compiled."


def add_kernels(tree: Path) -> None:
    """Put the libraries of all machines into a tree from which a distribution is built.

    They are kept in the clone's build folder, by the digest of their source.

    Raises:
        KernelError: there is no Zig, or it failed.
    """
    source = tree / "muster" / FOLDER / SOURCE
    kept = _BUILD / "kernels" / source_digest(source.read_bytes())
    kept.mkdir(parents=True, exist_ok=True)
    for machine in MACHINES:
        library = kept / library_name(machine)
        if not library.is_file():
            if not _ZIG.is_file():
                message = f"{_ZIG} is missing: make build/zig/.ready"
                raise KernelError(message)
            compiled([str(_ZIG), "cc", "-target", f"{machine}-linux-musl", "-s"], machine, source, library)
        target = source.with_name(library.name)
        # A process that has loaded the one before goes on with that: written over, it would crash.
        shutil.copyfile(library, partial := target.with_name(f"{target.name}.{os.getpid()}"))
        partial.replace(target)


def _environment() -> dict[str, str]:
    """Zig keeps what it has compiled in the build folder."""
    cache = str(_BUILD / "zig-cache")
    return {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}


if __name__ == "__main__":
    print(compile_native())
