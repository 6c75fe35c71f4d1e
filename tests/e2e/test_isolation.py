"""Two runs side by side, one of them hostile: it reaches nothing of the other, which ends as if it were alone."""

import uuid
from typing import Any

from tests.support.deployed import Deployed, Run
from tests.support.jobs.attack import DENIED, report_in
from tests.support.waiting import wait_until

ROUNDS = 6
FOLDERS = ("rendezvous", "checkpoints", "output", "runs")


def keys(stack: Deployed, prefix: str) -> list[str]:
    pages = stack.s3.get_paginator("list_objects_v2").paginate(Bucket=stack.bucket, Prefix=prefix)
    return [item["Key"] for page in pages for item in page.get("Contents", [])]


def training(stack: Deployed, gate: str) -> dict[str, Any]:
    options = {"rounds": ROUNDS, "gate": str(stack.gates / gate)}
    return {"replicas": 2, "trainer": "tests.support.jobs.attack:train_past", "kwargs": options}


def report_of(run: Run) -> dict[str, Any]:
    body = run.document(f"{run.layout.output}{run.job()}/output/output.tar.gz")
    assert body is not None
    return report_in(body)


def contents(stack: Deployed, found: list[str]) -> dict[str, bytes]:
    return {key: stack.s3.get_object(Bucket=stack.bucket, Key=key)["Body"].read() for key in found}


def test_a_hostile_run_reaches_nothing_of_another_run(stack: Deployed) -> None:
    # A run's gate has a name of its own, also where the test runs twice.
    gates = [f"{name}-{uuid.uuid4()}" for name in ("calm", "victim")]
    stack.open_gate(gates[0])
    calm = stack.start(training(stack, gates[0]))
    calm.wait()
    expected = calm.result()
    assert (expected.verdict, expected.parameters_identical) == ("succeeded", True)

    # In the middle of its rounds: with contributions, commits, a checkpoint and its document in the bucket.
    victim = stack.start(training(stack, gates[1]), f"{calm.name}-r1")
    commit = f"{victim.layout.commits}{ROUNDS // 2:08d}.json"
    wait_until("half of the victim's rounds", lambda: victim.document(commit))
    wait_until("the victim's checkpoint", lambda: keys(stack, victim.layout.checkpoints(0)))
    # As an archive of the calm run, which has ended and whose name the hostile run's begins with, lies there.
    loot = [key for run in (victim, calm) for folder in FOLDERS for key in keys(stack, f"{folder}/{run.name}/")]
    assert {key.partition("/")[0] for key in loot} == set(FOLDERS)
    planted = f"{victim.layout.output}{victim.job()}/manifest.json"
    before = contents(stack, loot)
    control = keys(stack, f"control/{victim.name}/")

    hostile_name = f"{calm.name}-x"
    own = [f"rendezvous/{hostile_name}/own", f"checkpoints/{hostile_name}/r0/own", f"output/{hostile_name}/own"]
    for key in own:
        stack.s3.put_object(Bucket=stack.bucket, Key=key, Body=b"own")
    options = {"bucket": stack.bucket, "victim": [*loot, *control, planted], "own": own, "job": victim.job()}
    hostile = stack.start(
        {"replicas": 1, "trainer": "tests.support.jobs.attack:attack", "kwargs": options}, hostile_name
    )
    hostile.wait()
    assert hostile.result().verdict == "succeeded", hostile.result()

    report = report_of(hostile)
    attacks = [(row["key"], what, answer) for row in report["victim"] for what, answer in row.items() if what != "key"]
    assert not [attempt for attempt in attacks if attempt[2] not in DENIED]
    assert len(attacks) == 9 * (len(loot) + len(control) + 1) > 200
    looks = report["listings"] | report["elsewhere"]
    assert not {look: answer for look, answer in looks.items() if answer not in DENIED}
    # The attacks are well made: on the run's own objects they work.
    whole = {"the whole bucket", "the whole bucket, version 1", "prefix ''", "versions", "uploads", "source/"}
    # Without its slash a prefix is also that of runs whose names only begin alike.
    open_ended = {key.rpartition("/")[0].removesuffix("/r0") for key in own}
    assert {look for look, answer in report["own_listings"].items() if answer in DENIED} == whole | open_ended
    for row in report["own"]:
        folder = row.pop("key").partition("/")[0]
        refused = {what for what, answer in row.items() if answer in DENIED}
        assert refused == ({"delete", "delete many"} if folder == "output" else set()), row

    assert contents(stack, loot) == before
    stack.open_gate(gates[1])
    victim.wait()
    result = victim.result()
    assert (result.verdict, result.parameters_identical) == ("succeeded", True)
    assert {one.checksum for one in result.replicas} == {one.checksum for one in expected.replicas}
    assert result.replicas[0].round == ROUNDS
