"""A signal for a pod that comes just when its agent ends."""

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.support.pods import ROOT

# In a process of its own: the pod's first process waits for all children.
CODE = """
    import os, subprocess, sys, threading
    from pathlib import Path
    from muster.options.hyperpod.contract.pod_work import PodWork
    from muster.options.hyperpod.replica.first_process import _Pod
    from muster.options.hyperpod.replica.folder import PodFolder
    from muster.options.hyperpod.replica.objects import Objects
    from muster.options.hyperpod.replica.pod import Pod

    agent = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"], start_new_session=True)

    class Stop(threading.Event):
        def is_set(self):
            os.waitid(os.P_PID, agent.pid, os.WEXITED | os.WNOWAIT)  # between two looks at the children
            return super().is_set()

    base, stop = Path(sys.argv[1]), Stop()
    stop.set()
    work = PodWork(job="muster-one-r0-a1", program=("true",), checkpoints_uri="s3://b/c/", output_uri="s3://b/o/",
                   notices_uri="s3://b/notices/one/", instances=1)
    pod = _Pod(Pod(work, base), PodFolder.of(base), None, Objects(), stop)
    threading.Timer(10, os._exit, [9]).start()
    print(pod._wait(agent), flush=True)
    os._exit(0)
"""


def test_an_agent_that_ends_just_before_the_signal_is_still_waited_for(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CODE), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
