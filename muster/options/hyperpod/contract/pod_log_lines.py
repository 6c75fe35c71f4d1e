"""How the lines of a pod's log say to which job they belong.

A cluster has one log stream for each node, and its log group has the lines of all jobs. FilterLogEvents finds those of
a job by its name, so the first process of a pod writes the name in front of every line that it passes on.
"""

from __future__ import annotations

import json
import re

STREAMS = "SagemakerHyperPodTrainingJob"
"""The prefix of the log streams with the lines of jobs."""

_HEAD = re.compile(r"\[(?P<job>[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)/\d{1,4}\] ?")
_MEMBERS = ("log", "message")  # of a line that a log agent has wrapped in JSON


def line_head(job: str, pod: int) -> str:
    """What stands in front of every line of the pod with this index."""
    return f"[{job}/{pod}] "


def parse_line(message: str) -> tuple[str, str] | None:
    """The job and the text of a line in an event of the cluster's log group; None where it is of no job.

    A log agent may put a time in front of it, or wrap it in JSON. Where its JSON names the pod, a line of another job's
    pod is of no job: a program could write such a head itself.
    """
    text, writer = _unwrapped(message.rstrip("\n"))
    head = _HEAD.search(text)
    if head is None or (writer is not None and not writer.startswith(f"{head['job']}-pod-")):
        return None
    return head["job"], text[head.end() :]


def _unwrapped(message: str) -> tuple[str, str | None]:
    """The line, and the name of the pod, where the agent says it."""
    if not message.startswith("{"):
        return message, None
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        return message, None
    texts = [found.get(name) for name in _MEMBERS] if isinstance(found, dict) else []
    about = found.get("kubernetes") if isinstance(found, dict) else None
    pod = about.get("pod_name") if isinstance(about, dict) else None
    return next((text.rstrip("\n") for text in texts if isinstance(text, str)), message), pod and str(pod)
