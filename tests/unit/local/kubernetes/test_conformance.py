"""The requests that Muster sends to a cluster get the same answers from the embedded cloud and from tests/memory."""

import json
from typing import Any

from tests.memory.clock import VirtualClock
from tests.memory.kubernetes import Cluster, StatusError
from tests.support.kubernetes_api import JOBS, ApiClient, job

ACCOUNTS = "/api/v1/namespaces/team/serviceaccounts"
PODS = "/api/v1/namespaces/team/pods"


class Both:
    """Two clusters that are asked the same."""

    def __init__(self) -> None:
        self.api = ApiClient()
        self.memory = Cluster("memory", VirtualClock(), {"team"})

    def ask(self, method: str, path: str, embedded: Any = None, remembered: Any = None) -> tuple[Any, Any]:
        """The status of both answers, and their documents. The second body is the memory's, where it differs."""
        reply = self.api.call(method, path, embedded)
        body = embedded if remembered is None else remembered
        try:
            code, document = (
                201 if method == "POST" else 200,
                self.memory.answer(method, path, json.dumps(body).encode()),
            )
        except StatusError as error:
            code, document = error.code, {"reason": error.reason}
        assert reply.code == code, (method, path, reply.document, document)
        if code >= 300:
            assert reply.document["reason"] == document["reason"], (method, path)
        return reply.document, document


def labelled(name: str, **labels: str) -> dict[str, Any]:
    return {**job(name), "metadata": {"name": name, "labels": labels}}


def names(document: Any) -> list[str]:
    return [item["metadata"]["name"] for item in document["items"]]


def test_both_clusters_answer_a_life_of_a_job_alike() -> None:
    both = Both()
    strict = f"{JOBS}?fieldValidation=Strict"
    made = both.ask("POST", strict, labelled("a", app="x"))
    assert all(one["metadata"]["uid"] and one["metadata"]["creationTimestamp"].endswith("Z") for one in made)
    both.ask("POST", strict, labelled("a"))
    both.ask("POST", strict.replace("/team/", "/none/"), labelled("a"))
    wrong = labelled("c")
    wrong["spec"]["replicaSpecs"][0]["replicas"] = -1
    both.ask("POST", strict, wrong)
    both.ask("GET", f"{JOBS}/none")
    both.ask("DELETE", f"{JOBS}/none", {})
    for name in ("b", "d"):
        both.ask("POST", strict, labelled(name, app="x"))
    for query, expected in (("labelSelector=app%3Dx", ["a", "b", "d"]), ("labelSelector=app%3Dy", [])):
        assert [names(one) for one in both.ask("GET", f"{JOBS}?{query}")] == [expected, expected]
    pages = both.ask("GET", f"{JOBS}?limit=2")
    assert [names(page) for page in pages] == [["a", "b"], ["a", "b"]]
    for page, ask in zip(pages, (both.api.call, both.memory.answer), strict=True):
        rest: Any = ask("GET", f"{JOBS}?limit=2&continue={page['metadata']['continue']}", None)
        found = rest if isinstance(rest, dict) else rest.document
        assert (names(found), found["metadata"].get("continue", "")) == (["d"], "")
    stale = {"preconditions": {"resourceVersion": "1"}}
    both.ask("DELETE", f"{JOBS}/a", stale)
    bodies = [{"preconditions": {"uid": one["metadata"]["uid"]}} for one in made]
    both.ask("DELETE", f"{JOBS}/a", *bodies)
    both.ask("GET", f"{JOBS}/a")


def test_both_clusters_answer_a_life_of_a_service_account_alike() -> None:
    both = Both()
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "run", "labels": {"a": "b"}}}
    made = both.ask("POST", ACCOUNTS, account)
    both.ask("POST", ACCOUNTS, account)
    assert [one["metadata"]["labels"] for one in both.ask("GET", f"{ACCOUNTS}/run")] == [{"a": "b"}, {"a": "b"}]
    assert [names(one) for one in both.ask("GET", f"{PODS}?labelSelector=a%3Db&limit=100")] == [[], []]
    both.ask("DELETE", f"{ACCOUNTS}/run", {"preconditions": {"uid": "another"}})
    both.ask("DELETE", f"{ACCOUNTS}/run", *({"preconditions": {"uid": one["metadata"]["uid"]}} for one in made))
    both.ask("GET", f"{ACCOUNTS}/run")
