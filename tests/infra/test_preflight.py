"""What forbids a deployment, decided without a cloud."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from moto import mock_aws

from muster.client.aws.s3_route import Routes, nat_warning
from muster.client.client_errors import DeniedError
from muster.contract.aws.partitions import Locality
from muster.contract.names import JobName
from muster.contract.run.orphans import ActiveJob
from muster.infra.deploy.account import Account, DeployedStack
from muster.infra.deploy.bucket_requirements import BucketState
from muster.infra.deploy.cdk_tools import DeployError
from muster.infra.deploy.deploy_command import Work, check_unchanged
from muster.infra.deploy.key_policy import key_statements, role_trust
from muster.infra.deploy.preflight import BucketCheck, Preflight
from muster.infra.settings.settings_file import parse_settings
from muster.infra.settings.stack_settings import SETTINGS_METADATA, Platform, Tables

PLACE = Locality("aws", "us-east-1", "123456789012")
KEY = "arn:aws:kms:us-east-1:123456789012:key/one"
GENERATED = "muster-rendezvousbucket-abc"


class QuietAccount(Account):
    """An account with these unfinished runs and jobs, and these buckets."""

    def __init__(self, runs: Sequence[str] = (), jobs: Sequence[JobName] = (), buckets: Sequence[str] = ()) -> None:
        super().__init__(boto3.Session(region_name="us-east-1"))
        self.trusts: dict[str, Mapping[str, Any]] = {}
        self.runs, self.jobs, self.buckets = list(runs), jobs, buckets

    def running_runs(self, machine: str) -> list[str]:
        assert machine == "arn:machine"
        return self.runs

    def active_jobs(self, prefix: str) -> Iterator[ActiveJob]:
        assert prefix == "muster"
        return (ActiveJob(job, f"arn:{job}", datetime.now(UTC)) for job in self.jobs)

    def job_prefixes(self) -> dict[str, str]:
        return {}

    def key_policy(self, key_arn: str) -> Mapping[str, Any]:
        return {"Statement": key_statements(PLACE)}

    def role_trust(self, arn: str) -> Mapping[str, Any] | None:
        if arn.endswith("/secret"):
            call = "GetRole"
            raise DeniedError(call, "not authorized")
        return self.trusts.get(arn)

    def bucket(self, name: str, place: Locality) -> BucketState | None:
        return BucketState() if name in self.buckets else None


def stack(settings: Tables | None = None, *, bucket: Mapping[str, Any] | None = None) -> Any:
    """A deployed stack; `bucket` are the properties of the bucket that it makes."""
    resources = {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": bucket or {}}}
    template = {"Resources": resources, "Metadata": {SETTINGS_METADATA: settings or {}}}
    name = (bucket or {}).get("BucketName", GENERATED)
    outputs = {"BucketName": name, "JobPrefix": "muster", "StateMachineArn": "arn:machine"}
    return DeployedStack("Muster", "UPDATE_COMPLETE", outputs, template)


def refused(deployed: DeployedStack, new: Tables, account: QuietAccount) -> list[str]:
    settings = parse_settings(new, Platform.AWS)
    return [str(problem) for problem in Preflight(account, PLACE, settings, deployed).problems()]


BUSY = QuietAccount(["night"])
QUIET = QuietAccount()


def test_a_job_without_a_running_execution_counts_as_a_run() -> None:
    on = {"runs": {"snap_start": True}}
    [problem] = refused(stack(on), {}, QuietAccount(jobs=[JobName("muster", "gone", 0, 1)]))
    assert "while muster-gone-r0-a1 is running" in problem


def test_running_runs_call_the_functions_as_they_did_when_they_began() -> None:
    on, off = {"runs": {"snap_start": True}}, {"runs": {"snap_start": False}}
    for deployed, new, change in ((on, {}, "true would become the default"), ({}, on, "the default would become true")):
        [problem] = refused(stack(deployed), new, BUSY)
        assert problem.startswith(f"runs.snap_start: {change} while night is running; wait until they end")
        assert refused(stack(deployed), new, QUIET) == []
    assert refused(stack(on), on, BUSY) == []
    assert refused(stack({}), off, BUSY) == []


def test_snapshots_are_refused_in_the_region_to_which_the_credentials_lead() -> None:
    settings = parse_settings({"runs": {"snap_start": True}}, Platform.AWS)
    for region, allowed in (("us-east-1", True), ("ap-east-2", False)):
        problems = Preflight(QUIET, replace(PLACE, region=region), settings, None).problems()
        assert [problem.field for problem in problems] == ([] if allowed else ["runs.snap_start"])


def test_a_bucket_is_not_replaced_under_unfinished_runs() -> None:
    named = stack({"bucket": {"name": "ours"}}, bucket={"BucketName": "ours"})
    [problem] = refused(named, {}, BUSY)  # the file has lost the name
    assert "bucket: ours would become a new bucket with a generated name while night is running" in problem
    # A generated name that is written down is another property, so CloudFormation replaces the bucket.
    [problem] = refused(stack({}), {"bucket": {"name": GENERATED}}, QuietAccount(buckets=[GENERATED]))
    assert f'to use it, write existing = "{GENERATED}" instead of name' in problem
    [problem] = refused(stack({}), {"bucket": {"name": GENERATED}}, BUSY)
    assert f"bucket: {GENERATED} would become {GENERATED} while" in problem
    assert refused(stack({}), {}, BUSY) == []
    assert refused(named, {"bucket": {"name": "ours"}}, BUSY) == []
    # Without runs it is allowed, and shown before the question.
    settings = parse_settings({}, Platform.AWS)
    assert Preflight(QUIET, PLACE, settings, named).problems() == []
    assert Preflight(QUIET, PLACE, settings, named).new_bucket == "a new bucket with a generated name"


def test_a_bucket_outside_the_stack_is_compared_by_its_name() -> None:
    guest = DeployedStack("Muster", "UPDATE_COMPLETE", {**stack().outputs, "BucketName": "ours"}, {"Resources": {}})
    assert (
        Preflight(QUIET, PLACE, parse_settings({"bucket": {"existing": "ours"}}, Platform.AWS), guest).new_bucket
        is None
    )
    lost = Preflight(QUIET, PLACE, parse_settings({}, Platform.AWS), guest).new_bucket
    assert lost == "a new bucket with a generated name"


def test_data_in_a_bucket_with_a_generated_name_does_not_open_what_muster_writes() -> None:
    for prefix in ("", "control/", "output/other/"):
        data = f"s3://{GENERATED}/{prefix}"
        [problem] = refused(stack({}), {"replicas": {"data": [data]}}, QUIET)
        assert problem.startswith(f"replicas.data.0: found '{data}'; not in the stack's own bucket: its root, ")
    assert refused(stack({}), {"replicas": {"data": [f"s3://{GENERATED}/corpus/"]}}, QUIET) == []


def test_the_key_of_a_stack_stays_even_while_nothing_runs() -> None:
    encrypted, plain = stack({"stack": {"kms_key_arn": KEY}}), stack({})
    [problem] = refused(encrypted, {"stack": {"kms_key_arn": KEY.replace("one", "two")}}, QUIET)
    assert problem.startswith(f"stack.kms_key_arn: {KEY} would become {KEY.replace('one', 'two')}, and the stack could")
    [problem] = refused(encrypted, {}, QUIET)
    assert "would become no key" in problem
    assert "deploy a second stack" in problem
    assert refused(encrypted, {"stack": {"kms_key_arn": KEY}}, QUIET) == []
    assert refused(plain, {"stack": {"kms_key_arn": KEY}}, QUIET) == []


def test_a_role_of_the_deployments_own_must_trust_sagemaker_with_session_tags() -> None:
    account = QuietAccount()
    old, new, secret, gone = (f"arn:aws:iam::123456789012:role/{name}" for name in ("old", "new", "secret", "gone"))
    assume = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    account.trusts = {old: {"Statement": [assume]}, new: {"Statement": [assume, role_trust(PLACE)]}}
    roles = {"role_arn": old, "further_role_arns": [new, secret, gone]}
    # The role itself is a pinned setting of a deployed stack; here the stack is new.
    settings = parse_settings({"replicas": roles}, Platform.AWS)
    first, last = map(str, Preflight(account, PLACE, settings, None).problems())
    assert first.startswith(f"replicas.role_arn: {old} does not let SageMaker assume it with session tags")
    assert '"sts:TagSession"' in first
    assert last.startswith(f"replicas.further_role_arns.2: this account has no role {gone}")


def test_a_stack_that_another_deployment_has_changed_is_not_deployed_over() -> None:
    read = stack({"runs": {"sweep_hours": 6}})
    check_unchanged("Muster", read, stack({"runs": {"sweep_hours": 6}}))
    check_unchanged("Muster", None, None)
    later = replace(read, changed_at=datetime(2026, 11, 21, tzinfo=UTC))
    for now in (later, stack({"runs": {"sweep_hours": 12}}), None):
        with pytest.raises(DeployError, match="Another deployment has changed the stack Muster since this one read it"):
            check_unchanged("Muster", read, now)
    with pytest.raises(DeployError):
        check_unchanged("Muster", None, read)


def test_the_replacement_of_a_bucket_is_shown_before_the_question(capsys: pytest.CaptureFixture[str]) -> None:
    named = stack({"bucket": {"name": "ours"}}, bucket={"BucketName": "ours"})
    work = Work(QUIET, PLACE, named, parse_settings({}, Platform.AWS), as_json=False)
    work.show([], BucketCheck(), {})
    assert "WARNING: the bucket ours is replaced by a new bucket with a generated name." in capsys.readouterr().out


def test_a_nat_gateway_on_the_way_to_s3_is_warned_of_and_a_gateway_endpoint_is_not() -> None:
    nat = [{"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"}]
    main = {"RouteTableId": "rtb-main", "Associations": [{"Main": True}], "Routes": nat}
    own = {"RouteTableId": "rtb-own", "Associations": [{"SubnetId": "subnet-2"}], "Routes": nat}
    network = {"replicas": {"vpc": {"subnets": ["subnet-1", "subnet-2"], "security_group_ids": ["sg-1"]}}}

    class Routed(QuietAccount):
        tables: tuple[Mapping[str, Any], ...] = (own, main)
        endpoints: tuple[Mapping[str, Any], ...] = ()

        def routes(self, subnet: str, region: str) -> Routes:
            assert (subnet, region) == ("subnet-1", PLACE.region)
            return Routes(self.tables, self.endpoints)

    def warned(settings: Tables, **found: Any) -> str:
        account = Routed()
        vars(account).update(found)
        return Preflight(account, PLACE, parse_settings(settings, Platform.AWS), None).warning() or ""

    assert "subnet-1, subnet-2" in warned(network)
    gateway = {"VpcEndpointType": "Gateway", "RouteTableIds": ["rtb-main"]}
    assert "in subnet-2 reach" in warned(network, endpoints=(gateway,))
    assert not warned(network, endpoints=({"VpcEndpointType": "Interface"},))
    assert not warned(network, tables=({**main, "Routes": []},))
    assert not warned({})


def test_the_routes_of_a_subnet_are_those_that_ec2_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with mock_aws():
        session = boto3.Session(region_name="us-east-1")
        ec2 = session.client("ec2")
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.1.0/24")["Subnet"]["SubnetId"]
        nat = ec2.create_nat_gateway(SubnetId=subnet, ConnectivityType="private")["NatGateway"]["NatGatewayId"]
        inside = [{"Name": "vpc-id", "Values": [vpc]}]
        table = ec2.describe_route_tables(Filters=inside)["RouteTables"][0]["RouteTableId"]
        ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat)
        assert nat_warning([subnet], Account(session).routes(subnet, "us-east-1"))
        ec2.create_vpc_endpoint(VpcId=vpc, ServiceName="com.amazonaws.us-east-1.s3", RouteTableIds=[table])
        assert nat_warning([subnet], Account(session).routes(subnet, "us-east-1")) is None
