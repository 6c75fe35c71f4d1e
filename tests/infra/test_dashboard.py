"""The dashboard and the example: what they name is there, and what they offer can be started."""

from __future__ import annotations

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


def test_runs_and_replicas_are_counted_by_what_step_functions_measures(metrics: dict[str, list[Metric]]) -> None:
    for title, machine in (("Runs", MACHINE), ("Replicas", f"{MACHINE}/{MAP_LABEL}")):
        assert metrics[title] == [
            ("AWS/States", f"Executions{what}", "StateMachineArn", machine)
            for what in ("Started", "Succeeded", "Failed", "TimedOut", "Aborted")
        ]
    definition = json.loads((ROOT / "statemachine" / "run.asl.json").read_text(encoding="utf-8"))
    assert definition["States"]["Train the replicas"]["Label"] == MAP_LABEL


def test_what_runs_is_what_has_begun_and_not_ended(body: dict[str, Any]) -> None:
    [runs] = [widget for widget in body["widgets"] if widget["properties"].get("title") == "Runs"]
    lines = runs["properties"]["metrics"]
    ids = {line[-1]["id"]: line for line in lines if "id" in line[-1]}
    [balance] = [line[-1]["expression"] for line in lines if "RUNNING_SUM" in line[-1].get("expression", "")]
    used = re.findall(r"FILL\((\w+), 0\)", balance)
    assert [ids[name][1] for name in used] == [
        f"Executions{what}" for what in ("Started", "Succeeded", "Failed", "TimedOut", "Aborted")
    ]
    assert balance == f"RUNNING_SUM({' - '.join(f'FILL({name}, 0)' for name in used)})"


def test_every_function_is_on_it(metrics: dict[str, list[Metric]]) -> None:
    for title, name in (
        ("Errors of functions", "Errors"),
        ("Throttles of functions", "Throttles"),
        ("Duration of functions, p95", "Duration"),
    ):
        assert sorted(metrics[title]) == sorted(("AWS/Lambda", name, "FunctionName", one) for one in FUNCTIONS)


def test_launches_reruns_and_dead_letters_are_on_it(metrics: dict[str, list[Metric]]) -> None:
    reruns = ("Muster", "RerunsWithinHour", "service", "muster")
    launches = ("Muster", "ReplicaLaunched", "service", "muster-attempt")
    assert metrics["Launches and reruns of replicas"] == [launches, reruns, reruns]
    [letters] = metrics["Dead letters"]
    assert letters == ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", "DeadLetters")


def test_the_page_of_costs_counts_its_metrics(metrics: dict[str, list[Metric]]) -> None:
    different = {metric for graph in metrics.values() for metric in graph}
    assert f"the dashboard, {len(different)} metrics" in (ROOT / "docs" / "costs.md").read_text(encoding="utf-8")


def test_it_stays_within_what_an_account_has_for_free(metrics: dict[str, list[Metric]]) -> None:
    # CloudWatch: three dashboards of at most 50 metrics.
    assert sum(map(len, metrics.values())) <= 50


def test_it_shows_every_alarm(body: dict[str, Any], template: Template) -> None:
    [status] = [widget for widget in body["widgets"] if widget["type"] == "alarm"]
    assert len(status["properties"]["alarms"]) == len(template.of_type("AWS::CloudWatch::Alarm"))


def test_its_text_links_to_the_consoles_and_shows_the_example(body: dict[str, Any], template: Template) -> None:
    [text] = [widget["properties"]["markdown"] for widget in body["widgets"] if widget["type"] == "text"]
    links = re.findall(r"\]\((.*?)\)", text)
    assert len(links) == 4
    assert all(link.startswith("https://REGION.console.aws.amazon.com/") for link in links)
    assert links[0].endswith(f"#/statemachines/view/{MACHINE}")
    [example] = re.findall(r"```json\n(.*?)\n```", text, re.DOTALL)
    assert json.loads(example) == json.loads(template.resolve(template.body["Outputs"]["ExampleInput"]["Value"]))


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
