"""The handlers of a stack with a cluster, as Lambda loads them."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from muster.contract.run.notices import NoticeKind
from muster.contract.spec.retry_budget import REARM_SECONDS
from muster.contract.spec.stack_defaults import StackDefaults
from tests.memory.harness import CLUSTER, CLUSTER_SPEC, POD_ROLE, RUN, ControlHarness, node_event
from tests.support.handlers import ENVIRONMENT, Handler, loader
from tests.support.source_patch import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")
PLAN = {"MUSTER_DEFAULTS": StackDefaults(clusters=(CLUSTER,)).to_json().decode(), "MUSTER_POD_ROLE_ARN": POD_ROLE}


@pytest.fixture
def load(harness: ControlHarness, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Handler]:
    return loader(harness, monkeypatch)


def planned(harness: ControlHarness, load: Callable[..., Handler], name: str = RUN, **fields: Any) -> dict[str, Any]:
    harness.executions.start(name, "{}")
    return load("plan", **PLAN)(harness.plan_request(name, **fields).model_dump())


def test_plan_says_how_often_a_run_on_a_cluster_is_re_armed(
    harness: ControlHarness, load: Callable[..., Handler]
) -> None:
    assert "rearm_seconds" not in planned(harness, load, name="two")["launch"], "a run of training jobs"
    assert planned(harness, load, **CLUSTER_SPEC)["launch"]["rearm_seconds"] == REARM_SECONDS == 900


def test_a_run_from_its_plan_to_its_end(harness: ControlHarness, load: Callable[..., Handler]) -> None:
    planned(harness, load, **CLUSTER_SPEC)
    assert load("attempt")(harness.request().model_dump()) == {"launch": "created"}
    look = load("look")
    harness.cluster.run(harness.job())
    assert look(harness.notice(NoticeKind.START)) == {"reaction": "noted: InProgress/Training"}
    assert load("react")(node_event()) == {"reaction": "dropped: nothing has changed"}
    harness.cluster.complete(harness.job())
    assert look(harness.notice(NoticeKind.END)) == {"reaction": "decided"}
    assert look({}) == {"reaction": "dropped: there is no notice"}
    assert load("settle")({"run": RUN})["verdict"] == "succeeded"
    assert harness.cloud.kubernetes.associations == {}


NOT_WITHOUT_CLUSTERS = {
    *(f"muster.options.hyperpod.contract.{name}" for name in ("cluster_rules", "job_schema", "job_state")),
    *(
        f"muster.options.hyperpod.control.{name}"
        for name in ("api", "cluster_apis", "cluster_clients", "cluster_jobs", "heeding")
    ),
}


# Prints what only some runs need of what each function brings: a cluster, or a recipe.
IMPORTS = f"""
import importlib, sys
for name in ("plan", "attempt", "react", "stop", "settle", "sweep", "timer", "start"):
    importlib.import_module("muster.lambdas." + name)
    for found in sorted(sys.modules):
        if found in {NOT_WITHOUT_CLUSTERS!r}:
            print(name, found)
        recipes = found.startswith("muster.options.recipes.contract.")
        if found == "yaml" or recipes and not found.endswith("recipe_reference"):
            print(name, found)
"""


def test_a_function_imports_nothing_for_clusters_and_recipes_before_a_run_has_one() -> None:
    environment = {**ENVIRONMENT, "MUSTER_BUCKET": "bucket", "MUSTER_JOB_PREFIX": "muster", "MUSTER_BUS": "bus"}
    environment |= {"AWS_DEFAULT_REGION": "us-east-1", "POWERTOOLS_SERVICE_NAME": "x", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", IMPORTS]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""
