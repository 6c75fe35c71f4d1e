"""The handlers of a stack with a cluster, as Lambda loads them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from muster.contract.errors import ConfigurationError
from muster.contract.hyperpod.notices import NoticeKind
from muster.contract.run.workflow_history import REARM_SECONDS
from muster.contract.spec.stack_defaults import StackDefaults
from tests.memory.harness import CLUSTER, CLUSTER_SPEC, POD_ROLE, RUN, ControlHarness, node_event
from tests.support.handlers import ENVIRONMENT, Handler, loader
from tests.support.source_patch import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")
PLAN = {"MUSTER_DEFAULTS": StackDefaults(clusters=(CLUSTER,)).to_json().decode(), "MUSTER_POD_ROLE_ARN": POD_ROLE}


@pytest.fixture
def load(harness: ControlHarness, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Handler]:
    return loader(harness, monkeypatch)


def planned(harness: ControlHarness, load: Callable[..., Handler], **fields: Any) -> dict[str, Any]:
    harness.executions.start(RUN, "{}")
    return load("plan", **PLAN)(harness.plan_request(RUN, **fields).model_dump())


def test_plan_says_how_often_a_run_on_a_cluster_is_re_armed(
    harness: ControlHarness, load: Callable[..., Handler]
) -> None:
    assert planned(harness, load, **CLUSTER_SPEC)["launch"]["rearm_seconds"] == REARM_SECONDS == 900


def test_plan_says_nothing_of_it_for_a_run_of_training_jobs(
    harness: ControlHarness, load: Callable[..., Handler]
) -> None:
    assert "rearm_seconds" not in planned(harness, load)["launch"]


def test_a_run_from_its_plan_to_its_end(harness: ControlHarness, load: Callable[..., Handler]) -> None:
    planned(harness, load, **CLUSTER_SPEC)
    assert load("attempt")(harness.request().model_dump()) == {"launch": "created"}
    react = load("react")
    harness.cluster.run(harness.job())
    assert react(harness.notice(NoticeKind.START)) == {"reaction": "noted: InProgress/Training"}
    assert react(node_event()) == {"reaction": "dropped: nothing has changed"}
    harness.cluster.complete(harness.job())
    assert react(harness.notice(NoticeKind.END)) == {"reaction": "decided"}
    assert load("settle")({"run": RUN})["verdict"] == "succeeded"
    assert harness.cloud.kubernetes.associations == {}


def test_a_refused_spec_names_the_cluster(harness: ControlHarness, load: Callable[..., Handler]) -> None:
    answer = planned(harness, load, backend="hyperpod", hyperpod={"cluster": "unknown"})
    assert (answer["accepted"], answer["error"]) == (False, "Muster.SpecError")
    assert "'unknown'" in answer["cause"]


def test_a_message_that_is_no_notice_changes_nothing(harness: ControlHarness, load: Callable[..., Handler]) -> None:
    event = {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": '{"Event": "s3:TestEvent"}'}}]}
    assert load("react")(event) == {"reaction": "dropped: nothing has changed"}
    assert harness.cloud.calls.log == []


@pytest.mark.parametrize("text", ["", "{", '{"clusters": [{"name": "x"}]}', "[]"])
def test_a_wrong_variable_is_named(harness: ControlHarness, load: Callable[..., Handler], text: str) -> None:
    with pytest.raises(ConfigurationError, match="MUSTER_CLUSTERS"):
        load("react", MUSTER_CLUSTERS=text)


NOT_WITHOUT_CLUSTERS = {
    *(f"muster.contract.hyperpod.{name}" for name in ("cluster_rules", "job_schema", "job_state")),
    "muster.control.react_cluster",
}


@pytest.mark.parametrize("name", ["plan", "attempt", "react", "stop", "settle", "sweep", "timer"])
def test_a_stack_without_clusters_imports_nothing_for_them(name: str) -> None:
    code = (
        f"import sys, muster.lambdas.{name}\n"
        "found = [one for one in sys.modules if one.startswith('muster.control.kubernetes')"
        f" or one in {NOT_WITHOUT_CLUSTERS!r}]\n"
        "print(found)"
    )
    environment = {**ENVIRONMENT, "MUSTER_BUCKET": "bucket", "MUSTER_JOB_PREFIX": "muster", "MUSTER_BUS": "bus"}
    environment |= {"AWS_DEFAULT_REGION": "us-east-1", "POWERTOOLS_SERVICE_NAME": "x", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
