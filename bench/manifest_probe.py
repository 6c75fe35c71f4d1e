"""One resolution in a process of its own, which reports the resources that it used.

Run as `python -m bench.manifest_probe`. Arguments: `muster` or `whole-archive`, the endpoint, the output URI, the job.
"""

from __future__ import annotations

import json
import resource
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import boto3
from botocore.config import Config

from muster.contract.layout import split_s3_uri
from muster.control.manifest import resolve_manifest

_STATUS = Path("/proc/self/status")


def main(way: str, endpoint: str, output_uri: str, job: str) -> None:
    """Print one JSON object: seconds, resident MiB before (all imported, client made) and at the peak."""
    s3 = boto3.client(
        "s3",
        region_name="us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id="bench",
        aws_secret_access_key="bench",  # noqa: S106 - the loopback server checks none
        config=Config(s3={"addressing_style": "path"}),
    )
    before = peak_mib()
    started = time.perf_counter()
    if way == "muster":
        checkpoint = resolve_manifest(s3, output_uri, job).checkpoint_uri
    else:
        bucket, prefix = split_s3_uri(output_uri)
        with tempfile.NamedTemporaryFile() as file:
            s3.download_file(bucket, f"{prefix}/{job}/output/output.tar.gz", file.name)
            with tarfile.open(file.name, "r:gz") as tar:
                member = tar.extractfile("manifest.json")
                assert member is not None
                checkpoint = json.loads(member.read())["checkpoint_s3_bucket"]
    seconds = time.perf_counter() - started
    print(json.dumps({"checkpoint": checkpoint, "seconds": seconds, "before_mib": before, "peak_mib": peak_mib()}))


def peak_mib() -> float:
    """The highest resident size of this process so far, in MiB."""
    if _STATUS.exists():
        # Linux hands ru_maxrss of the parent down to a child; VmHWM begins anew with the program.
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main(*sys.argv[1:])
