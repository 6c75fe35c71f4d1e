"""What the document of a job on a cluster means, in SageMaker's words. Pure: the one place that reads its status.

AWS's guides show the conditions Created, PodsRunning, Running, Completed and Failed. The reasons of a failure are those
of the operator and its agent, of Kueue and of Kubernetes. A reason that is not known here is the program's own failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from muster.contract import timestamps
from muster.contract.answer_values import count_of, line_of, mapping_of, mappings_of
from muster.contract.aws.job_status import WAITING_FOR_QUOTA, JobStatus
from muster.contract.exits import FAILURE_CHARACTERS, ReplicaExit, failure_text, with_exit_word
from muster.contract.run.notices import EndNotice
from muster.contract.text import shortened
from muster.contract.timestamps import Timestamp

PENDING, TRAINING, RESTARTING, COMPLETED, FAILED = "Pending", "Training", "Restarting", "Completed", "Failed"
STOPPING, DELETED, CLUSTER_GONE = "Stopping", "Deleted", "ClusterGone"
NODE_FAULT, HEALTH_CHECK, PREEMPTED, IMAGE_ERROR = "NodeFault", "HealthCheck", "Preempted", "ImageError"
HANG, EVICTED = "Hang", "Evicted"
DEADLINE, STARTUP_DEADLINE = "DeadlineExceeded", "StartupDeadlineExceeded"

_MESSAGE_MAX = 200
_WORD_MAX = 64
# How a reason or a message begins or what it contains, in lower case, the most specific first. A log rule's name is the
# user's, so a reason that begins like one is read no further.
_BEGINNINGS = (
    ("loghang", HANG),
    ("logslow", HANG),
    ("logfault", HANG),
    ("jobhang", HANG),
    ("faultdeadline", NODE_FAULT),
    ("startupdeadline", STARTUP_DEADLINE),
)
_REASONS = (
    ("healthcheck", HEALTH_CHECK),
    ("preempt", PREEMPTED),
    ("nodefault", NODE_FAULT),
    ("nodelost", NODE_FAULT),
    ("nodenotready", NODE_FAULT),
    ("instancefault", NODE_FAULT),
    ("unhealthynode", NODE_FAULT),
    ("evict", EVICTED),
    ("errimage", IMAGE_ERROR),
    ("imagepull", IMAGE_ERROR),
    ("invalidimage", IMAGE_ERROR),
    ("imageinspect", IMAGE_ERROR),
    ("hang", HANG),
    ("deadlineexceeded", DEADLINE),
)
_IMAGE_WAITS = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
# When one pod of a job has failed the others are asked to stop: their ends do not say why.
_NO_CAUSES = {0, int(ReplicaExit.STOPPED)}
_EXIT_CODE = re.compile(r"exit(?:ed with)? code:? (-?\d{1,6})", re.IGNORECASE)


@dataclass(frozen=True)
class JobState:
    """A job on a cluster as its document shows it."""

    status: JobStatus
    secondary: str
    changed_at: Timestamp | None = None
    """Since when, as the cluster says."""
    reason: str = ""
    """Of a failure, in the form in which SageMaker writes one."""
    message: str = ""
    """The operator's words about what has not ended."""
    restarts: int = 0
    instances: int | None = None
    started_at: Timestamp | None = None


