"""Calls of a cluster's API: tokens, retries, lists, errors."""

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import botocore.session
import pytest
from botocore.exceptions import ClientError

from muster.control.aws.aws_errors import is_transient
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.options.hyperpod.contract.cluster_token import cluster_token
from muster.options.hyperpod.control.api import TRIES, Connection, KubernetesApi
from muster.options.hyperpod.control.cluster_errors import (
    ClusterRefusedError,
    ClusterUnauthorizedError,
    ClusterUnavailableError,
)
from muster.options.hyperpod.control.cluster_https import HttpAnswer
from tests.memory.clock import VirtualClock
from tests.memory.kubernetes import failure

IMPATIENT = TimeBudget(float("-inf"))


class Scripted:
    """A transport that answers what a test says, one after the other, and then an empty object."""

    def __init__(self, *answers: HttpAnswer | Exception) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, str, Mapping[str, str], bytes | None]] = []

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        self.sent.append((method, path, headers, body))
        answer = self.answers.pop(0) if self.answers else found()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Opened:
    """An API over it, which counts its connections and tokens."""

    def __init__(self, *answers: HttpAnswer | Exception) -> None:
        self.transport = Scripted(*answers)
        self.connections = self.tokens = 0
        self.api = KubernetesApi("hyper", self.connect, self.token)

    def connect(self) -> Connection:
        self.connections += 1
        return Connection(self.transport, "EKS cluster eks-one, ACTIVE")

    def token(self) -> str:
        self.tokens += 1
        return f"k8s-aws-v1.secret{self.tokens}"


def found(**document: Any) -> HttpAnswer:
    return HttpAnswer(200, {}, json.dumps(document).encode())


@pytest.fixture(autouse=True)
def time() -> Any:
    virtual = VirtualClock()
    with virtual.install():
        yield virtual


def test_connection_and_token_are_kept_and_the_token_is_renewed_before_it_ends(time: VirtualClock) -> None:
    opened = Opened()
    for _ in range(3):
        opened.api.get("/a", IMPATIENT)
    assert (opened.connections, opened.tokens) == (1, 1)
    time.advance(14 * 60)
    opened.api.get("/a", IMPATIENT)
    assert (opened.connections, opened.tokens) == (1, 2)


def test_a_401_renews_the_token_once() -> None:
    refused = failure(401, "Unauthorized", "Unauthorized")
    opened = Opened(refused, found(kind="x"))
    assert opened.api.get("/a", IMPATIENT) == {"kind": "x"}
    assert opened.tokens == 2
    opened = Opened(refused, refused, refused, found(kind="x"))
    assert opened.api.get("/a", IMPATIENT) == {"kind": "x"}
    assert opened.tokens == 2


def test_a_cluster_that_cannot_ask_who_calls_may_know_later(time: VirtualClock) -> None:
    opened = Opened(*[failure(401, "Unauthorized", "Unauthorized")] * 1_000)
    with pytest.raises(ClusterUnauthorizedError, match=r"hyper .*GET /a: 401 Unauthorized"):
        opened.api.get("/a", IMPATIENT)
    assert len(opened.transport.sent) == TRIES
    with pytest.raises(ClusterUnauthorizedError) as error:
        opened.api.get("/a", TimeBudget.of(60))
    assert 60 <= clock.monotonic() < 90
    assert is_transient(error.value)


def test_what_passes_is_tried_again() -> None:
    for status in (429, 500, 502, 503, 504):
        opened = Opened(failure(status, "", ""), failure(status, "", ""), found(kind="x"))
        assert opened.api.get("/a", IMPATIENT) == {"kind": "x"}, status


