"""The dashboard and the example: what they name is there, and what they offer can be started."""

import json
import re
from typing import Any

import pytest

from muster.contract.spec.spec_reader import parse_spec
from muster.infra.workflow.workflow_definition import MAP_LABEL
from tests.infra.variants import Variant
from tests.support.template import FUNCTIONS, ROOT, Template

MACHINE = "arn:aws:states:REGION:ACCOUNT:stateMachine:Workflow"
Metric = tuple[str, ...]


@pytest.fixture(scope="module")
def body(template: Template) -> dict[str, Any]:
    return dict(json.loads(template.one("AWS::CloudWatch::Dashboard")["DashboardBody"]))


@pytest.fixture(scope="module")
def metrics(body: dict[str, Any]) -> dict[str, list[Metric]]:
    """The metrics of each graph: namespace, name, dimension, value. Expressions are left out."""
    return {
        widget["properties"]["title"]: [tuple(m[:4]) for m in widget["properties"]["metrics"] if isinstance(m[0], str)]
        for widget in body["widgets"]
        if widget["type"] == "metric"
    }


def test_what_runs_is_what_has_begun_and_not_ended(body: dict[str, Any]) -> None:
    [runs] = [widget for widget in body["widgets"] if widget["properties"].get("title") == "Runs"]
    lines = runs["properties"]["metrics"]
    ids = {line[-1]["id"]: line[1] for line in lines if "id" in line[-1] and len(line) > 1}
    [balance] = [line[-1]["expression"] for line in lines if "RUNNING_SUM" in line[-1].get("expression", "")]
    used = re.findall(r"FILL\((\w+), 0\)", balance)
    assert [ids[name] for name in used][:1] == ["ExecutionsStarted"]
    assert {ids[name] for name in used[1:]} == {
        f"Executions{end}" for end in ("Succeeded", "Failed", "TimedOut", "Aborted")
    }
    assert balance == f"RUNNING_SUM({' - '.join(f'FILL({name}, 0)' for name in used)})"


def test_it_costs_what_the_page_says_and_shows_every_alarm(
    metrics: dict[str, list[Metric]], body: dict[str, Any], template: Template
) -> None:
    different = {metric for graph in metrics.values() for metric in graph}
    assert f"the dashboard, {len(different)} metrics" in (ROOT / "docs" / "costs.md").read_text(encoding="utf-8")
    # CloudWatch: three dashboards of at most 50 metrics are free.
    assert sum(map(len, metrics.values())) <= 50
    name = template.resolve(template.body["Outputs"]["DashboardUrl"]["Value"]).rpartition("/")[2]
    assert name == template.one("AWS::CloudWatch::Dashboard")["DashboardName"]
    [status] = [widget for widget in body["widgets"] if widget["type"] == "alarm"]
    assert len(status["properties"]["alarms"]) == len(template.of_type("AWS::CloudWatch::Alarm"))
    for title in ("Errors of functions", "Throttles of functions", "Duration of functions, p95"):
        assert sorted(metric[3] for metric in metrics[title]) == sorted(FUNCTIONS), title
    machines = [metrics[title][0][3] for title in ("Runs", "Replicas")]
    assert machines == [MACHINE, f"{MACHINE}/{MAP_LABEL}"]


def test_the_example_is_a_spec_with_an_image_where_the_stack_has_none(template: Template, variant: Variant) -> None:
    bare = variant("bare")
    for found, image in ((template, None), (bare, "763104351884.dkr.ecr.REGION.amazonaws.com/pytorch-training")):
        spec = parse_spec(json.loads(found.resolve(found.body["Outputs"]["ExampleInput"]["Value"])))
        assert spec.replicas == 2
        assert (spec.image or "").partition(":")[0] == (image or "")


def test_the_documentation_shows_this_example(template: Template) -> None:
    page = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    shown = [json.loads(block) for block in re.findall(r"^```json\n(\{\n.*?)^```", page, re.DOTALL | re.MULTILINE)]
    assert json.loads(template.resolve(template.body["Outputs"]["ExampleInput"]["Value"])) in shown
