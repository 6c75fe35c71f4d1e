"""A job for tests: `deaf.py GATE` ignores SIGTERM, says so with the file GATE.deaf, and ends when GATE is there."""

import signal
import sys
import time
from pathlib import Path


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    gate = Path(sys.argv[1])
    gate.with_name(f"{gate.name}.deaf").touch()
    while not gate.exists():
        time.sleep(0.05)


if __name__ == "__main__":
    main()
