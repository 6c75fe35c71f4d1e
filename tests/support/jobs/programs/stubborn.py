"""Ignores SIGTERM and leaves a child behind; both write their process ids."""

import signal
import subprocess
import sys
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(f"child={child.pid}")
print("ready")
time.sleep(600)
