"""A job for tests: `gated.py PATTERN [EXIT_CODE]` runs until its gate is opened, then exits.

PATTERN names the gate's file; {rank} and {attempt} in it are filled in.
"""

import os
import sys
import time
from pathlib import Path

LIMIT_SECONDS = 120


def main() -> int:
    gate = Path(sys.argv[1].format(rank=os.environ["MUSTER_RANK"], attempt=os.environ["MUSTER_ATTEMPT"]))
    deadline = time.monotonic() + LIMIT_SECONDS
    print(f"waiting for {gate.name}", flush=True)
    while not gate.exists():
        if time.monotonic() > deadline:
            print("nobody opened the gate", file=sys.stderr)
            return 9
        time.sleep(0.05)
    return int(sys.argv[2]) if len(sys.argv) > 2 else 0


if __name__ == "__main__":
    sys.exit(main())
