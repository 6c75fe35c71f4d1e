"""The output of an execution, or its error and cause, which the console shows. Pure."""

from __future__ import annotations

from typing import Any

from muster.contract.names import run_job_prefix
from muster.contract.run.plan import Plan
from muster.contract.run.result import ReplicaOutcome, Verdict
from muster.control.finish import Finished
from muster.report.links import console_links, object_link

# Step Functions: the cause of a Fail state has at most 32,768 characters, its error 256. Half of it is for the lines
# after the reason.
REASON_MAX = 16_384
_ERRORS = {Verdict.FAILED: "Muster.RunFailed", Verdict.STOPPED: "Muster.RunStopped"}


def execution_output(plan: Plan, finished: Finished, result_uri: str) -> dict[str, Any]:
    """The output of the settling task. Its size does not depend on the number of replicas.

    The workflow branches on `verdict` and `reason`, also in executions that an earlier version started.
    """
    result, page_uri, continued_by = finished.result, finished.page_uri, finished.continued_by
    succeeded = sum(replica.outcome is ReplicaOutcome.SUCCEEDED for replica in result.replicas)
    rounds = [replica.round for replica in result.replicas if replica.round is not None]
    answer: dict[str, Any] = {
        "run": result.run,
        "verdict": result.verdict.value,
        "reason": result.reason[:REASON_MAX],
        "replicas": len(result.replicas),
        "succeeded": succeeded,
        **({"rounds": max(rounds)} if rounds else {}),
        "attempts": sum(len(replica.attempts) for replica in result.replicas),
        "reruns": result.reruns,
        "settled_at": result.settled_at,
        "result": result_uri,
        **({"page": page_uri} if page_uri else {}),
        **({"continued_by": continued_by} if continued_by else {}),
        "links": _links(plan, result_uri, page_uri),
    }
    if result.verdict is not Verdict.SUCCEEDED:
        answer |= {"error": _ERRORS[result.verdict], "cause": _cause(answer)}
    return answer


def _links(plan: Plan, result_uri: str, page_uri: str | None) -> dict[str, str]:
    """The links to the consoles, the most helpful first."""
    consoles = console_links(plan.execution_arn, run_job_prefix(plan.place.job_prefix, plan.run))
    return {
        **({"page": object_link(plan.execution_arn, page_uri)} if page_uri else {}),
        "result": object_link(plan.execution_arn, result_uri),
        "logs": consoles.run_logs,
        "jobs": consoles.run_jobs,
        "execution": consoles.execution,
    }


_WHERE = {
    "page": "Page of the run (one HTML file)",
    "result": "Result (every attempt with its reason)",
    "logs": "Logs of the replicas",
    "jobs": "Training jobs",
}


def _cause(answer: dict[str, Any]) -> str:
    """The reason; after a blank line, which clients rely on, figures and links."""
    figures = (
        f"{answer['succeeded']} of {answer['replicas']} replicas succeeded; attempts in total: {answer['attempts']}."
    )
    where = [f"{words}: {answer['links'][name]}" for name, words in _WHERE.items() if name in answer["links"]]
    by_hand = f"To continue from the last committed round: muster rerun {answer['run']}"
    next_ = f"It is continued by {answer['continued_by']}." if "continued_by" in answer else by_hand
    return "\n".join([answer["reason"], "", figures, *where, next_])
