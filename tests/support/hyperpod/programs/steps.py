"""A worker: prints `step N` every tenth of a second. Arguments: seconds, exit code, exit code after a restart."""

import json
import os
import signal
import sys
import time

seconds, code = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if len(sys.argv) > 3 and restarts:
    code = int(sys.argv[3])
known = ("RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
print(json.dumps({**{name: os.environ[name] for name in known}, "restarts": restarts}), flush=True)


def say(number, _frame):
    print(f"signal {signal.Signals(number).name}", flush=True)
    sys.exit(0)


signal.signal(signal.SIGUSR1, say)
signal.signal(signal.SIGTERM, say)
for step in range(round(seconds * 10)):
    print(f"step {step}", flush=True)
    time.sleep(0.1)
sys.exit(code)
