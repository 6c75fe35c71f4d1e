"""Counts its incarnations in a checkpoint, then waits for SIGTERM, prints a last line and ends."""

import os
import signal
import sys
import threading
from pathlib import Path

wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 0
checkpoints = Path(os.environ["SAGEMAKER_BASE_DIR"]) / "checkpoints"
checkpoints.mkdir(exist_ok=True)
file = checkpoints / "count"
count = int(file.read_text()) + 1 if file.exists() else 1
stopped = threading.Event()


def goodbye(*_: object) -> None:
    (checkpoints / f"goodbye-{count}").write_text("bye")
    stopped.set()


# A test may send the signal once the file or the line exists.
signal.signal(signal.SIGTERM, goodbye)
file.write_text(str(count))
print(f"count={count}")
if count != wanted:
    stopped.wait()
