"""Defects that the exploration must find: each is a change of the product's source, made while it is imported.

Each does harm that nothing else in Muster makes good. Much else is missing from this list for that reason: a job that
*stop* overlooks is found by its check, by *attempt* after the creation, and by *react* at its next event.

`python -m tests.simulation defects` puts back one after the other, each in a process of its own, and shows after how
many schedules which invariant broke.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

from tests.support.source_patch import ROOT, replaced_once


class Defect(NamedTuple):
    """`old` stands once in the file, and is replaced by `new`."""

    name: str
    file: str
    old: str
    new: str

    def applied(self) -> str:
        """The file's text with the defect.

        Raises:
            PatchError: the text that it replaces does not stand in the file exactly once.
        """
        return replaced_once((ROOT / self.file).read_text(encoding="utf-8"), self.old, self.new, self.file)


DEFECTS = (
    Defect(
        "a rule that says stop stops a run only without its quorum",
        "muster/control/outcome.py",
        "    if not decided.stops_run and can_do_without(",
        "    if can_do_without(",
    ),
    Defect(
        "a rule that says stop stops a whole sweep",
        "muster/control/decide.py",
        'update={"stops_run": not spec.sweep}',
        'update={"stops_run": True}',
    ),
    Defect(
        "a run that a rule has stopped is continued",
        "muster/contract/run/continuation.py",
        " or any(_stopped_the_run(plan.spec, one) for one in result.replicas):",
        ":",
    ),
    Defect(
        "restarts by rules spend nothing",
        "muster/control/decide.py",
        "    spent = sum(_spends_the_same(attempt, current) for attempt in attempts[:-1])\n",
        "    spent = 0 if rule else sum(_spends_the_same(attempt, current) for attempt in attempts[:-1])\n",
    ),
    Defect(
        "a deadline stops nothing",
        "muster/control/timers.py",
        "    raise_fence_and_stop(run, fence, budget)\n    return Fired.STOPPED\n",
        "    return Fired.STOPPED\n",
    ),
    Defect(
        "a job that was stopped counts as a success",
        "muster/control/settle.py",
        "    if attempt.status == JobStatus.COMPLETED:\n        return ReplicaOutcome.SUCCEEDED\n",
        "    if attempt.status in {JobStatus.COMPLETED, JobStatus.STOPPED}:\n        return ReplicaOutcome.SUCCEEDED\n",
    ),
    Defect(
        "a refusal is believed although the job may exist",
        "muster/control/attempt.py",
        "return _adopt(replica, current, job) if job else _not_created",
        "return _not_created",
    ),
    Defect(
        "a re-arm does not store its token",
        "muster/control/attempt.py",
        'return record.model_copy(update={**request.waiting._asdict(), "armed_at": request.armed_at})',
        "return None",
    ),
    Defect(
        "an older call replaces the token of a newer one",
        "muster/control/attempt.py",
        "if repeated and record.decision is None and request.armed_at >= record.armed_at:",
        "if repeated and record.decision is None:",
    ),
    Defect(
        "a call for a job that exists does not adopt it",
        "muster/control/attempt.py",
        "    if job.end is not None:\n        return seen\n",
        "",
    ),
    Defect(
        "react ends the current attempt with an event of another",
        "muster/control/react.py",
        "if known is None or (known.was_created and known is not seen.record.current):",
        "known = seen.record.current\n    if known is None:",
    ),
    Defect(
        "a late job of a refused launch is left alone",
        "muster/control/react.py",
        "        replica.jobs.stop(refused.job)\n",
        "",
    ),
    Defect(
        "a repeated event does not complete the token",
        "muster/control/outcome.py",
        "        replica.write_entry(Updated(seen.record, written=False))\n"
        "        return announce_end(plane, replica, seen.record)\n",
        "        return None\n",
    ),
    Defect(
        "a lost replica leaves no mark",
        "muster/control/outcome.py",
        "    if decided.lost:\n",
        "    if False:\n",
    ),
    Defect(
        "a replica has one rerun more than its budget",
        "muster/control/decide.py",
        "if spent >= budget.max_reruns or",
        "if spent > budget.max_reruns or",
    ),
    Defect(
        "the sweep completes no run",
        "muster/control/sweep.py",
        "    settled = _complete(plane, missed, budget, errors)\n",
        "    settled = ()\n",
    ),
    Defect(
        "a cancel leaves the fence that stood before",
        "muster/control/documents.py",
        "                after = before.cancelled(fence)\n",
        "                after = before\n",
    ),
    Defect(
        "records are written without compare-and-swap",
        "muster/control/aws/store.py",
        "Body=body, IfMatch=etag, ContentType=content_type",
        "Body=body, ContentType=content_type",
    ),
    Defect(
        "the roll-up misses the ends of attempts",
        "muster/control/outcome.py",
        "    _write_entry(replica, updated)\n    if record",
        "    if record",
    ),
    Defect(
        "stop has no patience",
        "muster/control/clear_up.py",
        "stopping = plane.allow(TimeBudget.of(budget.remaining * _SHARE_FOR_STOPPING))",
        "stopping = TimeBudget.of(budget.remaining * _SHARE_FOR_STOPPING)",
    ),
    Defect(
        "a settlement is not tried again",
        "statemachine/run.asl.json",
        """      "OutputPath": "$.Payload",
      "TimeoutSeconds": 900,
      "Retry": [
        {
          "ErrorEquals": ["States.ALL"],
""",
        """      "OutputPath": "$.Payload",
      "TimeoutSeconds": 900,
      "Retry": [
        {
          "ErrorEquals": ["Nothing"],
""",
    ),
    Defect(
        "a run is continued once more than its policy allows",
        "muster/contract/run/continuation.py",
        "generation >= policy.max",
        "generation > policy.max",
    ),
    Defect(
        "a run leaves the queue without telling those behind it",
        "muster/control/admission.py",
        "        self._admit(self._without_settled(runs))\n",
        "",
    ),
    Defect(
        "a run is admitted although the cap is used up",
        "muster/contract/run/run_queue.py",
        "blocked = used > 0 and used + queued.replicas > cap",
        "blocked = used > cap",
    ),
    Defect(
        "a continuation evades its run's deadline",
        "muster/control/rerun_policy.py",
        "fence.is_cancellation or fence.cause.is_limit",
        "fence.is_cancellation",
    ),
    Defect(
        "the end of a stopped job is its user's",
        "muster/control/outcome.py",
        '        ended = ended.model_copy(update={"failure_class": FailureClass.STOPPED_BY_MUSTER})\n',
        "        pass\n",
    ),
    Defect(
        "a token that is gone is an error",
        "muster/control/aws/task_tokens.py",
        '_GONE = {"TaskTimedOut", "TaskDoesNotExist", "InvalidToken"}',
        "_GONE = set()",
    ),
    Defect(
        "documents of the next version are refused",
        "muster/contract/document.py",
        'model_config = ConfigDict(extra="allow")',
        "pass",
    ),
    Defect(
        "a wait that times out ends the run",
        "statemachine/run.asl.json",
        """              {
                "ErrorEquals": ["States.Timeout"],
                "Output": "{% $states.input %}",
                "Next": "Launch the job and wait for its end"
              },
""",
        "",
    ),
    Defect(
        "a launch is tried for minutes, not for hours",
        "statemachine/run.asl.json",
        """                "MaxAttempts": 0
              },
              {
                "ErrorEquals": [
                  "Muster.Unavailable",
                  "TokenNotSentError",
                  "Lambda.ServiceException",
                  "Lambda.AWSLambdaException",
                  "Lambda.SdkClientException",
                  "Lambda.TooManyRequestsException",
                  "Lambda.ClientExecutionTimeoutException",
                  "Lambda.Unknown"
                ],
                "IntervalSeconds": 2,
                "BackoffRate": 2,
                "MaxAttempts": 60,
                "MaxDelaySeconds": 300,
                "JitterStrategy": "FULL"
              },
              {
                "ErrorEquals": ["States.ALL"],
                "IntervalSeconds": 2,
                "BackoffRate": 2,
                "MaxAttempts": 5,
                "MaxDelaySeconds": 60,
                "JitterStrategy": "FULL"
              }
            ],
            "Catch": [
              {
                "ErrorEquals": ["States.Timeout"],
                "Output": "{% $states.input %}",
""",
        """                "MaxAttempts": 0
              },
              {
                "ErrorEquals": ["States.ALL"],
                "IntervalSeconds": 2,
                "BackoffRate": 2,
                "MaxAttempts": 5,
                "MaxDelaySeconds": 60,
                "JitterStrategy": "FULL"
              }
            ],
            "Catch": [
              {
                "ErrorEquals": ["States.Timeout"],
                "Output": "{% $states.input %}",
""",
    ),
    Defect(
        "the sweep takes new jobs for orphans",
        "muster/contract/run/orphans.py",
        "job.name.run not in live_runs and (now - job.created_at).total_seconds() >= young_seconds",
        "job.name.run not in live_runs",
    ),
    Defect(
        "a job that a person has deleted from a cluster is created again",
        "muster/control/attempt.py",
        "        return replica.jobs.vanished(current.job) or job\n",
        "        return job\n",
    ),
    Defect(
        "the pods of a run keep their rights",
        "muster/control/cluster_rights.py",
        "    identities.remove(*place, run, budget)\n",
        "",
    ),
    Defect(
        "an end of a job on a cluster that nothing reports is not found by the re-arm",
        "muster/control/kubernetes/cluster_jobs.py",
        "        return None if document is None else self._job(document, job_state(document))\n\n    def explained",
        "        found = None if document is None else self._job(document, job_state(document))\n"
        "        return None if found is None or found.end is not None else found\n\n    def explained",
    ),
)

active: dict[str, str] = {}
"""The texts of the files that have a defect in this process, by their paths."""


class Hunted(NamedTuple):
    """After how many schedules a defect was found, and by what; `invariant` is None where it was not."""

    schedules: int
    invariant: str | None
    what: str


def hunted(name: str, schedules: int) -> Hunted:
    """Explore with the defect, in a process of its own, until an invariant breaks."""
    command = [sys.executable, "-m", "tests.simulation.hunt", name, str(schedules)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return Hunted(**json.loads(done.stdout.splitlines()[-1]))


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        return compile(active[str(Path(self.path).relative_to(ROOT))], self.path, "exec")


class _Finder:
    """Finds the modules that have a defect, before anything else does."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or not spec.origin.startswith(f"{ROOT}/"):
            return None
        if str(Path(spec.origin).relative_to(ROOT)) in active:
            spec.loader = _Loader(name, spec.origin)
            return spec
        return None


def put_in(name: str) -> None:
    """Put a defect into this process, in which nothing of the product has been imported yet.

    Raises:
        LookupError: there is no such defect, or the product has been imported.
        PatchError: its text is not there.
    """
    defect = next((one for one in DEFECTS if one.name == name), None)
    if defect is None:
        raise LookupError(name)
    imported = [
        module for module in sys.modules if module.startswith(("muster.control", "muster.contract", "muster.lambdas"))
    ]
    if imported:
        message = f"imported already: {imported}"
        raise LookupError(message)
    active[defect.file] = defect.applied()
    sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
