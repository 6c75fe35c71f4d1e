"""How much memory there is for what is read ahead."""

from __future__ import annotations

from pathlib import Path

# Of what is free beside the state itself: the trainer needs the rest for its model and its data.
SHARE = 0.5
_UNKNOWN_BYTES = 2**30
# Of each element: its parameter, its momentum, its mean, and its place in the trainer's own model.
_STATE_BYTES = 4 * 4
_MACHINE = Path("/proc/meminfo")
_CONTAINER = Path("/sys/fs/cgroup")


def room(elements: int, beside: int = 1, machine: Path = _MACHINE, container: Path = _CONTAINER) -> int:
    """How many bytes one of the `beside` processes of an instance may hold that will load a state.

    Args:
        elements: of the state that it will hold itself.
        beside: the processes of the instance that do the same.
        machine: where the system says how much memory it has.
        container: where the limit of the container lies (cgroup v2), if there is one.
    """
    free = [found for found in (_of_machine(machine), _of_container(container)) if found is not None]
    each = min(free, default=_UNKNOWN_BYTES) // beside
    return max(0, int((each - _STATE_BYTES * elements) * SHARE))


def _of_machine(path: Path) -> int | None:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


def _of_container(folder: Path) -> int | None:
    """What the container may still take. The files that the system has cached for it count as taken."""
    try:
        limit, taken = ((folder / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        return int(limit) - int(taken)
    except (OSError, ValueError):
        # There is none, or it is "max".
        return None
