"""The handlers of a stack with a cluster, as Lambda loads them."""

from collections.abc import Callable
from typing import Any

import pytest

from muster.contract.run.notices import NoticeKind
from muster.contract.spec.retry_budget import REARM_SECONDS
from muster.contract.spec.stack_defaults import StackDefaults
from tests.memory.harness import CLUSTER, CLUSTER_SPEC, POD_ROLE, RUN, ControlHarness, node_event
from tests.support.handlers import Handler, loader

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
