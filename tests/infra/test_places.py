"""A stack with places: its settings, the outposts' templates, and who reaches what across the border."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import boto3
import pytest
from botocore.exceptions import ConnectTimeoutError
from moto import mock_aws
from pydantic import TypeAdapter

from muster.client.aws.error_translation import translated
from muster.client.client_errors import BusyError
from muster.contract.aws.partitions import Locality
from muster.contract.errors import ConfigurationError, Problem, SettingsError
from muster.contract.names import JobName
from muster.contract.run.orphans import ActiveJob
from muster.contract.spec.places import PLACE_NAME_MAX, PlaceName
from muster.infra.deploy.account import Account, DeployedStack
from muster.infra.deploy.bucket_requirements import BucketState
from muster.infra.deploy.deploy_command import Work
from muster.infra.deploy.deployment import Assembly
from muster.infra.deploy.destroy_command import remove_beside
from muster.infra.deploy.destruction import Destruction
from muster.infra.deploy.further_stacks import FurtherStacks, Home
from muster.infra.settings.settings_file import parse_settings
from muster.infra.settings.stack_settings import SETTINGS_METADATA, Platform
from muster.options.places.contract.outposts import (
    BUCKET_NAME_MAX,
    ROLE_NAME_MAX,
    STATEMENT_ID_MAX,
    DeployedPlaces,
    Place,
    outpost,
    statement_id,
)
from muster.options.places.infra import further_stacks
from muster.options.places.infra.further_stacks import PlaceStack, PlaceStacks
from muster.options.places.infra.home_access import LAUNCHES, LOOKS_AFTER, deployed_places
from tests.infra.variants import BOUNDARY, ELSEWHERE, HOME, Variant
from tests.memory import AwsError, Fault
from tests.memory.cloud import MemoryCloud
from tests.support.template import FUNCTIONS, Statement, Template, function, matches

PLACE = Locality("aws", "us-east-1", HOME)
AWS = Platform.AWS
OREGON, TOKYO = {"region": "us-west-2"}, {"region": "ap-northeast-1", "account": ELSEWHERE}
HERE = {"stack": {"account": HOME, "region": "us-east-1"}}
AT_HOME = "arn:aws:s3:::<HomeBucket.Ref>"
OWN = "arn:aws:s3:::BUCKET"
OUTPOST = outpost("Muster", "muster", "aws", Place(name="tokyo", region="ap-northeast-1", account=ELSEWHERE))


def refused(tables: Mapping[str, Any]) -> set[str]:
    with pytest.raises(SettingsError) as caught:
        parse_settings({**HERE, **tables}, Platform.AWS)
    return {problem.field for problem in caught.value.problems}


def test_a_place_that_cannot_be_is_refused_by_its_table() -> None:
    two = {"places": {"oregon": OREGON, "west": {**OREGON, "account": HOME}}}
    for tables, field in (
        ({"places": {"home": OREGON}}, "places.home"),
        ({"places": {"Oregon": OREGON}}, "places.Oregon"),
        ({"places": {"here": {"region": "us-east-1"}}}, "places.here.region"),
        ({"places": {"here": {"region": "us-east-1", "account": HOME}}}, "places.here.region"),
        ({"places": {"gov": {"region": "us-gov-west-1"}}}, "places.gov.region"),
        ({"places": {"china": {"region": "cn-north-1"}}}, "places.china.region"),
        ({"stack": {"region": "us-gov-east-1"}, "places": {"oregon": OREGON}}, "places"),
        (two, "places.west.region"),
        ({"places": {f"p{number}": {"region": f"us-west-{number}"} for number in range(1, 10)}}, "places"),
    ):
        assert field in refused(tables), tables
    parse_settings({**HERE, "places": {"oregon": OREGON, "other": {"region": "us-east-1", "account": ELSEWHERE}}}, AWS)


def test_what_belongs_to_one_region_or_account_is_refused_beside_places() -> None:
    for tables, field in (
        ({"replicas": {"role_arn": f"arn:aws:iam::{HOME}:role/own"}}, "replicas.role_arn"),
        ({"replicas": {"vpc": {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}}}, "replicas.vpc"),
        ({"replicas": {"kms_key_arn": f"arn:aws:kms:us-east-1:{HOME}:key/1234abcd"}}, "replicas.kms_key_arn"),
        ({"replicas": {"policy_arns": [f"arn:aws:iam::{HOME}:policy/team"]}}, "replicas.policy_arns.0"),
    ):
        assert refused({"places": {"tokyo": TOKYO}, **tables}) == {field}
    policies = {"replicas": {"policy_arns": [f"arn:aws:iam::{HOME}:policy/team"]}}
    parse_settings({**HERE, "places": {"oregon": OREGON}, **policies}, AWS)


def test_a_stack_with_places_must_be_known_to_them() -> None:
    with pytest.raises(ConfigurationError, match="set account and region under \\[stack\\]"):
        deployed_places(parse_settings({"places": {"oregon": OREGON}}, AWS))


def test_names_fit_for_the_longest_settings() -> None:
    longest = outpost(
        "s" * 64, "p" * 11, "aws", Place(name="n" * PLACE_NAME_MAX, region="ap-northeast-1", account=HOME)
    )
    other = outpost(
        "s" * 63 + "t", "p" * 11, "aws", Place(name="n" * PLACE_NAME_MAX, region="ap-northeast-1", account=HOME)
    )
    TypeAdapter(PlaceName).validate_python(longest.name)
    assert len(longest.bucket) <= BUCKET_NAME_MAX
    for arn in (longest.launcher_role_arn, longest.replica_role_arn):
        assert len(arn.rpartition("/")[2]) <= ROLE_NAME_MAX
        assert arn.endswith((f"{longest.name}-launcher", f"{longest.name}-replica"))
    assert longest.launcher_role_arn != other.launcher_role_arn
    assert len(statement_id("s" * 64, HOME)) <= STATEMENT_ID_MAX


def test_a_stack_without_places_has_nothing_of_them(template: Template) -> None:
    text = json.dumps(template.body)
    for word in ("MUSTER_PLACES", "EventBusPolicy", "PlacesOf", "Places"):
        assert word not in text, word


@pytest.fixture(scope="module")
def home(variant: Variant) -> Template:
    return variant("places", "Muster")


@pytest.fixture(scope="module")
def tokyo(variant: Variant) -> Template:
    return variant("places", "Muster-tokyo")


def test_an_outpost_costs_nothing_while_nothing_trains(tokyo: Template) -> None:
    kinds = sorted(resource["Type"].removeprefix("AWS::") for resource in tokyo.resources.values())
    assert kinds == ["Events::Rule", *["IAM::Role"] * 3, "S3::Bucket", "S3::BucketPolicy"]
    assert tokyo.one("AWS::S3::Bucket")["BucketName"] == OUTPOST.bucket
    assert "NotificationConfiguration" not in tokyo.one("AWS::S3::Bucket")
    boundaries = {one["Properties"]["PermissionsBoundary"] for one in tokyo.of_type("AWS::IAM::Role").values()}
    assert boundaries == {BOUNDARY.replace(HOME, ELSEWHERE)}


def test_the_functions_know_every_place_by_the_names_in_its_template(home: Template, variant: Variant) -> None:
    for name in FUNCTIONS:
        variables = function(home, name)["Environment"]["Variables"]
        assert ("MUSTER_PLACES" in variables) == (name.lower() in {"plan", LAUNCHES, *LOOKS_AFTER}), name
    known = DeployedPlaces.from_json(function(home, "Plan")["Environment"]["Variables"]["MUSTER_PLACES"], "")
    assert home.body["Outputs"]["Places"]["Value"] == known.to_json().decode()
    for name, one in known.outposts("aws").items():
        template = variant("places", f"Muster-{name}")
        roles = {role["Properties"].get("RoleName") for role in template.of_type("AWS::IAM::Role").values()}
        assert roles == {None, *(arn.rpartition("/")[2] for arn in (one.launcher_role_arn, one.replica_role_arn))}
        outputs = {key: template.resolve(output["Value"]) for key, output in template.body["Outputs"].items()}
        assert (outputs["BucketName"], outputs["ExternalId"]) == (one.bucket, one.external_id)


def test_only_attempt_may_tag_a_session_in_a_place(home: Template, tokyo: Template) -> None:
    launcher = OUTPOST.launcher_role_arn
    for name in FUNCTIONS:
        assert home.allows(name, "sts:AssumeRole", launcher) == (name.lower() in {LAUNCHES, *LOOKS_AFTER}), name
        assert home.allows(name, "sts:TagSession", launcher) == (name.lower() == LAUNCHES), name
        assert not home.allows(name, "sts:AssumeRole", OUTPOST.replica_role_arn)
    with_tags, tagging, without = trust(tokyo, "Launcher")
    for statement in (with_tags, tagging, without):
        assert tokyo.resolve(statement["Principal"]) == {"AWS": f"arn:aws:iam::{HOME}:root"}
    roles = [one["Condition"]["ArnLike"]["aws:PrincipalArn"] for one in (with_tags, tagging, without)]
    assert roles[0] == roles[1] == [f"arn:aws:iam::{HOME}:role/Muster-AttemptHandlerRole*"]
    names = {name for name in home.of_type("AWS::IAM::Role") if any(map(f"Muster-{name}".startswith, heads(roles[2])))}
    assert {name.removesuffix("HandlerRole" + name[-8:]).lower() for name in names} == {LAUNCHES, *LOOKS_AFTER}
    for statement in (with_tags, without):
        assert statement["Condition"]["StringEquals"] == {"sts:ExternalId": "Muster/muster/tokyo"}
    for statement in (with_tags, tagging):
        tags = statement["Condition"]["StringLike"]
        assert tags == {"aws:RequestTag/MusterLineage": "?*", "aws:RequestTag/MusterRun": "?*"}


def heads(patterns: Iterable[str]) -> list[str]:
    return [pattern.rpartition("/")[2].removesuffix("*") for pattern in patterns]


def trust(template: Template, role: str) -> list[dict[str, Any]]:
    [found] = [body for name, body in template.of_type("AWS::IAM::Role").items() if name.startswith(role)]
    statements: list[dict[str, Any]] = found["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    return statements


def tags(run: str = "run-x1", lineage: str = "run", **more: str) -> dict[str, str]:
    keys = {key.replace("_", ":"): value for key, value in more.items()}
    return {"aws:PrincipalTag/MusterRun": run, "aws:PrincipalTag/MusterLineage": lineage, **keys}


def test_whoever_stops_jobs_may_record_that_their_place_was_silent(home: Template, template: Template) -> None:
    keys = ("control/run/replicas/0.json", "control/run/rollup/0.json")
    tries = [(action, f"arn:aws:s3:::BUCKET/{key}") for action in ("s3:GetObject", "s3:PutObject") for key in keys]
    for name in ("React", "Stop", "Sweep", "Timer", "Scale"):
        assert [one for one in tries if not home.allows(name, *one)] == [], name
    assert not template.allows("Sweep", "s3:PutObject", tries[0][1])  # without places


def test_a_launcher_creates_jobs_of_the_stack_alone_and_nothing_without_tags(tokyo: Template) -> None:
    jobs = f"arn:aws:sagemaker:ap-northeast-1:{ELSEWHERE}:training-job/"
    replica = "arn:aws:iam::ACCOUNT:role/Replica"
    keys = tags(iam_PassedToService="sagemaker.amazonaws.com")
    powers = (
        ("sagemaker:CreateTrainingJob", f"{jobs}muster-run-x1-r0-a1"),
        ("iam:PassRole", replica),
        ("s3:PutObject", f"{OWN}/runs/run-x1/document.json"),
        ("s3:PutObject", f"{OWN}/source/abc.tar.gz"),
    )
    for action, resource in powers:
        assert tokyo.allows("Launcher", action, resource, keys), action
        assert not tokyo.allows("Launcher", action, resource, {"iam:PassedToService": "sagemaker.amazonaws.com"})
    for action, resource in (
        ("sagemaker:CreateTrainingJob", f"{jobs}other-run-r0-a1"),
        ("s3:PutObject", f"{OWN}/runs/other/document.json"),
        ("s3:PutObject", f"{OWN}/rendezvous/run/x"),
        ("s3:GetObject", f"{OWN}/checkpoints/run/x"),
        ("iam:PassRole", OUTPOST.launcher_role_arn),
    ):
        assert not tokyo.allows("Launcher", action, resource, keys), (action, resource)
    for action in ("DescribeTrainingJob", "StopTrainingJob", "ListTags"):
        assert tokyo.allows("Launcher", f"sagemaker:{action}", f"{jobs}muster-run-x1-r0-a1")
    assert tokyo.allows("Launcher", "s3:GetObject", f"{OWN}/output/run-x1/j/output/output.tar.gz")


# What a replica of the run `run-x1` in Tokyo, which continues `run`, must not reach at home.
KEYS = (
    *("control/run-x1/plan.json", "control/run-x1/replicas/0.json", "control/run-x1/seats.json", "queue/a", "ended/a"),
    *("inbox/run.yaml", "source/abc.tar.gz", "packages/abc.tar.gz", "recipes/abc", "notices/run-x1/a.json"),
    *("rendezvous/other/rounds/1", "rendezvous/run-x1/rounds/1", "rendezvous/runs/1", "output/other/model/a"),
    *("output/run-x1/job/output/output.tar.gz", "checkpoints/run/r0/a", "runs/other/document.json"),
)
ACTIONS = ("GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload", "GetObjectVersion", "PutObjectAcl")


def border(home: Template) -> list[Statement]:
    """The statements of the bucket's policy at home that let the replicas of Tokyo in, with the bucket's name there."""
    document = home.one("AWS::S3::BucketPolicy")["PolicyDocument"]
    found = [one for one in document["Statement"] if one.get("Sid", "").startswith("PlacesOf")]
    assert {one["Principal"]["AWS"] for one in found} == {f"arn:aws:iam::{ELSEWHERE}:root"}
    roles = [one["Condition"].pop("ArnEquals") for one in found]
    assert roles == [{"aws:PrincipalArn": [OUTPOST.replica_role_arn]}] * len(found)
    return [
        Statement("Tokyo", one["Effect"], listed(one["Action"]), listed(one["Resource"]), one["Condition"])
        for one in found
    ]


def listed(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def test_across_the_border_a_replica_has_the_rendezvous_of_its_own_run_and_no_more(
    home: Template, tokyo: Template
) -> None:
    policy = border(home)

    def at_home(action: str, key: str, keys: Mapping[str, str]) -> bool:
        there = {**keys, "aws:ResourceAccount": HOME}
        by_role = tokyo.allows("Replica", f"s3:{action}", f"{AT_HOME}{key}", there)
        by_bucket = any(one.applies(f"s3:{action}", f"{OWN}{key}", there) for one in policy)
        assert by_role == by_bucket, (action, key)  # they are stated once
        return by_role

    for action in ("GetObject", "PutObject", "DeleteObject"):
        assert at_home(action, "/rendezvous/run/rounds/1", tags())
        assert not at_home(action, "/rendezvous/run/rounds/1", {})
    assert at_home("GetObject", "/runs/run-x1/document.json", tags())
    assert not at_home("PutObject", "/runs/run-x1/document.json", tags())
    assert at_home("PutObject", "/output/run-x1/model/weights.npy", tags())
    assert not at_home("DeleteObject", "/output/run-x1/model/weights.npy", tags())
    allowed = [(action, key) for action in ACTIONS for key in KEYS if at_home(action, f"/{key}", tags())]
    assert allowed == [("PutObject", "notices/run-x1/a.json")]
    assert at_home("ListBucket", "", tags(s3_prefix="rendezvous/run/rounds/"))
    # The folder of a model that may not be there yet.
    assert at_home("ListBucket", "", tags(s3_prefix="output/run-x1/"))
    for prefix in ("", "control/", "rendezvous/", "rendezvous/other/", "output/other/"):
        assert not at_home("ListBucket", "", tags(s3_prefix=prefix)), prefix
    # No bucket of that name that belongs to somebody else.
    stolen = {**tags(), "aws:ResourceAccount": "999999999999"}
    assert not tokyo.allows("Replica", "s3:PutObject", f"{AT_HOME}/rendezvous/run/rounds/1", stolen)


def test_in_its_own_bucket_a_replica_of_a_place_reaches_nothing_of_another_run(tokyo: Template) -> None:
    own = tags() | {"aws:ResourceAccount": "ACCOUNT"}
    for key in ("rendezvous/run/near/1", "checkpoints/run/r0/a", "output/run-x1/j/output/output.tar.gz"):
        assert tokyo.allows("Replica", "s3:PutObject", f"{OWN}/{key}", own), key
    for key in ("rendezvous/other/near/1", "checkpoints/other/r0/a", "output/other/j", "runs/other/document.json"):
        for action in ("GetObject", "PutObject", "DeleteObject"):
            assert not tokyo.allows("Replica", f"s3:{action}", f"{OWN}/{key}", own), (action, key)
    assert not tokyo.allows("Replica", "s3:GetObject", f"{OWN}/rendezvous/run/near/1")
    for action in ("sts:AssumeRole", "sagemaker:CreateTrainingJob", "events:PutEvents", "iam:PassRole"):
        assert not tokyo.allows("Replica", action, "*", own)
    [statement] = trust(tokyo, "Replica")
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": ELSEWHERE}}


def test_events_of_jobs_and_nothing_else_go_home(home: Template, tokyo: Template) -> None:
    rule = tokyo.one("AWS::Events::Rule")
    patterns = [one["Properties"].get("EventPattern", {}) for one in home.of_type("AWS::Events::Rule").values()]
    assert rule["EventPattern"] in patterns  # react's
    bus = f"arn:aws:events:us-east-1:{HOME}:event-bus/default"
    assert rule["Targets"] == [{"Arn": bus, "Id": "Home", "RoleArn": "arn:aws:iam::ACCOUNT:role/Forwarder"}]
    forwarded = [one for one in tokyo.statements if one.role == "Forwarder"]
    assert [(one.actions, one.resources) for one in forwarded] == [(("events:PutEvents",), (bus,))]
    policy = home.one("AWS::Events::EventBusPolicy")["Statement"]
    assert policy["Principal"] == {"AWS": f"arn:aws:iam::{ELSEWHERE}:root"}
    pattern = rule["EventPattern"]
    assert policy["Condition"]["StringEquals"] == {
        "events:source": pattern["source"][0],
        "events:detail-type": pattern["detail-type"][0],
    }
    assert matches(bus.replace("us-east-1", "REGION").replace(HOME, "ACCOUNT"), policy["Resource"])


class PlaceAccount(Account):
    """An account with one stack, these jobs, and these buckets; `leads_to` is where its credentials lead."""

    def __init__(self, leads_to: str = ELSEWHERE) -> None:
        super().__init__(boto3.Session(region_name="ap-northeast-1"))
        self.there: DeployedStack | None = None
        self.is_there = True
        self.leads_to, self.jobs, self.buckets, self.runs = leads_to, list[JobName](), list[str](), list[str]()
        self.prefixes: dict[str, str] = {}
        self.error: Exception | None = None

    def answers(self, service: str, call: Callable[[Any], object]) -> bool:
        return self.is_there

    def run_input(self, machine: str, run: str) -> Mapping[str, Any]:
        assert machine == "arn:machine"
        return {"replicas": 1, "places": {"shares": {"tokyo": 1}}} if run == "uses" else {"replicas": 1}

    def place(self) -> Locality:
        self._reach()
        return Locality("aws", "ap-northeast-1", self.leads_to)

    def stack(self, name: str) -> DeployedStack | None:
        assert name == "Muster-tokyo"
        self._reach()
        return self.there

    def _reach(self) -> None:
        """Raise where what calls this account meets an error."""
        with translated():
            if self.error is not None:
                raise self.error

    def bucket(self, name: str, place: Locality) -> BucketState | None:
        return BucketState() if name in self.buckets else None

    def job_prefixes(self) -> dict[str, str]:
        return self.prefixes

    def running_runs(self, machine: str) -> list[str]:
        return self.runs

    def active_jobs(self, prefix: str) -> Iterator[ActiveJob]:
        self._reach()
        return (ActiveJob(job, str(job), datetime.now(UTC)) for job in self.jobs)


def stacks(
    monkeypatch: pytest.MonkeyPatch, there: PlaceAccount, *, before: Any = None, after: Any = None
) -> PlaceStacks:
    """The outposts of a stack that has the places `before`, and is to have the places `after`."""
    monkeypatch.setattr(further_stacks, "Account", lambda _session: there)
    tables = {**HERE, "places": {"tokyo": TOKYO} if after is None else after}
    template = {"Metadata": {SETTINGS_METADATA: {**HERE, "places": before or {}}}}
    outputs = {"BucketName": "data", "JobPrefix": "muster", "StateMachineArn": "arn:machine"}
    deployed = DeployedStack("Muster", "UPDATE_COMPLETE", outputs, template)
    return PlaceStacks(Home(there, PLACE, deployed, parse_settings(tables, AWS), {}))


def found(problems: Iterable[Problem]) -> list[str]:
    return [str(problem) for problem in problems]


OURS = {"Home": f"arn:aws:cloudformation:us-east-1:{HOME}:stack/Muster", "Place": "tokyo", "JobPrefix": "muster"}


def test_what_stands_against_an_outpost_is_found_before_anything_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    there = PlaceAccount()
    assert found(stacks(monkeypatch, there).problems()) == []
    for outputs, words in (
        (OURS, None),
        ({**OURS, "Version": "0.0.1"}, None),  # this deployment brings it up to date
        ({}, "places.tokyo: the stack Muster-tokyo in ap-northeast-1 is no outpost of this place"),
        ({**OURS, "Place": "osaka"}, "is no outpost of this place; choose another name for the place"),
        (
            {**OURS, "Home": f"arn:aws:cloudformation:eu-west-1:{HOME}:stack/Team"},
            f"is an outpost of the stack Team in eu-west-1, account {HOME}; choose another name",
        ),
        ({**OURS, "JobPrefix": "old"}, "has the job prefix old, and takes jobs with no other"),
    ):
        there.there = DeployedStack("Muster-tokyo", "CREATE_COMPLETE", outputs)
        lines = found(stacks(monkeypatch, there).problems())
        assert lines == [] if words is None else words in lines[0], outputs
    there.there = None
    there.buckets = [OUTPOST.bucket]
    [said] = found(stacks(monkeypatch, there).problems())
    assert f"the bucket {OUTPOST.bucket} of an outpost before this one is still there" in said
    assert f"aws s3 rb s3://{OUTPOST.bucket} --force --region ap-northeast-1" in said
    there.buckets, there.prefixes = [], {"Other": "Muster"}
    [said] = found(stacks(monkeypatch, there).problems())
    assert "the stack Other there has the job prefix Muster, too" in said
    there.is_there = False
    [said] = found(stacks(monkeypatch, there).problems())
    assert "places.tokyo.region: Amazon SageMaker does not answer in ap-northeast-1" in said
    [said] = found(stacks(monkeypatch, PlaceAccount(HOME)).problems())
    assert f"places.tokyo.profile: the place is in account {ELSEWHERE}, the credentials lead to {HOME}" in said


def test_a_place_is_removed_while_runs_train_elsewhere_and_not_under_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    there = PlaceAccount()

    def removal() -> list[str]:
        return found(stacks(monkeypatch, there, before={"tokyo": TOKYO}, after={}).problems())

    there.runs = ["elsewhere"]
    assert removal() == []
    there.runs = ["elsewhere", "uses"]
    [said] = removal()
    assert said.startswith("places.tokyo: it would be removed while it is used by uses; wait until they end")
    there.runs, there.jobs = ["elsewhere"], [JobName("muster", "orphan", 0, 1)]
    [said] = removal()
    assert "used by muster-orphan-r0-a1" in said
    # A place of the same name elsewhere is another one.
    moved = {"tokyo": {**TOKYO, "region": "ap-northeast-3"}}
    assert [one.place.region for one in stacks(monkeypatch, there, before=moved).unwanted] == ["ap-northeast-3"]


INVALID_TOKEN = AwsError("InvalidClientTokenId", "The security token included in the request is invalid.", 403)
GONE = pytest.mark.parametrize(
    ("error", "words"),
    [
        # A closed account, or a region that is not enabled; a role of such an account; no way; no profile.
        (INVALID_TOKEN, ": An error occurred (InvalidClientTokenId) when calling"),
        (AwsError("AccessDenied", "not authorized to perform: sts:AssumeRole", 403), ": An error occurred (AccessDen"),
        (ConnectTimeoutError(endpoint_url="https://sts.ap-northeast-1.amazonaws.com"), ": Connect timeout on endpoint"),
        (None, ", with the profile nobody-has-it: The config profile (nobody-has-it) could not be found"),
    ],
)


def _lost(there: PlaceAccount, error: Exception | None) -> dict[str, Any]:
    """The table of a place that meets this error; None: there is no such profile."""
    there.error = error.as_client_error("GetCallerIdentity") if isinstance(error, AwsError) else error
    return {"tokyo": TOKYO if error is not None else {**TOKYO, "profile": "nobody-has-it"}}


@GONE
def test_a_place_that_is_gone_is_named_and_keeps_the_deployment_from_beginning(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, words: str
) -> None:
    there = PlaceAccount()
    table = _lost(there, error)
    [said] = found(stacks(monkeypatch, there, before=table, after=table).problems())
    assert said.startswith(f"places.tokyo: account {ELSEWHERE} cannot be asked in ap-northeast-1{words}")
    assert said.endswith("or let this network reach it; if it is gone, remove its table")


@GONE
def test_a_place_that_is_gone_can_be_removed_once_no_run_uses_it(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, words: str
) -> None:
    there = PlaceAccount()
    table = _lost(there, error)
    home = PlaceAccount()
    home.runs = ["uses", "elsewhere"]

    def removal() -> PlaceStacks:
        outposts = stacks(monkeypatch, there, before=table, after={})
        vars(outposts)["_home"] = replace(vars(outposts)["_home"], account=home)
        return outposts

    [said] = found(removal().problems())
    assert "used by uses" in said
    home.runs = ["elsewhere"]
    outposts = removal()
    assert found(outposts.problems()) == []
    assert outposts.changes(Written([], "data")) == {}
    assert outposts.remove(delete_data=True) == [OUTPOST.bucket]
    [warning] = outposts.warnings()
    assert f"the stack Muster-tokyo of the place tokyo stays, because account {ELSEWHERE} cannot be asked in" in warning
    assert words in warning
    assert "aws cloudformation delete-stack --stack-name Muster-tokyo --region ap-northeast-1" in warning


def test_a_place_that_is_only_busy_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    there = PlaceAccount()
    there.error = AwsError("ThrottlingException", "Rate exceeded", 400).as_client_error("GetCallerIdentity")
    outposts = stacks(monkeypatch, there, before={"tokyo": TOKYO}, after={})
    with pytest.raises(BusyError):
        found(outposts.problems())


class ReadingAccount(PlaceAccount):
    """An account that reads what its runs say."""

    def __init__(self) -> None:
        super().__init__()
        self.cloud, self.runs = MemoryCloud(), ["uses"]
        self.machine = self.cloud.workflow.machine_arn
        spec = json.dumps({"places": {"tokyo": 1}})
        self.cloud.client("stepfunctions").start_execution(stateMachineArn=self.machine, name="uses", input=spec)

    def client(self, service: str) -> Any:
        return self.cloud.client(service)

    def run_input(self, machine: str, run: str) -> Mapping[str, Any]:
        return Account.run_input(self, self.machine, run)


def test_a_place_is_not_removed_while_it_cannot_be_read_which_runs_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    there = ReadingAccount()

    def removal() -> list[str]:
        return found(stacks(monkeypatch, there, before={"tokyo": TOKYO}, after={}).problems())

    [said] = removal()
    assert "used by uses" in said
    fault = Fault("DescribeExecution", AwsError("ThrottlingException", "Rate exceeded", 400), count=None)
    there.cloud.calls.inject(fault)
    with pytest.raises(BusyError, match="DescribeExecution: ThrottlingException"):
        removal()
    # Who may deploy may be denied the inputs of runs: the jobs in the place show those that use it.
    fault.error = AwsError("AccessDeniedException", "no", 400)
    assert removal() == []


@pytest.mark.parametrize(
    ("key", "delete_data", "stays"),
    [
        ("output/run/job/output/model.tar.gz", False, True),
        ("checkpoints/run/r0/a", False, True),
        ("checkpoints/run/r0/a", True, False),
        ("rendezvous/run/near/1", False, False),
    ],
)
def test_the_bucket_of_a_place_stays_where_only_it_has_something(
    monkeypatch: pytest.MonkeyPatch, key: str, *, delete_data: bool, stays: bool
) -> None:
    deleted: list[str] = []
    monkeypatch.setattr(Destruction, "delete_stack", lambda work: deleted.append(work.stack.name))
    with mock_aws():
        account = Account(boto3.Session(region_name="us-east-1"))
        s3 = account.client("s3")
        s3.create_bucket(Bucket=OUTPOST.bucket)
        s3.put_object(Bucket=OUTPOST.bucket, Key=key, Body=b"1")
        for home, expected in (("arn:another", None), (OURS["Home"], OUTPOST.bucket if stays else None)):
            one = PlaceStack("tokyo", "Muster-tokyo", OUTPOST, account, home, {})
            outputs = {**OURS, "BucketName": OUTPOST.bucket}
            vars(one)["deployed"] = DeployedStack("Muster-tokyo", "CREATE_COMPLETE", outputs)
            assert one.delete(delete_data=delete_data) == expected
        assert deleted == ["Muster-tokyo"]
        assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ([OUTPOST.bucket] if stays else [])


class Noted:
    """Further stacks that note what is done with them."""

    def __init__(self, done: list[str], problems: Sequence[Problem] = ()) -> None:
        self.done, self.found = done, problems

    def problems(self) -> Sequence[Problem]:
        return self.found

    def warnings(self) -> Sequence[str]:
        return []

    def changes(self, assembly: Assembly) -> Mapping[str, list[str]]:
        return {}

    def deploy(self, assembly: Assembly, bucket: str) -> None:
        self.done.append(f"beside {bucket}")

    def remove(self, *, delete_data: bool) -> list[str]:
        self.done.append(f"remove {delete_data}")
        return ["kept"]


class Written(Assembly):
    """An assembly whose stack gets this bucket."""

    def __init__(self, done: list[str], bucket: str) -> None:
        vars(self).update(done=done, bucket=bucket)

    def deploy(self) -> dict[str, str]:
        vars(self)["done"].append("home")
        return {"BucketName": vars(self)["bucket"]}


def test_outposts_come_before_a_stack_that_is_there_and_after_a_new_one() -> None:
    for before, after, expected in (
        (None, "new", ["remove False", "home", "beside new"]),
        ("old", "old", ["remove False", "beside old", "home"]),
        ("old", "new", ["remove False", "beside old", "home", "beside new"]),
    ):
        deployed = None if before is None else DeployedStack("Muster", "UPDATE_COMPLETE", {"BucketName": before})
        done: list[str] = []
        noted = cast("FurtherStacks", Noted(done))
        work = Work(PlaceAccount(), PLACE, deployed, parse_settings({}, AWS), as_json=True, further=[noted])
        work.deploy(Written(done, after))
        assert done == expected


def test_outposts_are_deleted_before_the_stack_that_names_them() -> None:
    done: list[str] = []
    work = Destruction(PlaceAccount(), DeployedStack("Muster", "CREATE_COMPLETE", {"BucketName": "data"}), PLACE)
    assert remove_beside(work, [cast("FurtherStacks", Noted(done))], delete_data=True) == ["kept"]
    busy = Noted(done, [Problem("places.tokyo", "used", "wait", "")])
    with pytest.raises(SettingsError, match=r"places\.tokyo"):
        remove_beside(work, [cast("FurtherStacks", busy)], delete_data=False)
    assert done == ["remove True"]
