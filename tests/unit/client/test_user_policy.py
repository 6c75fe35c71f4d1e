"""The policies that `muster policy` prints are what the guides say."""

import re
from dataclasses import replace
from pathlib import Path

from muster.client.aws.deployed_stack import Stack
from muster.client.aws.user_policy import deployer_policy, user_policy
from muster.contract.aws.partitions import Locality

ROOT = Path(__file__).resolve().parents[3]
STACK = Stack("Muster", "arn:aws:states:eu-west-1:123456789012:stateMachine:Runs", "bucket-1", "muster")
KEY = "arn:aws:kms:eu-west-1:123456789012:key/one"
# For operators, or on resources that are not the stack's.
LEFT_OUT = (
    *("dead-letter queue", "muster deadletters", "HyperPod clusters"),
    *("recipes of a hub", "buckets of channels", "a role that a spec"),
)


def test_it_allows_what_the_guide_lists_on_resources_of_the_stack_alone() -> None:
    section = (ROOT / "docs" / "running.md").read_text(encoding="utf-8").partition("## Who may do what")[2]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    wanted = {
        action
        for line in rows
        if not any(words in line for words in LEFT_OUT)
        for action in re.findall(r"`(\w+:\w+)`", line.split("|")[1])
    }
    statements = user_policy(replace(STACK, key_arn=KEY))["Statement"]
    assert {action for one in statements for action in one["Action"]} == wanted
    assert statements[-1]["Resource"] == [KEY]
    assert user_policy(STACK)["Statement"] == statements[:-1]
    assert [one["Sid"] for one in statements if "*" in one["Resource"]] == ["Lists"]
    reach = {resource for one in statements for resource in one["Resource"]} - {"*"}
    assert {arn.split(":")[5:][0].partition("/")[0] for arn in reach if ":s3:" in arn} == {"bucket-1"}
    assert all("123456789012" in arn for arn in reach if ":s3:" not in arn)
    control = sorted(arn.rpartition("/control/")[2] for arn in reach if "/control/" in arn)
    assert control == [f"*/{name}" for name in sorted(re.findall(r"`([\w.*/]+)`", _control_row(rows)))]


def test_it_allows_to_read_the_lines_of_jobs_wherever_the_stack_has_places() -> None:
    group = "123456789012:log-group:/aws/sagemaker/TrainingJobs:*"
    for stack, region in ((STACK, "eu-west-1"), (replace(STACK, places="{}"), "*")):
        [logs] = [one for one in user_policy(stack)["Statement"] if one["Sid"] == "Logs"]
        assert logs["Resource"] == [f"arn:aws:logs:{region}:{group}"]


def _control_row(rows: list[str]) -> str:
    """What the guide lets users read below control/."""
    return next(row for row in rows if "control/*/" in row).partition("only")[2]


def test_a_deployer_assumes_the_roles_of_the_cdk_and_may_read_what_a_deployment_checks() -> None:
    section = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8").partition("## Who may deploy")[2]
    rows = [line.split("|")[1] for line in section.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    assumed, checked = deployer_policy(Locality("aws-cn", "cn-north-1", "123456789012"))["Statement"]
    assert {*assumed["Action"], *checked["Action"]} == {*re.findall(r"`(\w+:\w+)`", " ".join(rows))}
    assert assumed["Resource"] == ["arn:aws-cn:iam::123456789012:role/cdk-*-123456789012-cn-north-1"]
    assert all(re.search(":(Get|List|Describe)", action) for action in checked["Action"])
    sources = (ROOT / "infra" / "deploy" / name for name in ("account.py", "preflight.py"))
    called = re.findall(
        r"client(?:\(\"\w+\"\))?\.((?:get|list|describe)_\w+)\(", "".join(file.read_text() for file in sources)
    )
    names = {action.partition(":")[2].lower() for action in checked["Action"]}
    renamed = {"getbucketlifecycleconfiguration": "getlifecycleconfiguration"}
    renamed |= {"getbucketnotificationconfiguration": "getbucketnotification"}
    operations = {name.replace("_", "") for name in called}
    assert {renamed.get(name, name) for name in operations} - names == {"getpaginator"}
