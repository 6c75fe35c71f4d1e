"""Loads the kernel's library for this machine; without one, NumPy computes the same bits.

A wheel carries the libraries of all machines; `make setup` compiles the one of its own machine. An installation from
sources has none, and the replica package (a zip file) carries those of the Muster that has built it.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import pkgutil
import platform
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from threading import Lock

from muster.replica.kernel.calls import Kernel

log = logging.getLogger("muster.replica")

SOURCE = "kernel.c"
MACHINES = ("x86_64", "aarch64")
"""As `platform.machine()` names them on Linux."""
# What the library of a machine uses beyond every processor of its kind: all of Intel's since 2013, of AMD's since 2015.
_FEATURES = {"x86_64": frozenset({"avx2", "f16c"})}
_CPUS = Path("/proc/cpuinfo")
_CPUS_BYTES = 16_384  # the first processor's part
_LOCK = Lock()


class _UnusableError(Exception):
    """There is no library that this process can use; says why."""


def library_name(machine: str) -> str:
    """The file, beside the source, that is compiled for `machine`."""
    return f"kernel-{machine}.so"


def source_digest(source: bytes) -> str:
    """What a library says of the source that it was made from."""
    return hashlib.sha256(source).hexdigest()[:16]


def kernel() -> Kernel | None:
    """The kernel, loaded by the first call; None where NumPy takes its place."""
    with _LOCK:
        return _loaded()


@lru_cache(maxsize=1)
def _loaded() -> Kernel | None:
    try:
        return Kernel(_library(platform.machine()))
    except (_UnusableError, OSError) as error:
        log.info("event=no-kernel reason=%r: NumPy codes and averages instead, more slowly", str(error))
        return None


def _library(machine: str) -> ctypes.CDLL:
    """The library for this machine.

    Raises:
        _UnusableError, OSError: there is none, it cannot be loaded, or it was made from another source.
    """
    if sys.platform != "linux" or machine not in MACHINES:
        message = f"there is none for {sys.platform} on {machine or 'this processor'}"
        raise _UnusableError(message)
    if missing := _FEATURES.get(machine, frozenset()) - _features():
        message = f"this processor lacks {' and '.join(sorted(missing))}"
        raise _UnusableError(message)
    library = _opened(library_name(machine))
    try:
        found = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "muster_kernel_source"))).decode()
    except ValueError:
        found = "another library"
    if found != (wanted := source_digest(_content(SOURCE))):
        message = f"{library_name(machine)} was made from another source: {found}, not {wanted}"
        raise _UnusableError(message)
    return library


def _opened(name: str) -> ctypes.CDLL:
    path = Path(__file__).with_name(name)
    if path.is_file():
        return ctypes.CDLL(str(path))
    # From a zip file, by way of a file in memory: no folder need be writable. The library stays when it is closed.
    if not hasattr(os, "memfd_create"):  # Python was built for older systems
        with tempfile.NamedTemporaryFile(suffix=name) as copy:
            copy.write(_content(name))
            copy.flush()
            return ctypes.CDLL(copy.name)
    file = os.memfd_create(name)
    try:
        with open(file, "wb", closefd=False) as memory:
            memory.write(_content(name))
        return ctypes.CDLL(f"/proc/self/fd/{file}")
    finally:
        os.close(file)


def _content(name: str) -> bytes:
    try:
        content = pkgutil.get_data(__package__, name)
    except OSError:
        content = None
    if content is None:
        message = f"{name} is not installed"
        raise _UnusableError(message)
    return content


def _features() -> frozenset[str]:
    """What the processor can do, as Linux names it."""
    try:
        with _CPUS.open(encoding="utf-8") as file:
            text = file.read(_CPUS_BYTES)
    except OSError:
        return frozenset()
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(flags.partition(":")[2].split())
