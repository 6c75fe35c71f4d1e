"""SimulatePrincipalPolicy in the form in which AWS answers."""

import importlib
import json
import re
from collections.abc import Iterator

import pytest
from ministack.core import iam_evaluator, responses
from ministack.services import iam

from muster.local.ministack import policy_simulation

ACCOUNT = "123456789012"
ROLE = "Simulated"
STATEMENT = {
    "Effect": "Allow",
    "Action": "s3:GetObject",
    "Resource": "arn:aws:s3:::b/*",
    "Condition": {"StringEquals": {"aws:ResourceAccount": ACCOUNT}},
}


@pytest.fixture(scope="module", autouse=True)
def role() -> Iterator[None]:
    """A role with one statement, and MiniStack's evaluator as it was afterwards."""
    handlers = dict(iam._IAM_HANDLERS)
    policy_simulation.install()
    responses.set_request_account_id(ACCOUNT)
    document = json.dumps({"Version": "2012-10-17", "Statement": [STATEMENT]})
    iam._IAM_HANDLERS["CreateRole"]({"RoleName": [ROLE], "AssumeRolePolicyDocument": [document]})
    iam._IAM_HANDLERS["PutRolePolicy"]({"RoleName": [ROLE], "PolicyName": ["x"], "PolicyDocument": [document]})
    yield
    iam._IAM_HANDLERS["DeleteRolePolicy"]({"RoleName": [ROLE], "PolicyName": ["x"]})
    iam._IAM_HANDLERS["DeleteRole"]({"RoleName": [ROLE]})
    iam._IAM_HANDLERS.update(handlers)
    importlib.reload(iam_evaluator)


def simulated(*actions: str, resources: tuple[str, ...], **context: str) -> tuple[int, str]:
    request: dict[str, list[str] | str] = {"PolicySourceArn": [f"arn:aws:iam::{ACCOUNT}:role/{ROLE}"]}
    request |= {f"ActionNames.member.{number}": [action] for number, action in enumerate(actions, 1)}
    request |= {f"ResourceArns.member.{number}": [arn] for number, arn in enumerate(resources, 1)}
    for number, (name, value) in enumerate(context.items(), 1):
        request[f"ContextEntries.member.{number}.ContextKeyName"] = [f"aws:{name}"]
        request[f"ContextEntries.member.{number}.ContextKeyValues.member.1"] = [value]
    status, _, body = policy_simulation.simulate(request)
    return status, body.decode()


def test_the_decision_about_each_resource_is_in_the_results_of_the_resource() -> None:
    named = ("arn:aws:s3:::b/1", "arn:aws:s3:::c/1")
    _, answer = simulated("s3:GetObject", resources=named, ResourceAccount=ACCOUNT)
    assert re.findall("<EvalResourceDecision>(.*?)<", answer) == ["allowed", "implicitDeny"]
    assert re.findall("<EvalDecision>(.*?)<", answer) == ["implicitDeny"]
    assert re.findall("<EvalResourceName>(.*?)<", answer) == ["*", *named]
    # A condition key has no value but the given one.
    _, answer = simulated("s3:GetObject", resources=named[:1])
    assert re.findall("<EvalResourceDecision>(.*?)<", answer) == ["implicitDeny"]
    assert "<MissingContextValues><member>aws:ResourceAccount</member></MissingContextValues>" in answer


def test_actions_of_different_services_are_refused() -> None:
    status, answer = simulated("s3:GetObject", "iam:PassRole", resources=("*",))
    assert status == 400
    assert "require different authorization information" in answer