def job_state(document: Mapping[str, object], pods: Iterable[object] = (), notice: EndNotice | None = None) -> JobState:
    """The state of a HyperPodPyTorchJob.

    `pods` are its pods, where they were asked for. The words of `notice`, which anyone may have written who can write
    notices of the run, count only where the job has failed by itself.
    """
    metadata, status = mapping_of(document.get("metadata")), mapping_of(document.get("status"))
    conditions = _conditions(status)
    seen = JobState(
        JobStatus.IN_PROGRESS,
        PENDING,
        restarts=count_of(status.get("restartCount")) or 0,
        instances=_instances(document, status),
        started_at=_time(status.get("startTime")),
    )
    ended_at = _time(status.get("completionTime"))
    done = conditions.get("Completed") or conditions.get("Succeeded")
    if done is not None:
        return replace(seen, status=JobStatus.COMPLETED, secondary=COMPLETED, changed_at=ended_at or done.at)
    failed, deleted_at = conditions.get("Failed"), _time(metadata.get("deletionTimestamp"))
    # The operator may take the ends of the pods that a deletion brings for a failure.
    is_own_end = deleted_at is None or (failed is not None and failed.at is not None and failed.at < deleted_at)
    if failed is not None and is_own_end:
        secondary, reason = _failure(failed, pods, notice)
        ended = replace(seen, status=JobStatus.FAILED, secondary=secondary, changed_at=ended_at or failed.at)
        return replace(ended, reason=reason)
    if deleted_at is not None:
        stopping = replace(seen, status=JobStatus.STOPPING, secondary=STOPPING, changed_at=deleted_at)
        return replace(stopping, message="the job is being deleted")
    secondary, at, message = _phase(document, conditions, pods)
    return replace(seen, secondary=secondary, changed_at=at, message=message)


def all_run(pods: Iterable[object], instances: int | None) -> bool:
    """Whether all pods of a job run, which trains on so many instances, as far as the cluster knows."""
    found = mappings_of(list(pods))
    return len(found) >= (instances or 1) and all(_runs(pod) for pod in found)


def _runs(pod: Mapping[str, object]) -> bool:
    """Its node answers as well: of a node that is lost, Kubernetes says that its pods are not ready."""
    states = [mapping_of(one.get("state")) for one in _containers(pod)]
    ready = [one for one in mappings_of(mapping_of(pod.get("status")).get("conditions")) if one.get("type") == "Ready"]
    return (
        "deletionTimestamp" not in mapping_of(pod.get("metadata"))
        and bool(states)
        and all("running" in state for state in states)
        and all(one.get("status") == "True" for one in ready)
    )


@dataclass(frozen=True)
class _Condition:
    reason: str
    message: str
    at: Timestamp | None


def _conditions(status: Mapping[str, object]) -> dict[str, _Condition]:
    """The conditions that hold, by type."""
    found = {}
    for item in mappings_of(status.get("conditions")):
        if item.get("status") == "True":
            words = line_of(item.get("message"), FAILURE_CHARACTERS)
            at = _time(item.get("lastTransitionTime"))
            found[line_of(item.get("type"), _WORD_MAX)] = _Condition(line_of(item.get("reason"), _WORD_MAX), words, at)
    return found


def _phase(
    document: Mapping[str, object], conditions: Mapping[str, _Condition], pods: Iterable[object]
) -> tuple[str, Timestamp | None, str]:
    """The secondary status of a job that has not ended, since when, and why."""
    policy = mapping_of(mapping_of(document.get("spec")).get("runPolicy"))
    suspended = conditions.get("Suspended")
    if policy.get("suspend") is True or suspended is not None:
        words = suspended.message if suspended is not None else ""
        return WAITING_FOR_QUOTA, suspended.at if suspended else None, _shown(words) or "Kueue has not admitted the job"
    restarting = conditions.get("Restarting")
    if restarting is not None:
        return RESTARTING, restarting.at, _shown(restarting.message or restarting.reason)
    running = conditions.get("Running")
    if running is not None:
        return TRAINING, running.at, _shown(running.message)
    image = next((words for pod in mappings_of(list(pods)) for words in _image_waits(pod)), "")
    created = conditions.get("PodsRunning") or conditions.get("Created")
    return PENDING, created.at if created else None, _shown(image or (created.message if created else ""))


