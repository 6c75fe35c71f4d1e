"""The objects of the embedded cluster: versions, watches, deletion, owners, and what their schemas refuse."""

import copy
import threading
from queue import SimpleQueue
from typing import Any

import pytest

from muster.options.hyperpod.local.kubernetes.object_store import DeleteOptions, ObjectStore, WatchEvent
from muster.options.hyperpod.local.kubernetes.requests import parse_labels
from muster.options.hyperpod.local.kubernetes.schemas import completed
from muster.options.hyperpod.local.kubernetes.served_resources import JOBS, PODS
from muster.options.hyperpod.local.kubernetes.status_errors import StatusError
from tests.support.kubernetes_api import job


@pytest.fixture
def store() -> ObjectStore:
    store = ObjectStore()
    store.add_namespace("team")
    return store


def named(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}}


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {**named(name, **metadata), "spec": {"containers": [{"name": "main", "image": "image:1"}]}}


def running(name: str, **metadata: Any) -> dict[str, Any]:
    made = pod(name, **metadata)
    made["spec"]["nodeName"] = "node-1"
    return made


def owner(document: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: document["metadata"][name] for name in ("name", "uid")}
    kind = {name: document[name] for name in ("apiVersion", "kind")}
    return {**kind, **metadata, "controller": True, "blockOwnerDeletion": True}


