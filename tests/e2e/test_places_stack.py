"""A stack with two more places, in an account of its own one of them: deployed, used, reduced and destroyed."""

import json
from pathlib import Path
from typing import Any

import pytest

from muster import Muster, ReplicaOutcome
from muster.local import LocalCloud
from tests.support.command_server import CommandServer
from tests.support.jobs.attack import DENIED, report_in
from tests.support.places import HOME, OREGON, OTHER, TOKYO, cloud_with_places
from tests.support.workshop import turn_to

SETTINGS = f"""
[places.oregon]
region = "{OREGON}"
"""
BOTH = f"""{SETTINGS}
[places.tokyo]
region = "{TOKYO}"
account = "{OTHER}"
"""
SPEC = {
    "replicas": 3,
    "places": {"home": 1, "oregon": 1, "tokyo": 1},
    "trainer": "examples.digits.trainer:train",
    "source_dir": None,
    "instance_type": "ml.m5.large",
    "max_runtime_seconds": 3600,
}

OUTPOST_BUCKETS = {"oregon": f"muster-oregon-{HOME}-{OREGON}", "tokyo": f"muster-tokyo-{OTHER}-{TOKYO}"}


def buckets(cloud: LocalCloud, *places: str) -> list[str]:
    """The buckets of Muster in these places."""
    found = [cloud, *map(cloud.at, places)]
    names = {one["Name"] for each in found for one in each.client("s3").list_buckets()["Buckets"]}
    return sorted(name for name in names if name.startswith("muster"))


def _check_borders(cloud: LocalCloud, client: Muster, victim: str, home: str) -> None:
    """What replicas of another run in the places reach of `victim`, at home and there: nothing."""
    targets = []
    for place, bucket in (("home", home), *((name, bucket) for name, bucket in OUTPOST_BUCKETS.items())):
        at = cloud if place == "home" else cloud.at(place)
        s3, region = at.client("s3"), at.state.region
        found = [one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]]
        loot = [key for key in found if key.split("/")[1] == victim and not key.startswith(("ended/", "queue/"))]
        targets.append([bucket, region, loot[:: max(1, len(loot) // 12)]])
    roles = [one["Arn"] for place in (cloud, cloud.at("tokyo")) for one in place.client("iam").list_roles()["Roles"]]
    options = {"targets": targets, "roles": [role for role in roles if "/Muster" in role]}
    trainer = "tests.support.jobs.attack:attack_places"
    hostile = client.launch(
        {**SPEC, "replicas": 2, "places": {"oregon": 1, "tokyo": 1}, "trainer": trainer, "kwargs": options}
    )
    assert hostile.wait(120).state == "succeeded"
    for attempt in (one.attempts[-1] for one in hostile.result().replicas):
        assert attempt.where is not None
        s3, place = cloud.at(attempt.where.place).client("s3"), OUTPOST_BUCKETS[attempt.where.place]
        body = s3.get_object(Bucket=place, Key=f"output/{hostile.name}/{attempt.job}/output/output.tar.gz")[
            "Body"
        ].read()
        report = report_in(body)
        assert set(report["roles"]) == {"AccessDenied"}
        for bucket, answers in report["buckets"].items():
            tried = [(row["key"], what, row[what]) for row in answers["keys"] for what in row if what != "key"]
            assert not [one for one in tried if one[2] not in DENIED], (place, bucket)
            assert len(tried) >= 9 * 5, bucket
            assert not {what: answer for what, answer in answers["listings"].items() if answer not in DENIED}


def test_a_run_over_three_places_from_the_deployment_to_the_end_of_the_stack(
    tmp_path: Path, commands: CommandServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cloud_with_places(tmp_path / "cloud", code=(Path.cwd(),), stop_grace_seconds=1.0) as cloud:
        turn_to(monkeypatch, cloud)

        def muster(command: str, *options: str, code: int = 0) -> dict[str, Any]:
            ended = commands.run([command, "--json", *options], tmp_path, cloud.environment())
            assert ended.returncode == code, (ended.stdout, ended.stderr)
            return dict(json.loads(ended.stdout.splitlines()[-1]))

        def deployed(settings: str, *options: str, code: int = 0) -> dict[str, Any]:
            (tmp_path / "muster.toml").write_text(settings)
            return muster("deploy", "--target", "local", *(options or ("--yes",)), code=code)

        stack = deployed(BOTH)
        assert {name: len(lines) for name, lines in stack["beside"].items()} == {"Muster-oregon": 6, "Muster-tokyo": 6}
        assert deployed(BOTH, "--diff")["beside"] == {"Muster-oregon": [], "Muster-tokyo": []}
        checks = {one["name"]: one["outcome"] for one in muster("verify", "--no-run")["checks"]}
        assert (checks["place-oregon"], checks["place-tokyo"]) == ("ok", "unchecked"), "tokyo has other credentials"

        client = Muster()
        short = client.launch({**SPEC, "kwargs": {"rounds": 4}})
        long = client.launch({**SPEC, "kwargs": {"rounds": 100_000, "seconds_per_round": 1}})
        short.wait(120)
        result = short.result()
        assert [one.outcome for one in result.replicas] == [ReplicaOutcome.SUCCEEDED] * 3
        assert result.parameters_identical
        assert [one.attempts[-1].where.place for one in result.replicas if one.attempts[-1].where] == sorted(
            ("home", "oregon", "tokyo")
        )

        _check_borders(cloud, client, short.name, stack["outputs"]["BucketName"])
        refused = deployed(SETTINGS, code=2)["error"]["problems"]
        assert [one["field"] for one in refused] == ["places.tokyo"]
        assert f"used by {long.name}" in refused[0]["found"]
        long.cancel()
        long.wait(60)
        assert deployed(SETTINGS)["beside"].keys() == {"Muster-oregon", "Muster-tokyo"}
        assert len(buckets(cloud, "oregon", "tokyo")) == 3, "what replicas have written there stays"
        muster("destroy", "--yes", "--target", "local", "--delete-data", stack["outputs"]["BucketName"])
        assert buckets(cloud, "oregon") == []