def _failure(failed: _Condition, pods: Iterable[object], notice: EndNotice | None) -> tuple[str, str]:
    """Secondary status and reason of a failure."""
    found = mappings_of(list(pods))
    secondary = _kind(failed)
    if secondary in {STARTUP_DEADLINE, None} and any(True for pod in found for _ in _image_waits(pod)):
        secondary = IMAGE_ERROR
    words = ": ".join(part for part in (failed.reason, failed.message) if part)
    if secondary is not None:
        return secondary, failure_text(words)
    said = notice if notice is not None and notice.exit_code != 0 else None
    if said is not None and said.exit_code not in _NO_CAUSES:
        return FAILED, _of_program(said.reason or words, said.exit_code)
    ends = [mapping_of(mapping_of(one.get("state")).get("terminated")) for pod in found for one in _containers(pod)]
    if any(end.get("reason") == "OOMKilled" for end in ends) or "oomkilled" in words.lower():
        text = with_exit_word(ReplicaExit.KILLED, f"OOMKilled: {words}")
        return FAILED, _of_program(text, int(ReplicaExit.KILLED))
    codes = [*(count_of(end.get("exitCode")) for end in ends), _written_code(words)]
    cause = next((code for code in codes if code is not None and code not in _NO_CAUSES), None)
    if cause is None and said is not None:
        return FAILED, _of_program(said.reason or words, said.exit_code)
    return FAILED, _of_program(words, cause or next((code for code in codes if code), None))


def _of_program(words: str, code: int | None) -> str:
    """A failure of the program as SageMaker words it, so that one reader (`read_exit`) serves both."""
    tail = "" if code is None else f", exit code: {code}"
    return f"AlgorithmError: {failure_text(words)[: FAILURE_CHARACTERS - len(tail) - 16]}{tail}"


def _kind(failed: _Condition) -> str | None:
    """The secondary status of a failure that is not the program's own; None where it is."""
    reason = _letters(failed.reason)
    for beginning, secondary in _BEGINNINGS:
        if reason.startswith(beginning):
            # Pods that cannot pull their image never start.
            image = secondary == STARTUP_DEADLINE and any(
                word in _letters(failed.message) for word, kind in _REASONS if kind == IMAGE_ERROR
            )
            return IMAGE_ERROR if image else secondary
    return next((secondary for word, secondary in _REASONS if word in reason), None)


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.casefold())


def _written_code(words: str) -> int | None:
    """The exit code in the agent's message. It shows a worker's code n as -256 n, and a signal s as -s."""
    found = _EXIT_CODE.search(words)
    if found is None:
        return None
    code = int(found[1])
    if code < 0:
        code = -code // 256 if code % 256 == 0 else 128 - code
    return code if 0 < code <= 255 else None


def _image_waits(pod: Mapping[str, object]) -> Iterable[str]:
    """Why the images of a pod cannot be pulled."""
    for container in _containers(pod):
        waiting = mapping_of(mapping_of(container.get("state")).get("waiting"))
        reason = line_of(waiting.get("reason"), _WORD_MAX)
        if reason in _IMAGE_WAITS:
            yield ": ".join(part for part in (reason, line_of(waiting.get("message"), FAILURE_CHARACTERS)) if part)


def _containers(pod: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    return mappings_of(mapping_of(pod.get("status")).get("containerStatuses"))


def _instances(document: Mapping[str, object], status: Mapping[str, object]) -> int | None:
    """How many pods train: what the operator scales to, otherwise what the job asks for."""
    targets = mapping_of(mapping_of(status.get("elasticScalingStatus")).get("targetReplicas"))
    counts = [count for value in targets.values() if (count := count_of(value)) is not None]
    if counts:
        return sum(counts)
    specs = mappings_of(mapping_of(document.get("spec")).get("replicaSpecs"))
    counts = [count for spec in specs if (count := count_of(spec.get("replicas"))) is not None]
    return sum(counts) if counts else None


def waits_for_image(words: str) -> bool:
    """Whether the message of a job that was pending says that its image could not be pulled."""
    return words.partition(":")[0] in _IMAGE_WAITS


def _shown(words: str) -> str:
    return shortened(words, _MESSAGE_MAX)


def _time(value: object) -> Timestamp | None:
    """A time as Kubernetes writes it (RFC 3339), in the spelling of documents."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if found.tzinfo is None else timestamps.text(found)