def refusal(call: Any, *arguments: Any, **options: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        call(*arguments, **options)
    return caught.value


def seen(watch: SimpleQueue[WatchEvent]) -> list[tuple[str, bool]]:
    """Names, and whether they are gone."""
    events = []
    while not watch.empty():
        event = watch.get()
        events.append((event.object["metadata"]["name"], event.is_gone))
    return events


def test_a_new_object_has_what_the_server_sets(store: ObjectStore) -> None:
    created = store.create(JOBS, {**job(), "status": {"conditions": [{"type": "Completed"}]}}, "team")
    metadata = created["metadata"]
    assert (created["apiVersion"], created["kind"]) == ("sagemaker.amazonaws.com/v1", "HyperPodPyTorchJob")
    assert metadata["namespace"] == "team"
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    later = store.create(JOBS, job("later"), "team")["metadata"]
    assert int(metadata["resourceVersion"]) + 1 == int(later["resourceVersion"])
    assert "status" not in created
    made = store.create(PODS, pod("worker"), "team")
    assert made["status"] == {"phase": "Pending"}
    assert made["spec"]["terminationGracePeriodSeconds"] == 30


def test_a_name_is_taken_once_in_a_namespace_that_exists(store: ObjectStore) -> None:
    store.create(JOBS, job(), "team")
    error = refusal(store.create, JOBS, job(), "team")
    assert (error.code, error.reason) == (409, "AlreadyExists")
    error = refusal(store.create, JOBS, job(), "other")
    assert (error.code, error.message) == (404, 'namespaces "other" not found')
    for name in ("Upper", "under_score", "-a", "a-", "a" * 254, "a..b", ""):
        error = refusal(store.create, JOBS, job(name), "team")
        assert (error.code, error.reason) == (422, "Invalid"), name
        assert error.details["causes"][0]["field"] == "metadata.name"


def test_a_write_that_changes_nothing_has_no_new_version(store: ObjectStore) -> None:
    created = store.create(JOBS, job(), "team")
    assert store.change(JOBS, created["metadata"], lambda _: None) == created
    later = store.create(JOBS, job("later"), "team")["metadata"]
    assert int(created["metadata"]["resourceVersion"]) + 1 == int(later["resourceVersion"])
    # What is handed out is a copy.
    created["spec"]["replicaSpecs"].append("changed")
    assert len(store.get(JOBS, "train", "team")["spec"]["replicaSpecs"]) == 1


def test_objects_are_chosen_by_labels(store: ObjectStore) -> None:
    store.create(PODS, pod("b", labels={"app": "x", "n": "2"}), "team")
    store.create(PODS, pod("a", labels={"app": "x", "n": "1"}), "team")
    store.create(PODS, pod("c"), "team")
    chosen = {"": ["a", "b", "c"], "app=x": ["a", "b"], "app=x,n=2": ["b"], "app=y": []}
    found = {labels: store.list(PODS, "team", parse_labels(labels)) for labels in chosen}
    assert {labels: [item["metadata"]["name"] for item in items] for labels, items in found.items()} == chosen
    for labels in ("-a=b", "a=b c", "a=_"):
        assert refusal(parse_labels, labels).code == 400, labels


def test_a_watch_begins_with_what_is_there_and_sees_what_follows(store: ObjectStore) -> None:
    store.create(JOBS, job("before"), "team")
    watch = store.watch()
    made = store.create(JOBS, job(), "team")
    store.create(PODS, pod("other"), "team")
    store.change(JOBS, made["metadata"], lambda found: found["spec"].update(nprocPerNode="2"))
    store.delete(JOBS, "before", "team")
    there = ["default", "before", "train", "other", "train"]
    assert seen(watch) == [*((name, False) for name in there), ("before", True)]


def test_dependents_are_deleted_with_their_owner_and_a_running_pod_has_time_to_end(store: ObjectStore) -> None:
    created, other = store.create(JOBS, job(), "team"), store.create(JOBS, job("other"), "team")
    store.create(PODS, pod("worker", ownerReferences=[owner(created)]), "team")
    store.create(PODS, running("bound", ownerReferences=[owner(created)]), "team")
    store.create(PODS, pod("of-other", ownerReferences=[owner(other)]), "team")
    _, gone = store.delete(JOBS, "train", "team")
    assert gone
    assert store.find(PODS, "worker", "team") is None
    assert "deletionTimestamp" not in store.get(PODS, "of-other", "team")["metadata"]
    metadata = store.get(PODS, "bound", "team")["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 30
    assert metadata["deletionTimestamp"] > metadata["creationTimestamp"]
    _, gone = store.delete(PODS, "bound", "team", DeleteOptions(grace_seconds=0))
    assert gone
    # A pod that comes too late has no owner.
    store.create(PODS, pod("late", ownerReferences=[owner(created)]), "team")
    assert store.find(PODS, "late", "team") is None


def test_an_owner_waits_in_the_foreground_for_its_dependents(store: ObjectStore) -> None:
    created = store.create(JOBS, job(), "team")
    store.create(PODS, running("worker", ownerReferences=[owner(created)]), "team")
    answer, gone = store.delete(JOBS, "train", "team", DeleteOptions(foreground=True))
    assert not gone
    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert store.get(JOBS, "train", "team")["metadata"]["deletionTimestamp"]
    store.delete(PODS, "worker", "team", DeleteOptions(grace_seconds=0))
    assert store.find(JOBS, "train", "team") is None


def test_a_deletion_names_the_object_that_it_means(store: ObjectStore) -> None:
    created = store.create(JOBS, job(), "team")["metadata"]
    assert refusal(store.delete, JOBS, "train", "team", DeleteOptions(uid="another")).code == 409
    former = DeleteOptions(uid=created["uid"], resource_version="1")
    assert refusal(store.delete, JOBS, "train", "team", former).code == 409
    seen = DeleteOptions(uid=created["uid"], resource_version=created["resourceVersion"])
    _, gone = store.delete(JOBS, "train", "team", seen)
    assert gone


def test_a_pod_needs_the_service_account_that_it_names(store: ObjectStore) -> None:
    document = pod("worker")
    document["spec"]["serviceAccountName"] = "muster-run"
    error = refusal(store.create, PODS, document, "team")
    assert (error.code, error.reason) == (403, "Forbidden")
    assert "team/muster-run" in error.message


def test_a_controller_changes_and_deletes_the_object_that_it_has_seen_alone(store: ObjectStore) -> None:
    seen_before = store.create(JOBS, job(), "team")["metadata"]
    store.delete(JOBS, "train", "team")
    assert store.change(JOBS, seen_before, lambda found: found.clear()) is None
    store.create(JOBS, job(), "team")
    assert store.change(JOBS, seen_before, lambda found: found.clear()) is None
    store.discard(JOBS, seen_before)
    assert store.get(JOBS, "train", "team")["metadata"]["uid"] != seen_before["uid"]


def test_changes_of_threads_are_all_kept(store: ObjectStore) -> None:
    metadata = store.create(JOBS, job(), "team")["metadata"]

    def add_one(found: dict[str, Any]) -> None:
        found["status"] = {"restartCount": found.get("status", {}).get("restartCount", 0) + 1}

    def count() -> None:
        for _ in range(50):
            store.change(JOBS, metadata, add_one)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert store.get(JOBS, "train", "team")["status"]["restartCount"] == 200


# --- schemas --------------------------------------------------------------------------------------------------------

CONTAINER = "spec.replicaSpecs.0.template.spec.containers.0"


def with_value(path: str, value: Any) -> dict[str, Any]:
    """A job with another value somewhere."""
    document = copy.deepcopy(job(runPolicy={}))
    *parents, last = path.split(".")
    place: Any = document
    for name in parents:
        place = place[int(name)] if name.isdigit() else place.setdefault(name, {})
    place[last] = value
    return document


def test_a_schema_drops_unknown_fields_and_fills_defaults_in() -> None:
    plain, unknown = completed(JOBS, job(runPolicy={}))
    spec = plain["spec"]
    assert unknown == []
    assert (spec["nprocPerNode"], spec["replicaSpecs"][0]["spares"]) == ("auto", 0)
    assert spec["runPolicy"] == {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 0}
    for path in ("surprise", "spec.runPolicy.surprise", f"{CONTAINER}.surprise", "spec.replicaSpecs.0.x"):
        assert completed(JOBS, with_value(path, {"a": [1]})) == (plain, [path.replace(".0", "[0]")])
    null = completed(JOBS, with_value(f"{CONTAINER}.env", [{"name": "A", "value": None}]))[0]
    assert null["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["env"] == [{"name": "A"}]
    assert "runPolicy" not in completed(JOBS, job())[0]["spec"]
    assert completed(JOBS, job(nprocPerNode="2"))[0]["spec"]["nprocPerNode"] == "2"


def test_annotations_have_256_kib_in_all(store: ObjectStore) -> None:
    fitting = {"a": "x" * 200_000, "b": "x" * (256 * 1024 - 200_002)}
    store.create(PODS, pod("fits", annotations=fitting), "team")
    with pytest.raises(StatusError) as caught:
        store.create(PODS, pod("large", annotations={**fitting, "c": ""}), "team")
    assert (caught.value.code, caught.value.details["causes"][0]["field"]) == (422, "metadata.annotations")
