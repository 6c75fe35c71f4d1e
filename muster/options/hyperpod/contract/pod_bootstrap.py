"""The command of a pod's container. It works in an image that has Muster, and in one that has Python and boto3 alone.

The channel `muster-package` of the pod's work names the replica package: it is fetched, checked against the digest in
its name, makes a Python with what it needs, and becomes `POD_MODULE` there. Without it the image has Muster. What goes
wrong before Muster's own code runs is reported as the pod's end, as far as its credentials reach.
"""

from __future__ import annotations

from muster.contract.exits import ReplicaExit
from muster.contract.training.source_delivery import DEFAULT_BASE_DIR, ENV_BASE_DIR, PACKAGE_CHANNEL, PACKAGE_SUFFIX
from muster.options.hyperpod.contract.pod_work import ENV_POD_WORK

POD_MODULE = "muster.options.hyperpod.replica.first_process"
ENV_POD_NAME = "POD_NAME"
"""The pod's name (metadata.name), by the downward API."""
ENV_POD_ADDRESS = "POD_IP"
"""The pod's address (status.podIP), by the downward API."""
AGENT_PORT = 8080
"""Where the operator finds the agent (hyperpodrun) of a pod."""
STOP_SECONDS = 180
"""terminationGracePeriodSeconds of a pod: so long Kubernetes waits after SIGTERM."""

# An older Python must reach the error: no newer syntax here.
_CODE = f"""
import hashlib, importlib.util, json, os, subprocess, sys, time

started = time.time()
base = os.environ.get("{ENV_BASE_DIR}") or "{DEFAULT_BASE_DIR}"

def utc(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))

def client():
    import boto3
    from botocore.config import Config
    bounds = Config(connect_timeout=10, read_timeout=60, retries={{"mode": "standard", "total_max_attempts": 6}})
    region = os.environ.get("MUSTER_REGION") or None
    return boto3.client("s3", region_name=region, config=bounds)

def place_of(uri):
    return uri[len("s3://"):].split("/", 1)

def fail(work, reason, code={ReplicaExit.BAD_INPUT:d}, word="{ReplicaExit.BAD_INPUT.word}"):
    sys.stderr.write("muster: " + reason + "\\n")
    try:
        job, pod = work["job"], os.environ.get("{ENV_POD_NAME}", "")
        rank, attempt = job.rsplit("-", 2)[1:]
        mark = "bootstrap-%d-%d" % (started, os.getpid())
        bucket, prefix = place_of(work["notices_uri"])
        key = "%s/end-%s-%s-%s.json" % (prefix.rstrip("/"), rank, attempt, mark)
        body = dict(version=1, exit_code=code, reason="[%s] %s" % (word, reason[:900]), pod=pod,
                    started_at=utc(started), ended_at=utc(time.time()))
        client().put_object(Bucket=bucket, Key=key, Body=json.dumps(body).encode())
    except Exception as error:
        sys.stderr.write("muster: the pod's end cannot be reported: %s\\n" % error)
    sys.exit(code)

def package(work, uri):
    name = uri.rsplit("/", 1)[-1]
    path = os.path.join(base, "input", "data", "{PACKAGE_CHANNEL}", name)
    try:
        bucket, key = place_of(uri)
        body = client().get_object(Bucket=bucket, Key=key)["Body"].read()
        found = hashlib.sha256(body).hexdigest()
        if name != found + "{PACKAGE_SUFFIX}":
            fail(work, "Muster's replica package " + uri + " is damaged: its SHA-256 is " + found + ".")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(body)
    except Exception as error:
        name = type(error).__name__
        reason = "Muster's replica package %s cannot be fetched: %s: %s" % (uri, name, error)
        # A pod that was made before its pod identity association took effect never gets credentials; the next one may.
        if name in ("NoCredentialsError", "CredentialRetrievalError"):
            fail(work, reason, {ReplicaExit.RENDEZVOUS:d}, "{ReplicaExit.RENDEZVOUS.word}")
        fail(work, reason)
    return path

def installed(work, path):
    command = [sys.executable, path, "--install", os.path.join(base, "muster-pod", "installed")]
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    said = made.stdout.strip().splitlines() or ["Muster's replica package cannot be installed"]
    if made.returncode:
        sys.stderr.write(made.stdout)
        fail(work, said[-1].replace("muster: ", "", 1))
    return said[-1]

def main():
    try:
        work = json.loads(os.environ["{ENV_POD_WORK}"])
        uris = [item["uri"] for item in work.get("channels", ()) if item["name"] == "{PACKAGE_CHANNEL}"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        fail({{}}, "{ENV_POD_WORK} cannot be read: %s: %s" % (type(error).__name__, error))
    python, command = sys.executable, ["-m", "{POD_MODULE}"]
    if uris:
        path = package(work, uris[0])
        python, command = installed(work, path), [path, "--run", "{POD_MODULE}"]
    elif importlib.util.find_spec("muster") is None:
        fail(work, "The image has no Muster: install muster-train[replica] in it, or set source_dir in the spec.")
    sys.stdout.flush()
    os.execv(python, [python] + command)

main()
"""

POD_COMMAND = ("python", "-c", _CODE.strip())
"""The command of the container; it has no further arguments."""
