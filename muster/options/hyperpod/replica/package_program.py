"""How the replica package becomes the first process of a pod, and how a pod ends that cannot: that is a notice, too.

Nothing that Muster requires is installed yet: the standard library and boto3 alone.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from muster.contract.exits import ReplicaExit, failure_text, with_exit_word
from muster.contract.training.source_delivery import DEFAULT_BASE_DIR, ENV_BASE_DIR
from muster.replica.entry.bootstrap import DeliveryError, PackageProgram, installed_python

_JOB = re.compile(r"-(r\d{1,4}-a\d{1,3})$")
_FIRST_PROCESS = "muster.options.hyperpod.replica"
_TERMINATION_LOG = Path("/dev/termination-log")


def _become_pod(package: str, variables: Mapping[str, str]) -> NoReturn:
    """Replace this process by the first one of a pod, in a Python that has what Muster requires.

    The environment stays as it is: the agent and its program run in the image's own Python.
    """
    place = Path(variables.get(ENV_BASE_DIR) or DEFAULT_BASE_DIR) / "muster-pod" / "installed"
    try:
        python = installed_python(Path(package), place)
    except (DeliveryError, OSError) as error:
        print(f"muster: {error}", file=sys.stderr)
        _report_end(variables, with_exit_word(ReplicaExit.BAD_INPUT, str(error)))
        sys.exit(ReplicaExit.BAD_INPUT)
    sys.stdout.flush()
    os.execv(python, [str(python), package, "--run", _FIRST_PROCESS])  # noqa: S606 - Muster's own program


OFFER = PackageProgram("--pod", _become_pod)


def _report_end(variables: Mapping[str, str], reason: str) -> None:
    """Write that the pod ends because its input cannot be used, as far as its variables and credentials allow."""
    text = failure_text(reason)
    try:
        if _TERMINATION_LOG.is_file():
            _TERMINATION_LOG.write_text(text)
        _put(variables, text)
    except Exception as error:  # boto3 may be missing, too
        print(f"muster: the pod's end cannot be reported: {type(error).__name__}: {error}", file=sys.stderr)


def _put(variables: Mapping[str, str], text: str) -> None:
    import boto3  # noqa: PLC0415 - may be missing
    from botocore.config import Config  # noqa: PLC0415

    work = json.loads(variables["MUSTER_POD_WORK"])
    which = _JOB.search(work["job"])
    if which is None:
        message = f"the job's name {work['job']!r} does not end with a rank and an attempt"
        raise ValueError(message)
    bucket, _, prefix = work["notices_uri"].removeprefix("s3://").partition("/")
    now = time.time()
    body = {
        "version": 1,
        "exit_code": int(ReplicaExit.BAD_INPUT),
        "reason": text,
        "started_at": _utc(now),
        "ended_at": _utc(now),
        "pod": variables.get("POD_NAME", ""),
    }
    bounds = Config(connect_timeout=10, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 4})
    client = boto3.client("s3", region_name=variables.get("MUSTER_REGION") or None, config=bounds)
    key = f"{prefix.rstrip('/')}/end-{which[1]}-installing-{int(now)}-{os.getpid()}.json"
    client.put_object(Bucket=bucket, Key=key, Body=json.dumps(body).encode())


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))
