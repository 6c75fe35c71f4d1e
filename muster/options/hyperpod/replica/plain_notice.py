"""The notice of a pod that ends before what Muster requires is installed: the standard library and boto3 alone."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from muster.contract.exits import ReplicaExit, failure_text

_JOB = re.compile(r"-(r\d{1,4}-a\d{1,3})$")
_TERMINATION_LOG = Path("/dev/termination-log")


def report_end(variables: Mapping[str, str], reason: str) -> None:
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
