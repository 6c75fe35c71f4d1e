"""A job for tests: `gated.py PATTERN [EXIT_CODE]` runs until its gate is opened, then exits.

PATTERN names the gate's file; {rank} and {attempt} in it are filled in.
"""

import os
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


def main() -> int:
    wait(Path(sys.argv[1].format(rank=os.environ["MUSTER_RANK"], attempt=os.environ["MUSTER_ATTEMPT"])))
    return int(sys.argv[2]) if len(sys.argv) > 2 else 0


if __name__ == "__main__":
    sys.exit(main())
