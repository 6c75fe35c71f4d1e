"""Over HTTP at the embedded cloud, from any user of the machine: without a key, or with one that is not theirs."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import urllib3

from tests.attacks.attempts import Tries, Try
from tests.support.closed_door import CALLBACK, KEY, ROOT_KEY, Header, authorization, closed_door

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
HEALTH = "/_ministack/health"
SIGNAL = "/_ministack/cfn-signal/x"
PATHS = (
    *("/", "/bucket", "/bucket/key", "/2015-03-31/functions", "/_ministack/reset", "/_ministack/config", "/health"),
    *(HEALTH, f"{HEALTH}/", f"{HEALTH}y", f"{HEALTH}/../../bucket/key", f"{HEALTH}%2f..%2f..%2fbucket", f"/{HEALTH}"),
    *(CALLBACK, SIGNAL, "/_ministack/cfn-response", "/_ministack/cfn-signalled/x", "/_ministack/CFN-response/x"),
    *(
        "/_ministack/lambda-code/x",
        "/_localstack/health",
        "/_aws/execute-api/a/b",
        "/latest/meta-data/iam/security-credentials/",
        "/v2/_catalog",
        "/v2/credentials/any",
    ),
    *("/v4/abcdefgh", "/oauth2/token", "/oauth2/authorize", "/us-east-1_abc/.well-known/jwks.json", "/login"),
    *("/logout", "/graphql", "/restapis", "/clusters", "/iceberg/v1/config", "/_ministack/rds/iam-auth"),
)
TARGETS = ("", "AmazonSSM.GetParameter", "SageMaker.CreateTrainingJob", "AWSStepFunctions.StartExecution")
HOSTS = ("", "bucket.s3.localhost", "lambda.us-east-1.amazonaws.com", "x.execute-api.localhost")
STRANGERS = ("", "test", "123456789012", "000000000000", "AKIAAAAAAAAAAAAAAAAA", ROOT_KEY)
_PLANTED = b"what no stranger may read"
OPEN = {("GET", HEALTH), ("PUT", CALLBACK), ("PUT", SIGNAL)}


def _headers(key: str, target: str, host: str) -> Iterator[Header]:
    if key:
        yield authorization(key)
    if target:
        yield b"x-amz-target", target.encode()
    if host:
        yield b"host", host.encode()


def at_the_door() -> Tries:
    """Everything but the three open requests is answered before MiniStack sees it."""
    with closed_door() as door:
        for method, path in product(METHODS, PATHS):
            for index, key in enumerate(STRANGERS):
                target, host = TARGETS[index % len(TARGETS)], HOSTS[(index + len(path)) % len(HOSTS)]
                door.ask(method, path, [*_headers(key, target, host)])
                reached = [one for one in door.forwarded if one["headers"] or (method, path) not in OPEN]
                yield Try(f"{method} {path} by {key or 'nobody'}, {target}, {host}", bool(reached))
                door.forwarded.clear()
        presigned = f"X-Amz-Credential={KEY}%2F20260101%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Signature=0"
        for key, query in product(STRANGERS[1:], (presigned, "AWSAccessKeyId=test&Signature=x")):
            for first in (b"AWS4-HMAC-SHA256 x", b"x", b"AWS test:x", b""):
                door.ask("GET", "/bucket/key", [(b"authorization", first), authorization(key)], query)
                yield Try(f"two headers: {first!r} and {key}, {query}", bool(door.forwarded))
                door.forwarded.clear()
        for host in HOSTS:
            door.ask("GET", "/_aws/execute-api/a/b", [*_headers("test", "", host)], kind="websocket")
            yield Try(f"WebSocket to {host}", bool(door.forwarded))
        for method, path in sorted(OPEN):
            door.ask(method, path)
            yield Try(f"{method} {path}", bool(door.forwarded), is_own=True)
            door.forwarded.clear()


def on_a_cloud() -> Tries:
    """The same requests at a cloud that runs: none is answered with anything but a refusal."""
    from muster.local import LocalCloud  # noqa: PLC0415 - not for the short part
    from tests.support.workshop import Workshop, fast_settings  # noqa: PLC0415

    with TemporaryDirectory() as folder, LocalCloud.start(Path(folder, "cloud"), fast_settings()) as cloud:
        workshop = Workshop(cloud)
        workshop.s3.put_object(Bucket=workshop.bucket, Key="key", Body=_PLANTED)
        # Who is refused before the body has arrived loses the connection, perhaps during the next request.
        again = urllib3.Retry(2, redirect=False, allowed_methods=None)
        pool = urllib3.PoolManager(ca_certs=str(cloud.state.ca_file), retries=again)
        root = cloud.state.access_key_id
        paths = (*PATHS, f"/{workshop.bucket}/key", f"{HEALTH}/../../{workshop.bucket}/key")
        for method, path, key in product(METHODS, paths, (*STRANGERS, root)):
            headers = {name.decode(): value.decode() for name, value in _headers(key, TARGETS[len(path) % 4], "")}
            answer = pool.request(method, cloud.endpoint + path, headers=headers, body=b"{}")
            is_open = (method, path) in OPEN or answer.status >= 400
            yield Try(f"{method} {path} by {key or 'nobody'}: {answer.status}", not is_open or _PLANTED in answer.data)
        still = workshop.s3.get_object(Bucket=workshop.bucket, Key="key")["Body"].read()
        yield Try("the object is still there", still == _PLANTED, is_own=True)
