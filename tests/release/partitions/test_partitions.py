"""The stack in the partitions aws-cn and aws-us-gov: deployed with the real CDK CLI, and one run from start to page."""

import json
from collections.abc import Iterator

import pytest

from muster import Muster, Run
from muster.contract.aws.partitions import CONSOLE_DOMAINS, Locality
from muster.infra.deploy.deployment import deploy
from muster.infra.settings.settings_file import parse_settings
from muster.infra.settings.stack_settings import Platform
from muster.local import LocalCloud
from tests.plugins.stack import ROOT
from tests.support.page_data import data_in
from tests.support.workshop import IMAGE, fast_settings, turn_to

REGIONS = {"cn-north-1": "aws-cn", "us-gov-west-1": "aws-us-gov"}
SETTINGS = {"replicas": {"image": IMAGE}}


@pytest.fixture(scope="module", params=REGIONS, ids=list(REGIONS.values()))
def region(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cloud(region: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    folder = tmp_path_factory.mktemp(region)
    with LocalCloud.start(folder / "cloud", fast_settings(region=region, code=(ROOT,))) as running:
        deploy(
            running.environment(),
            target=Platform.LOCAL,
            settings=parse_settings(SETTINGS, Platform.LOCAL),
            outputs=folder / "outputs.json",
            log=folder / "cdk.log",
        )
        yield running


@pytest.fixture(scope="module")
def muster(cloud: LocalCloud) -> Iterator[Muster]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        turn_to(monkeypatch, cloud)
        yield Muster()


@pytest.fixture(scope="module")
def run(muster: Muster) -> Run:
    """A run of two replicas that meet in one round; it has ended."""
    trainer = "tests.support.jobs.trainers:train"
    run = muster.launch({"name": "first", "replicas": 2, "trainer": trainer, "kwargs": {"rounds": 1}})
    run.wait(timeout=240)
    return run


def test_a_run_succeeds_with_events_logs_and_a_page_of_its_partition(run: Run, region: str) -> None:
    assert (run.result().verdict, run.status().state) == ("succeeded", "succeeded")
    assert [replica.status for replica in run.status().replicas] == ["Completed"] * 2
    assert {"run-started", "run-ended"} <= {entry.kind for entry in run.events()}
    assert list(run.logs())
    console = f"https://{region}.{CONSOLE_DOMAINS[REGIONS[region]]}/"
    assert run.console_url.startswith(f"{console}states/")
    page = json.dumps(data_in(run.report().decode()))
    assert "first" in page
    assert console in page
    assert CONSOLE_DOMAINS["aws"] not in page


def test_every_arn_and_registry_of_the_stack_is_of_its_partition(cloud: LocalCloud, region: str) -> None:
    [stack] = cloud.client("cloudformation").describe_stacks(StackName="Muster")["Stacks"]
    outputs = {item["OutputKey"]: item["OutputValue"] for item in stack["Outputs"]}
    assert not [value for value in outputs.values() if "arn:aws:" in value]
    assert Locality.of_arn(outputs["StateMachineArn"]) == Locality(REGIONS[region], region, cloud.state.account_id)
