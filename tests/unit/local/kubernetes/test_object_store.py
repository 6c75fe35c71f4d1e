"""The objects of the embedded cluster: versions, conflicts, watches, deletion, owners."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from muster.local.kubernetes.kinds.pods import PODS
from muster.local.kubernetes.kinds.resources import CONFIG_MAPS, JOBS, NODES
from muster.local.kubernetes.objects import patches
from muster.local.kubernetes.objects.deletion import DeleteOptions
from muster.local.kubernetes.objects.resource import NAMESPACES
from muster.local.kubernetes.objects.selectors import selector
from muster.local.kubernetes.objects.status_errors import StatusError
from muster.local.kubernetes.objects.store import ObjectStore
from muster.local.kubernetes.objects.watching import Watch


@pytest.fixture
def store() -> ObjectStore:
    store = ObjectStore()
    store.create(NAMESPACES, {"metadata": {"name": "team"}})
    return store


def named(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}}


def job(name: str = "train", **spec: Any) -> dict[str, Any]:
    return {**named(name), "spec": {"replicaSpecs": [], **spec}}


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {**named(name, **metadata), "spec": {"containers": [{"name": "main", "image": "image:1"}]}}


def owner(document: dict[str, Any], *, blocks: bool = True) -> dict[str, Any]:
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "name": document["metadata"]["name"],
        "uid": document["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": blocks,
    }


def refusal(call: Any, *arguments: Any, **options: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        call(*arguments, **options)
    return caught.value


def seen(watch: Watch) -> list[tuple[str, str]]:
    events = []
    while event := watch.next(0):
        events.append((event.type, event.object["metadata"]["name"]))
    return events


def test_a_new_object_has_what_the_server_sets(store: ObjectStore) -> None:
    created = store.create(JOBS, {**job(), "status": {"conditions": [{"type": "Completed"}]}}, "team")
    metadata = created["metadata"]
    assert created["apiVersion"] == "sagemaker.amazonaws.com/v1"
    assert created["kind"] == "HyperPodPyTorchJob"
    assert metadata["namespace"] == "team"
    assert metadata["generation"] == 1
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) == store.version
    assert "status" not in created


def test_a_name_is_taken_once(store: ObjectStore) -> None:
    store.create(JOBS, job(), "team")
    error = refusal(store.create, JOBS, job(), "team")
    assert (error.code, error.reason) == (409, "AlreadyExists")
    assert error.message == 'hyperpodpytorchjobs.sagemaker.amazonaws.com "train" already exists'
    assert error.details == {"name": "train", "group": "sagemaker.amazonaws.com", "kind": "hyperpodpytorchjobs"}


def test_a_namespace_must_exist(store: ObjectStore) -> None:
    error = refusal(store.create, JOBS, job(), "other")
    assert (error.code, error.message) == (404, 'namespaces "other" not found')


@pytest.mark.parametrize("name", ["Upper", "under_score", "-a", "a-", "a" * 254, "a..b", ""])
def test_a_name_that_is_none_is_refused(store: ObjectStore, name: str) -> None:
    error = refusal(store.create, JOBS, job(name), "team")
    assert (error.code, error.reason) == (422, "Invalid")
    assert error.details["causes"][0]["field"] == "metadata.name"


def test_a_generated_name_differs(store: ObjectStore) -> None:
    names = {store.create(PODS, pod("", generateName="worker-"), "team")["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("worker-") for name in names)


def test_an_update_of_an_older_version_is_a_conflict(store: ObjectStore) -> None:
    first = store.create(JOBS, job(), "team")
    store.update(JOBS, {**first, "spec": {"replicaSpecs": [], "nprocPerNode": "2"}}, "team")
    error = refusal(store.update, JOBS, {**first, "spec": {}}, "team")
    assert (error.code, error.reason) == (409, "Conflict")
    assert error.message.startswith(
        'Operation cannot be fulfilled on hyperpodpytorchjobs.sagemaker.amazonaws.com "train": the object has been'
    )


def test_a_custom_resource_is_not_updated_without_its_version(store: ObjectStore) -> None:
    store.create(JOBS, job(), "team")
    error = refusal(store.update, JOBS, job(), "team")
    assert error.code == 422
    assert "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update" in error.message


def test_the_generation_counts_changes_of_the_spec_alone(store: ObjectStore) -> None:
    store.create(JOBS, job(), "team")
    store.patch(JOBS, "train", {"metadata": {"labels": {"a": "b"}}}, "team")
    store.patch(JOBS, "train", {"status": {"restartCount": 1}}, "team", "status")
    assert store.get(JOBS, "train", "team")["metadata"]["generation"] == 1
    changed = store.patch(JOBS, "train", {"spec": {"nprocPerNode": "2"}}, "team")
    assert changed["metadata"]["generation"] == 2
    assert changed["status"] == {"restartCount": 1}


def test_status_and_spec_are_written_apart(store: ObjectStore) -> None:
    created = store.create(JOBS, job(), "team")
    store.update(JOBS, {**created, "status": {"startTime": "x"}}, "team")
    assert "status" not in store.get(JOBS, "train", "team")
    written = store.update(JOBS, {**created, "spec": {"lost": 1}, "status": {"startTime": "x"}}, "team", "status")
    assert written["spec"] == {"replicaSpecs": []}
    assert written["status"] == {"startTime": "x"}


def test_a_write_that_changes_nothing_has_no_new_version(store: ObjectStore) -> None:
    created = store.create(JOBS, job(), "team")
    assert store.patch(JOBS, "train", {}, "team") == created
    assert store.version == int(created["metadata"]["resourceVersion"])


def test_what_is_handed_out_is_a_copy(store: ObjectStore) -> None:
    created = store.create(JOBS, job(), "team")
    created["spec"]["replicaSpecs"].append("changed")
    assert store.get(JOBS, "train", "team")["spec"]["replicaSpecs"] == []


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("", ["a", "b", "c"]),
        ("app=x", ["a"]),
        ("app==x", ["a"]),
        ("app!=x", ["b", "c"]),
        ("app", ["a", "b"]),
        ("!app", ["c"]),
        ("app in (x, y)", ["a", "b"]),
        ("app notin (x)", ["b", "c"]),
        ("app in (x,y),n>1", ["b"]),
        ("n<2", ["a"]),
    ],
)
def test_objects_are_chosen_by_labels(store: ObjectStore, labels: str, expected: list[str]) -> None:
    store.create(PODS, pod("b", labels={"app": "y", "n": "2"}), "team")
    store.create(PODS, pod("a", labels={"app": "x", "n": "1"}), "team")
    store.create(PODS, pod("c"), "team")
    found = store.list(PODS, "team", selector(PODS, labels)).items
    assert [item["metadata"]["name"] for item in found] == expected


@pytest.mark.parametrize("labels", ["a b", "a in x", "-a=b", "a=b c", "a in (b", "n>x", "a=_"])
def test_a_selector_that_is_none_is_refused(labels: str) -> None:
    assert refusal(selector, PODS, labels).code == 400


def test_objects_are_chosen_by_fields(store: ObjectStore) -> None:
    store.create(PODS, pod("a"), "team")
    store.create(PODS, pod("b"), "team")
    store.patch(PODS, "b", {"status": {"phase": "Running"}}, "team", "status")
    found = store.list(PODS, "team", selector(PODS, fields="status.phase=Running,metadata.name!=a")).items
    assert [item["metadata"]["name"] for item in found] == ["b"]
    error = refusal(selector, JOBS, fields="spec.nprocPerNode=1")
    assert error.code == 400
    assert error.message.endswith("field label not supported: spec.nprocPerNode")


def test_a_watch_sees_what_follows_a_list(store: ObjectStore) -> None:
    store.create(JOBS, job("before"), "team")
    listing = store.list(JOBS, "team")
    store.create(JOBS, job(), "team")
    store.create(PODS, pod("other"), "team")
    store.patch(JOBS, "train", {"spec": {"nprocPerNode": "2"}}, "team")
    store.delete(JOBS, "before", "team")
    watch = store.watch(JOBS, "team", since=listing.version)
    assert seen(watch) == [("ADDED", "train"), ("MODIFIED", "train"), ("DELETED", "before")]


def test_a_watch_without_a_version_begins_with_what_is_there(store: ObjectStore) -> None:
    store.create(JOBS, job(), "team")
    watch = store.watch(JOBS)
    store.delete(JOBS, "train", "team")
    assert seen(watch) == [("ADDED", "train"), ("DELETED", "train")]


def test_an_object_that_ceases_to_match_is_deleted_for_a_watch(store: ObjectStore) -> None:
    watch = store.watch(PODS, "team", selector(PODS, "app=x"))
    store.create(PODS, pod("a", labels={"app": "x"}), "team")
    store.patch(PODS, "a", {"metadata": {"labels": {"app": "y"}}}, "team")
    store.patch(PODS, "a", {"metadata": {"labels": {"other": "y"}}}, "team")
    store.patch(PODS, "a", {"metadata": {"labels": {"app": "x"}}}, "team")
    assert seen(watch) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]


def test_a_version_that_is_forgotten_is_gone(store: ObjectStore) -> None:
    small = ObjectStore(history=3)
    small.create(NAMESPACES, named("team"))
    begin = small.version
    for index in range(3):
        small.create(CONFIG_MAPS, named(f"map-{index}"), "team")
    assert len(seen(small.watch(CONFIG_MAPS, since=begin))) == 3
    small.create(CONFIG_MAPS, named("one-more"), "team")
    error = refusal(small.watch, CONFIG_MAPS, since=begin)
    assert (error.code, error.reason) == (410, "Expired")
    assert error.message == f"too old resource version: {begin} ({begin + 2})"
    store.compact()
    assert refusal(store.watch, since=store.version - 1).code == 410
    assert seen(store.watch(since=store.version)) == []


def test_a_watch_wakes_its_reader_in_another_thread(store: ObjectStore) -> None:
    watch = store.watch(JOBS)
    found = []
    reader = threading.Thread(target=lambda: found.append(watch.next(10)))
    reader.start()
    store.create(JOBS, job(), "team")
    reader.join(10)
    assert [event.type for event in found if event] == ["ADDED"]
    waits = threading.Thread(target=lambda: found.append(watch.next()))
    waits.start()
    watch.close()
    waits.join(10)
    assert found[-1] is None


def test_a_reader_that_is_too_slow_is_cut_off(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.local.kubernetes.objects.watching._BACKLOG_MAX", 3)
    watch = store.watch(CONFIG_MAPS)
    for index in range(5):
        store.create(CONFIG_MAPS, named(f"map-{index}"), "team")
    assert watch.closed


def test_dependents_are_deleted_with_their_owner(store: ObjectStore) -> None:
    created = store.create(JOBS, job(), "team")
    store.create(PODS, pod("worker", ownerReferences=[owner(created)]), "team")
    _, gone = store.delete(JOBS, "train", "team")
    assert gone
    assert store.find(PODS, "worker", "team") is None


def test_a_running_pod_has_time_to_end(store: ObjectStore) -> None:
    created = store.create(JOBS, job(), "team")
    store.create(PODS, pod("worker", ownerReferences=[owner(created)]), "team")
    running = pod("bound", ownerReferences=[owner(created)])
    running["spec"]["nodeName"] = "node-1"
    store.create(PODS, running, "team")
    store.delete(JOBS, "train", "team")
    metadata = store.get(PODS, "bound", "team")["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 30
    assert metadata["deletionTimestamp"] > metadata["creationTimestamp"]
    _, gone = store.delete(PODS, "bound", "team", DeleteOptions(grace_seconds=0))
    assert gone


def test_an_owner_waits_in_the_foreground_for_its_dependents(store: ObjectStore) -> None:
    created = store.create(JOBS, job(), "team")
    running = pod("worker", ownerReferences=[owner(created)])
    running["spec"]["nodeName"] = "node-1"
    store.create(PODS, running, "team")
    answer, gone = store.delete(JOBS, "train", "team", DeleteOptions("Foreground"))
    assert not gone
    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert store.get(JOBS, "train", "team")["metadata"]["deletionTimestamp"]
    store.delete(PODS, "worker", "team", DeleteOptions(grace_seconds=0))
    assert store.find(JOBS, "train", "team") is None


def test_orphans_lose_their_owner_and_stay(store: ObjectStore) -> None:
    created = store.create(JOBS, job(), "team")
    store.create(PODS, pod("worker", ownerReferences=[owner(created)]), "team")
    store.delete(JOBS, "train", "team", DeleteOptions("Orphan"))
    assert store.find(JOBS, "train", "team") is None
    assert "ownerReferences" not in store.get(PODS, "worker", "team")["metadata"]


def test_a_dependent_of_an_owner_that_is_not_there_is_deleted(store: ObjectStore) -> None:
    created = store.create(JOBS, job(), "team")
    store.delete(JOBS, "train", "team")
    store.create(PODS, pod("worker", ownerReferences=[owner(created)]), "team")
    assert store.find(PODS, "worker", "team") is None


def test_a_dependent_of_two_owners_stays_with_the_other(store: ObjectStore) -> None:
    first, second = store.create(JOBS, job("one"), "team"), store.create(JOBS, job("two"), "team")
    references = [{**owner(first), "controller": False}, owner(second)]
    store.create(PODS, pod("worker", ownerReferences=references), "team")
    store.delete(JOBS, "one", "team")
    kept = store.get(PODS, "worker", "team")["metadata"]["ownerReferences"]
    assert [reference["name"] for reference in kept] == ["two"]


def test_a_finalizer_keeps_an_object_until_it_is_removed(store: ObjectStore) -> None:
    store.create(JOBS, {**job(), "metadata": {"name": "train", "finalizers": ["muster/keep"]}}, "team")
    _, gone = store.delete(JOBS, "train", "team")
    assert not gone
    error = refusal(store.patch, JOBS, "train", {"metadata": {"finalizers": ["muster/keep", "muster/more"]}}, "team")
    assert error.code == 422
    assert "no new finalizers can be added" in error.message
    store.patch(JOBS, "train", {"metadata": {"finalizers": None}}, "team")
    assert store.find(JOBS, "train", "team") is None


def test_a_deletion_names_the_object_that_it_means(store: ObjectStore) -> None:
    store.create(JOBS, job(), "team")
    assert refusal(store.delete, JOBS, "train", "team", DeleteOptions(uid="another")).code == 409
    assert refusal(store.delete, JOBS, "train", "team", DeleteOptions(resource_version="1")).code == 409
    assert refusal(store.delete, JOBS, "train", "team", DeleteOptions("Sideways")).code == 422
    assert store.find(JOBS, "train", "team")


def test_a_namespace_ends_with_all_that_is_in_it(store: ObjectStore) -> None:
    running = pod("worker")
    running["spec"]["nodeName"] = "node-1"
    store.create(PODS, running, "team")
    store.create(JOBS, job(), "team")
    store.delete(NAMESPACES, "team")
    assert store.find(JOBS, "train", "team") is None
    assert store.get(NAMESPACES, "team")["status"]["phase"] == "Terminating"
    error = refusal(store.create, JOBS, job(), "team")
    assert (error.code, error.reason) == (403, "Forbidden")
    store.delete(PODS, "worker", "team", DeleteOptions(grace_seconds=0))
    assert store.find(NAMESPACES, "team") is None


def test_objects_are_deleted_together(store: ObjectStore) -> None:
    for name in ("a", "b"):
        store.create(CONFIG_MAPS, named(name, labels={"app": name}), "team")
    deleted = store.delete_all(CONFIG_MAPS, "team", selector(CONFIG_MAPS, "app=a")).items
    assert [item["metadata"]["name"] for item in deleted] == ["a"]
    assert [item["metadata"]["name"] for item in store.list(CONFIG_MAPS).items] == ["b"]


def test_a_json_patch_is_applied_whole_or_not_at_all(store: ObjectStore) -> None:
    store.create(JOBS, job(), "team")
    operations = [
        {"op": "test", "path": "/spec/replicaSpecs", "value": []},
        {"op": "add", "path": "/spec/replicaSpecs/-", "value": {"name": "a"}},
        {"op": "copy", "from": "/spec/replicaSpecs/0", "path": "/spec/replicaSpecs/0"},
        {"op": "replace", "path": "/spec/replicaSpecs/1/name", "value": "b"},
        {"op": "add", "path": "/metadata/labels", "value": {"muster~1run": "x", "muster/run": "x"}},
        {"op": "remove", "path": "/metadata/labels/muster~01run"},
    ]
    changed = store.patch(JOBS, "train", operations, "team", kind=patches.JSON)
    assert changed["spec"]["replicaSpecs"] == [{"name": "a"}, {"name": "b"}]
    assert changed["metadata"]["labels"] == {"muster/run": "x"}
    broken = [{"op": "remove", "path": "/spec/replicaSpecs/0"}, {"op": "test", "path": "/spec", "value": 1}]
    assert refusal(store.patch, JOBS, "train", broken, "team", kind=patches.JSON).code == 422
    assert len(store.get(JOBS, "train", "team")["spec"]["replicaSpecs"]) == 2


def test_a_strategic_patch_merges_lists_by_their_key(store: ObjectStore) -> None:
    store.create(NODES, {**named("node-1"), "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}})
    patch = {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}, {"key": "a", "$patch": "delete"}]}}
    changed = store.patch(NODES, "node-1", patch, kind=patches.STRATEGIC)
    assert changed["spec"]["taints"] == [{"key": "b", "effect": "NoExecute"}]
    store.create(JOBS, job(), "team")
    assert refusal(store.patch, JOBS, "train", {}, "team", kind=patches.STRATEGIC).code == 415


def test_a_pod_stays_as_it_was_made(store: ObjectStore) -> None:
    created = store.create(PODS, pod("worker"), "team")
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert created["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    patch = {"spec": {"restartPolicy": "Never"}}
    error = refusal(store.patch, PODS, "worker", patch, "team")
    assert error.code == 422
    assert "pod updates may not change fields other than" in error.message


def test_changes_of_threads_are_all_kept(store: ObjectStore) -> None:
    store.create(CONFIG_MAPS, {**named("count"), "data": {"n": "0"}}, "team")

    def count() -> None:
        for _ in range(50):
            store.change(
                CONFIG_MAPS, "count", lambda found: found["data"].update(n=str(int(found["data"]["n"]) + 1)), "team"
            )

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert store.get(CONFIG_MAPS, "count", "team")["data"]["n"] == "200"
