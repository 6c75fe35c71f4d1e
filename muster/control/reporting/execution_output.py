"""The output of an execution, or its error and cause, which the console shows. Pure."""

from __future__ import annotations

from muster.contract.names import run_job_prefix
from muster.contract.run.failure_words import logs_command
from muster.contract.run.last_lines import is_explained_by_log
from muster.contract.run.plan import Plan
from muster.contract.run.result import ReplicaOutcome, Result, Verdict
from muster.control.settle import Finished
from muster.report.links import console_links, object_link

# Step Functions: the cause of a Fail state has at most 32,768 characters, its error 256. Half of it is for the lines
# after the reason.
REASON_MAX = 16_384
_LEFT_MAX = 1_024  # of one problem, so that the output stays small
_ERRORS = {Verdict.FAILED: "Muster.RunFailed", Verdict.STOPPED: "Muster.RunStopped"}


def execution_output(plan: Plan, finished: Finished, result_uri: str) -> dict[str, object]:
    """The output of the settling task. Its size does not depend on the number of replicas.

    The workflow branches on `verdict` and `reason`, also in executions that an earlier version started.
    """
    result, page_uri, continued_by = finished.result, finished.page_uri, finished.continued_by
    links = _links(plan, result_uri, page_uri)
    rounds = [replica.round for replica in result.replicas if replica.round is not None]
    answer: dict[str, object] = {
        "run": result.run,
        "verdict": result.verdict.value,
        "reason": result.reason[:REASON_MAX],
        "replicas": len(result.replicas),
        "succeeded": _succeeded(result),
        **({"rounds": max(rounds)} if rounds else {}),
        "attempts": _attempts(result),
        "reruns": result.reruns,
        "settled_at": result.settled_at,
        "result": result_uri,
        **({"page": page_uri} if page_uri else {}),
        **({"continued_by": continued_by} if continued_by else {}),
        # The result stands. After a failure or a cancel later calls and the sweep do what is named here.
        **({"left": [problem[:_LEFT_MAX] for problem in finished.left]} if finished.left else {}),
        "links": links,
    }
    if result.verdict is not Verdict.SUCCEEDED:
        answer |= {"error": _ERRORS[result.verdict], "cause": _cause(finished, links)}
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


def _cause(finished: Finished, links: dict[str, str]) -> str:
    """The reason; after a blank line, which clients rely on, figures and links."""
    result = finished.result
    attempts = f"attempts in total: {_attempts(result)}"
    figures = f"{_succeeded(result)} of {len(result.replicas)} replicas succeeded; {attempts}."
    where = [f"{words}: {links[name]}" for name, words in _WHERE.items() if name in links]
    failed = _first_failed(result)
    if failed is not None:
        where.append(f"Log of replica {failed[0]}, attempt {failed[1]}: {logs_command(result.run, *failed)}")
    by_hand = f"To continue from the last committed round: muster continue {result.run}"
    next_ = by_hand if finished.continued_by is None else f"It is continued by {finished.continued_by}."
    return "\n".join([result.reason[:REASON_MAX], "", figures, *where, next_])


def _first_failed(result: Result) -> tuple[int, int] | None:
    """Rank and attempt of the first replica that failed and wrote a log."""
    lost = (replica for replica in result.replicas if replica.outcome is ReplicaOutcome.FAILED and replica.attempts)
    return next(((one.rank, one.attempts[-1].attempt) for one in lost if is_explained_by_log(one.attempts[-1])), None)


def _succeeded(result: Result) -> int:
    return sum(replica.outcome is ReplicaOutcome.SUCCEEDED for replica in result.replicas)


def _attempts(result: Result) -> int:
    return sum(len(replica.attempts) for replica in result.replicas)
