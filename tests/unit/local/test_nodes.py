"""The nodes of the embedded cluster under faults that meet."""

import threading

from muster.options.hyperpod.local.cluster_events import ClusterEvents
from muster.options.hyperpod.local.cluster_settings import ClusterSettings
from muster.options.hyperpod.local.nodes import Nodes
from tests.support.waiting import wait_until


def test_a_node_that_two_faults_strike_is_replaced_once() -> None:
    sent: list[str] = []
    events = ClusterEvents(
        lambda *event: sent.append(str(event)),
        "trainers",
        "arn:aws:sagemaker:us-east-1:123456789012:cluster/abcdefghijkl",
        "workers",
    )
    nodes = Nodes(ClusterSettings(node_seconds=0.05, replace_seconds=0.05), events, lambda _: None, lambda: None)
    nodes.join(2)
    first, second = nodes.all()
    others = set(threading.enumerate())
    nodes.lose(first)
    nodes.lose(first)
    nodes.fail_health_check(second, reboot=False)
    nodes.lose(second)
    wait_until(
        "what follows", lambda: not {one for one in threading.enumerate() if isinstance(one, threading.Timer)} - others
    )
    assert len(nodes.all()) == 2
    assert not nodes.all().keys() & {first, second}
    assert sum("Termination" in detail for detail in sent) == 2
