"""A job for tests: `gated.py GATE` runs until the file GATE is there."""

import sys
import time
from pathlib import Path

LIMIT_SECONDS = 300  # the most that a test may take


def wait(gate: Path) -> None:
    """Return once the gate is open.

    Raises:
        TimeoutError: it stays shut.
    """
    deadline = time.monotonic() + LIMIT_SECONDS
    print(f"waiting for {gate.name}", flush=True)
    while not gate.exists():
        if time.monotonic() > deadline:
            message = f"{gate.name} stays shut"
            raise TimeoutError(message)
        time.sleep(0.05)


if __name__ == "__main__":
    wait(Path(sys.argv[1]))