def test_eks_that_throttles_is_asked_again_for_as_long_as_there_is_time() -> None:
    throttled = ClientError({"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}, "DescribeCluster")
    for budget, tries in ((TimeBudget.of(600), 31), (IMPATIENT, 1)):
        opened = Opened()
        refusals = [throttled] * 30

        def connect(opened: Opened = opened, refusals: list[ClientError] = refusals) -> Connection:
            opened.connections += 1
            if refusals:
                raise refusals.pop()
            return Connection(opened.transport, "EKS cluster eks-one, ACTIVE")

        api = KubernetesApi("hyper", connect, opened.token)
        with suppress(ClientError):
            api.get("/a", budget)
        assert opened.connections == tries


def test_a_broken_connection_is_made_anew() -> None:
    opened = Opened(ConnectionError("reset"), found())
    opened.api.get("/a", IMPATIENT)
    assert opened.connections == 2


def test_retry_after_is_obeyed(time: VirtualClock) -> None:
    opened = Opened(HttpAnswer(429, {"retry-after": "4"}, b""), found())
    opened.api.get("/a", TimeBudget.of(60))
    assert clock.monotonic() >= 4
    opened = Opened(HttpAnswer(429, {"retry-after": "4000"}, b""), found())
    opened.api.get("/a", TimeBudget.of(30))
    assert clock.monotonic() <= 35


def test_a_call_is_given_up_when_the_budget_is_spent_and_says_where(time: VirtualClock) -> None:
    opened = Opened(*[ConnectionError("reset")] * 1_000)
    with pytest.raises(ClusterUnavailableError, match=r"hyper \(EKS cluster eks-one, ACTIVE\)"):
        opened.api.get("/a", TimeBudget.of(200))
    assert 200 <= clock.monotonic() < 260
    # An API that takes requests and never answers does not use up a function's minute.
    opened, began = Opened(*[ConnectionError("read timed out")] * 1_000), clock.monotonic()
    send = opened.transport.send
    opened.transport.send = lambda *request: (time.advance(30), send(*request))[1]  # type: ignore[method-assign]
    with pytest.raises(ClusterUnavailableError):
        opened.api.get("/a", IMPATIENT)
    assert clock.monotonic() - began < 60


def test_an_answer_that_is_no_object_is_an_error_and_no_traceback() -> None:
    for body in (b"", b"<html>", b"[]", b"5", b"\xff"):
        with pytest.raises(ClusterUnavailableError):
            Opened(HttpAnswer(200, {}, body)).api.get("/a", IMPATIENT)
        with pytest.raises(ClusterRefusedError):
            Opened(HttpAnswer(403, {}, body)).api.get("/a", IMPATIENT)


def test_no_error_shows_the_token() -> None:
    for answer in (failure(403, "Forbidden", "no"), ConnectionError("reset")):
        opened = Opened(*[answer] * 20)
        with pytest.raises((ClusterRefusedError, ClusterUnavailableError)) as error:
            opened.api.get("/a", IMPATIENT)
        assert "secret" not in repr(error.value) + str(error.value)
        assert opened.transport.sent[0][2]["Authorization"] == "Bearer k8s-aws-v1.secret1"


def item(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name}}


def test_a_list_comes_in_pages_and_begins_anew_when_it_has_expired() -> None:
    opened = Opened(
        found(items=[item("a"), item("b")], metadata={"continue": "token"}),
        failure(410, "Expired", "the token is too old"),
        found(items=[item("a"), item("c")], metadata={"continue": "more"}),
        found(items=[item("d")], metadata={}),
    )
    names = [one["metadata"]["name"] for one in opened.api.list("/a", IMPATIENT, labelSelector="x=y")]
    assert names == ["a", "b", "c", "d"]
    queries = [parse_qs(urlsplit(path).query) for _, path, _, _ in opened.transport.sent]
    assert all(query["labelSelector"] == ["x=y"] and query["limit"] == ["100"] for query in queries)
    assert [query.get("continue") for query in queries] == [None, ["token"], None, ["more"]]


def test_a_token_is_a_signed_request_for_the_regional_host_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://localhost:1")
    for region, host in (("eu-central-1", "amazonaws.com"), ("cn-north-1", "amazonaws.com.cn")):
        session = botocore.session.get_session()
        session.set_credentials("AKIAEXAMPLE", "hidden", "of-a-role")
        session.set_config_variable("region", region)
        token = cluster_token(session, "eks-one")
        assert token.startswith("k8s-aws-v1.")
        assert "=" not in token
        encoded = token.removeprefix("k8s-aws-v1.")
        url = urlsplit(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode())
        query = parse_qs(url.query)
        assert (url.scheme, url.hostname) == ("https", f"sts.{region}.{host}")
        assert (query["Action"], query["X-Amz-Expires"]) == (["GetCallerIdentity"], ["60"])
        assert query["X-Amz-SignedHeaders"] == ["host;x-k8s-aws-id"]
        assert query["X-Amz-Security-Token"] == ["of-a-role"]
        assert query["X-Amz-Credential"][0].endswith(f"/{region}/sts/aws4_request")
        assert "hidden" not in url.query
