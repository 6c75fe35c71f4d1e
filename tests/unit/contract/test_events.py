from muster.contract.run.result import Result, Verdict
from muster.contract.run.run_events import (
    EVENT_VERSION,
    OUT,
    ReplicaLaunched,
    RunFailed,
    RunStopped,
    RunSucceeded,
    run_ended,
)

LAUNCHED = ReplicaLaunched(at="2026-01-01T00:00:00.000Z", run="night", rank=3, attempt=2, job="muster-night-r3-a2")


def test_a_copy_has_the_same_id_whenever_it_is_made():
    assert LAUNCHED.model_copy(update={"at": "2026-01-01T00:00:09.000Z"}).id == LAUNCHED.id


def test_events_about_different_things_have_different_ids():
    changes = [{}, {"run": "day"}, {"rank": 4}, {"attempt": 3}]
    assert len({LAUNCHED.model_copy(update=change).id for change in changes}) == len(changes)
    ends = [kind(at="", run="night", reason="", replicas=1, reruns=0, result="") for kind in (RunFailed, RunStopped)]
    assert ends[0].id != ends[1].id


def test_the_detail_is_what_consumers_were_promised():
    assert LAUNCHED.detail() == {
        "id": LAUNCHED.id,
        "version": EVENT_VERSION,
        "at": "2026-01-01T00:00:00.000Z",
        "run": "night",
        "rank": 3,
        "attempt": 2,
        "job": "muster-night-r3-a2",
    }


def test_the_names_of_the_events_are_those_that_rules_match():
    assert [event.detail_type for event in OUT] == [
        *("Run Started", "Replica Launched", "Replica Rerun", "Quorum Lost"),
        *("Run Succeeded", "Run Failed", "Run Stopped", "Run Rerun", "Run Refused"),
    ]


def test_every_verdict_has_its_event():
    ends = {}
    for verdict in Verdict:
        result = Result(run="night", verdict=verdict, reason="x" * 5_000, settled_at="now", replicas=(), reruns=0)
        ends[verdict] = run_ended(result, "s3://bucket/control/night/result.json")
        assert len(ends[verdict].reason) == 1_024
    assert [type(ends[verdict]) for verdict in Verdict] == [RunSucceeded, RunFailed, RunStopped]
