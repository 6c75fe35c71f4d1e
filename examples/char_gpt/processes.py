"""How many processes each replica of the demo has, and what demos with another number have reached."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from muster import MusterError, Spec


def asked_processes(text: str, spec: Spec, batch_size: int) -> int:
    """The processes of each replica: what the environment variable PROCESSES says, or else the spec; 1 by default.

    Raises:
        MusterError: `text` is not a number of processes among which a batch can be divided.
    """
    if not text:
        return spec.processes if isinstance(spec.processes, int) else 1
    allowed = [number for number in range(1, batch_size + 1) if batch_size % number == 0]
    if text not in map(str, allowed):
        message = (
            f"PROCESSES is {text}; allowed: {', '.join(map(str, allowed))}, "
            f"because the processes of a replica divide its batches of {batch_size} among them, or leave it unset."
        )
        raise MusterError(message)
    return int(text)


def remember(file: Path, training: Mapping[str, object], processes: int, loss: float | None) -> dict[int, float]:
    """Write a demo's loss to `file`; returns the losses of the same training with other numbers of processes."""
    found: dict[str, float] = {}
    # The file of an older version, or an edited one, is no reason to fail: it is written again.
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        stored = json.loads(file.read_text(encoding="utf-8"))
        if stored["training"] == training:
            found = {name: float(value) for name, value in stored["losses"].items()}
    others = {int(name): value for name, value in sorted(found.items()) if name != str(processes)}
    if loss is not None:
        losses = {**found, str(processes): loss}
        file.write_text(json.dumps({"training": training, "losses": losses}, indent=2) + "\n", encoding="utf-8")
    return others
