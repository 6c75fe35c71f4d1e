"""A program for pods: does what its arguments say, one after the other."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

BASE = Path(os.environ["SAGEMAKER_BASE_DIR"])


def wait_for_stop() -> None:
    """Wait for SIGTERM, save, and end as a replica does."""
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    (BASE / "ready").touch()
    while not asked:
        time.sleep(0.02)
    (BASE / "checkpoints" / "saved").write_text("saved at SIGTERM")
    (BASE / "output").mkdir(exist_ok=True)
    (BASE / "output" / "failure").write_text("[saved] The replica was asked to stop (SIGTERM).")
    sys.exit(143)


for argument in sys.argv[1:]:
    verb, _, value = argument.partition("=")
    if verb == "say":
        print(value, flush=True)
    elif verb == "show":
        config = json.loads((BASE / "input" / "config" / "resourceconfig.json").read_text())
        names = ("RANK", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "TRAINING_JOB_NAME")
        print(json.dumps({"config": config, **{name: os.environ.get(name) for name in names}}), flush=True)
    elif verb == "checkpoint":
        (BASE / "checkpoints" / "state").write_text(value)
    elif verb == "count":
        path = BASE / "checkpoints" / "count"
        path.write_text(str(int(path.read_text()) + 1 if path.exists() else 1))
    elif verb == "output":
        (BASE / "output" / "data" / "manifest.json").write_text(value)
        (BASE / "model" / "weights").write_text(value)
    elif verb == "fail":
        (BASE / "output" / "failure").write_text(value)
        sys.exit(3)
    elif verb == "fail-first":
        if (BASE / "checkpoints" / "count").read_text() == "1":
            (BASE / "output" / "failure").write_text(value)
            sys.exit(1)
    elif verb == "kill-worker-first":
        # The worker is the program's parent; the second time it is the program itself.
        is_first = (BASE / "checkpoints" / "count").read_text() == "1"
        os.kill(os.getppid() if is_first else os.getpid(), signal.SIGKILL)
        time.sleep(60)
    elif verb == "leave-child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        (BASE / "child").write_text(str(child.pid))
    elif verb == "wait":
        wait_for_stop()
