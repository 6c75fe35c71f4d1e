"""The policy that `muster policy` prints is what the guide says."""

import re
from pathlib import Path

from muster.client.aws.deployed_stack import Stack
from muster.client.aws.user_policy import user_policy

ROOT = Path(__file__).resolve().parents[3]
STACK = Stack("Muster", "arn:aws:states:eu-west-1:123456789012:stateMachine:Runs", "bucket-1", "muster")
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
    statements = user_policy(STACK)["Statement"]
    assert {action for one in statements for action in one["Action"]} == wanted
    assert [one["Sid"] for one in statements if "*" in one["Resource"]] == ["Lists"]
    reach = {resource for one in statements for resource in one["Resource"]} - {"*"}
    assert {arn.split(":")[5:][0].partition("/")[0] for arn in reach if ":s3:" in arn} == {"bucket-1"}
    assert all("123456789012" in arn for arn in reach if ":s3:" not in arn)
    control = sorted(arn.rpartition("/control/")[2] for arn in reach if "/control/" in arn)
    assert control == [f"*/{name}" for name in sorted(re.findall(r"`([\w.*/]+)`", _control_row(rows)))]


def _control_row(rows: list[str]) -> str:
    """What the guide lets users read below control/."""
    return next(row for row in rows if "control/*/" in row).partition("only")[2]
