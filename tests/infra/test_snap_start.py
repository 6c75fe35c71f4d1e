"""A stack with snapshots (`runs.snap_start`): versions, aliases, and that every call is of the alias."""

import json
from typing import Any

import pytest

from tests.infra.variants import Variant
from tests.support.template import FUNCTIONS, Template, construct_name, function

FROM_SNAPSHOTS = {"Attempt", "React"}
ALIAS = "live"
VERSION, ALIASES = "AWS::Lambda::Version", "AWS::Lambda::Alias"


def arn(name: str) -> str:
    qualifier = f":{ALIAS}" if name in FROM_SNAPSHOTS else ""
    return f"arn:aws:lambda:REGION:ACCOUNT:function:{name}{qualifier}"


def versions(template: Template) -> dict[str, str]:
    """The logical id of each function's version."""
    return {construct_name(key): key for key in template.of_type(VERSION)}


@pytest.fixture
def snapshots(variant: Variant) -> Template:
    return variant("snapshots")


def test_the_functions_between_the_end_of_a_job_and_the_next_launch_start_from_snapshots(snapshots: Template) -> None:
    for name in FUNCTIONS:
        properties = function(snapshots, name)
        wanted = {"ApplyOn": "PublishedVersions"} if name in FROM_SNAPSHOTS else None
        assert properties.get("SnapStart") == wanted
        # What Lambda refuses together with snapshots.
        assert not {"EphemeralStorage", "FileSystemConfigs", "ImageUri"} & properties.keys()
    assert versions(snapshots).keys() == FROM_SNAPSHOTS


def test_the_alias_leads_to_the_version_and_no_version_is_deleted(snapshots: Template) -> None:
    of_name = versions(snapshots)
    for key, alias in snapshots.of_type(ALIASES).items():
        name = construct_name(key)
        assert alias["Properties"]["Name"] == ALIAS
        assert alias["Properties"]["FunctionVersion"] == {"Fn::GetAtt": [of_name[name], "Version"]}
    for resource in snapshots.of_type(VERSION).values():
        # One of a deployment that is rolled back goes: otherwise Lambda refuses to publish the same code again.
        assert resource["DeletionPolicy"] == "RetainExceptOnCreate"
        assert resource["UpdateReplacePolicy"] == "Retain"


def test_a_new_version_is_made_where_code_or_configuration_changes_and_only_there(variant: Variant) -> None:
    assert not versions(variant("bare"))
    assert "SnapStart" not in json.dumps(variant("bare").resources)
    first = versions(variant("snapshots"))
    assert versions(variant("snapshots, tagged")) == first  # tags are no part of a version: Lambda would refuse it
    # Another bucket, which the functions' templates name by the same reference.
    for name in ("snapshots, changed", "snapshots, other bucket"):
        changed = versions(variant(name))
        assert changed.keys() == first.keys()
        assert not set(changed.values()) & set(first.values())


def test_asynchronous_events_of_the_alias_are_retried_like_those_of_a_function(snapshots: Template) -> None:
    found = [item["Properties"] for item in snapshots.of_type("AWS::Lambda::EventInvokeConfig").values()]
    of_alias = [item for item in found if item["Qualifier"] != "$LATEST"]
    assert len(of_alias) == len(FROM_SNAPSHOTS)
    for item in of_alias:
        assert (item["MaximumRetryAttempts"], item["MaximumEventAgeInSeconds"]) == (2, 6 * 3_600)


def calls(template: Template) -> list[Any]:
    """The ARNs that rules, subscriptions and permissions name, and those of the workflow's definition."""
    rules = template.of_type("AWS::Events::Rule").values()
    targets = [target["Arn"] for rule in rules for target in rule["Properties"]["Targets"]]
    subscriptions = template.of_type("AWS::SNS::Subscription").values()
    endpoints = [item["Properties"]["Endpoint"] for item in subscriptions if item["Properties"]["Protocol"] == "lambda"]
    permissions = [item["Properties"]["FunctionName"] for item in template.of_type("AWS::Lambda::Permission").values()]
    substitutions = template.one("AWS::StepFunctions::StateMachine")["DefinitionSubstitutions"]
    placed = [value for key, value in substitutions.items() if key.endswith("FunctionArn")]
    return [template.resolve(value) for value in (*targets, *endpoints, *permissions, *placed)]


def test_every_call_is_of_the_alias(snapshots: Template) -> None:
    template = snapshots
    named = set(calls(template))
    assert named >= {arn("Attempt"), arn("React"), arn("Plan")}
    assert named <= set(map(arn, FUNCTIONS))
    granted = [item for item in template.statements if "lambda:InvokeFunction" in item.actions]
    assert {item.role for item in granted} == {"Workflow", "TimerScheduler"}
    for statement in granted:
        assert set(statement.resources) <= set(map(arn, FUNCTIONS))
    assert template.allows("Workflow", "lambda:InvokeFunction", arn("Attempt"))
    assert not template.allows("Workflow", "lambda:InvokeFunction", arn("Attempt").removesuffix(f":{ALIAS}"))
