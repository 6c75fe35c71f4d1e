"""The memory of this process: now, and its peak since the last reset."""

from __future__ import annotations

from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def resident_mib() -> float:
    """Resident now."""
    return _field("VmRSS:")


def peak_mib() -> float:
    """Resident at most since `reset_peak`."""
    return _field("VmHWM:")


def reset_peak() -> None:
    """Reset the peak to the memory that is resident now (Linux: proc_pid_clear_refs(5), 5)."""
    _CLEAR.write_text("5")


def _field(name: str) -> float:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024
