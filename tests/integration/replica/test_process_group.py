"""A replica of several processes as SageMaker sees it: its launcher starts real processes, on one instance and on two.

What the launcher does with processes that fail, hang or are stopped is in test_launcher.py. tests/torch has one whose
processes PyTorch connects.
"""

import re
from pathlib import Path

from muster.contract.exits import ReplicaExit
from tests.support.forked_replicas import ForkedRun
from tests.support.launched_groups import instances_of_a_job, told
from tests.support.waiting import wait_until

TRAINERS = "tests.support.jobs.group_trainers"


def alive(containers: ForkedRun) -> list[int]:
    """The processes that have said their numbers and still run."""

    def runs(pid: int) -> bool:
        try:
            return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
        except FileNotFoundError:
            return False

    return [pid for path in containers.root.glob("*/checkpoints/*-pid") if runs(pid := int(path.read_text()))]


def test_every_process_knows_its_place_and_writes_it_before_each_line(containers: ForkedRun) -> None:
    containers.write_document(f"{TRAINERS}:tell")
    code, out, error = containers.ended(containers.start(program="impatient", MUSTER_PROCESSES="3"))
    assert code == ReplicaExit.DONE, out + error
    found = told(out)
    assert set(found) == {"0", "1", "2"}
    for name, place in found.items():
        assert place["RANK"] == place["LOCAL_RANK"] == name
        assert place["WORLD_SIZE"] == place["LOCAL_WORLD_SIZE"] == "3"
        assert place["group"] == [int(name), 3, int(name)]
        assert place["replica"] == [0, 1]
        assert place["agent"] is None
    assert len({place["MASTER_PORT"] for place in found.values()}) == 1
    # One claim for the whole group.
    assert {tuple(place["seat"]) for place in found.values()} == {(1, 1)}
    assert "[0.2] to standard error, without an end of line\n" in out
    assert not (containers.base() / "output" / "failure").exists()
    assert containers.manifest().round == 1


def test_the_error_of_a_trainer_is_the_reason_of_its_group(containers: ForkedRun) -> None:
    containers.write_document(f"{TRAINERS}:fail_in", kwargs={"process": 1})
    code, out, _ = containers.ended(containers.start(program="impatient", MUSTER_PROCESSES="2"))
    assert code == ReplicaExit.USER_CODE, out
    failure = rf"process 1: {re.escape(TRAINERS)}:fail_in failed: \S*group_trainers\.py:\d+: LookupError: no data for"
    assert re.match(failure, containers.failure())
    assert alive(containers) == []


def test_a_launcher_that_is_killed_takes_its_processes_and_the_other_instance_with_it(containers: ForkedRun) -> None:
    containers.write_document(f"{TRAINERS}:train_until_stop")
    first, second = instances_of_a_job(containers)
    wait_until("both processes train", lambda: len(alive(containers)) == 2, seconds=60)
    containers.kill(first)
    code, out, _ = containers.ended(second)
    assert code == ReplicaExit.RENDEZVOUS, out
    assert re.match(r"\[rendezvous\] The replica's first instance \(127[\d.]+:29411\) cannot be", containers.failure(1))
    wait_until("the end of both", lambda: not alive(containers), seconds=60)
