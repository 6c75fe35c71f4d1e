"""The pod's notices: that its program starts, and how the pod ends. Bounded, because nothing may depend on them."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from muster.contract import timestamps
from muster.contract.errors import MusterError
from muster.contract.exits import ReplicaExit, failure_text, with_exit_word
from muster.contract.layout import s3_uri, split_s3_uri
from muster.contract.run.notices import EndNotice, Notice, NoticeKind
from muster.options.hyperpod.contract.pod_bootstrap import ENV_POD_NAME
from muster.options.hyperpod.contract.pod_work import ENV_POD_WORK
from muster.options.hyperpod.replica.objects import Objects
from muster.replica.replica_errors import InputError, StoppedError
from muster.replica.store.transport import StoreDeniedError

NOTICE_SECONDS = 10.0
"""How long a notice is tried."""
_PAUSE_SECONDS = 0.5
_JOB = re.compile(r"-r(\d{1,4})-a(\d{1,3})$")
# Kubernetes shows the content of this file with the container's state: terminationMessagePath's default.
_TERMINATION_LOG = "/dev/termination-log"
_ENV_TERMINATION_LOG = "MUSTER_LOCAL_TERMINATION_LOG"  # on the embedded cluster, whose pods share a machine

_EXITS = {
    StoppedError: ReplicaExit.STOPPED,
    InputError: ReplicaExit.BAD_INPUT,
    StoreDeniedError: ReplicaExit.BAD_INPUT,
}

log = logging.getLogger("muster.replica")


@dataclass(frozen=True)
class End:
    """How a pod ends, or a start of its program: the exit code, and the reason of a failure."""

    code: int
    reason: str = ""


def end_of(error: MusterError | OSError) -> End:
    """How it ends where Muster's own part has failed."""
    code = next((code for kind, code in _EXITS.items() if isinstance(error, kind)), ReplicaExit.RENDEZVOUS)
    return End(code, with_exit_word(code, str(error)))


@dataclass(frozen=True)
class Reporter:
    """Writes the notices of one pod.

    Attributes:
        place: where the run's notices lie.
        mark: of this start of the pod; its notices have it in their keys.
    """

    objects: Objects
    place: str
    run: str
    rank: int
    attempt: int
    pod: str
    mark: str
    began: float = field(default_factory=time.time)

    def started(self, mark: str) -> bool:
        """Say that the program starts; `mark` is that of its start. Returns whether it is written."""
        body = json.dumps({"version": 1, "pod": self.pod, "started_at": _text(time.time())}).encode()
        return self._put(self._uri(NoticeKind.START, f"{self.mark}-{mark[:8]}"), body)

    def ended(self, code: int, reason: str, suffix: str = "") -> bool:
        """Say how the pod ends; returns whether it is written. A `suffix` makes another notice of the same end."""
        notice = EndNotice(
            exit_code=code if 0 <= code <= 255 else 1,
            reason=failure_text(reason),
            started_at=_text(self.began),
            ended_at=_text(time.time()),
            pod=self.pod,
        )
        return self._put(self._uri(NoticeKind.END, self.mark + suffix), notice.to_json())

    def _uri(self, kind: NoticeKind, mark: str) -> str:
        bucket, _ = split_s3_uri(self.place)
        return s3_uri(bucket, Notice(self.run, kind, self.rank, self.attempt, mark).key)

    def _put(self, uri: str, body: bytes) -> bool:
        """PUT until it succeeds, or the time is over. A repeated PUT writes the same object."""
        over = time.monotonic() + NOTICE_SECONDS
        written = threading.Event()

        def put() -> None:
            while not written.is_set() and time.monotonic() < over:
                try:
                    self.objects.put(uri, body)
                except MusterError as error:
                    log.warning("event=notice-not-written uri=%s reason=%r", uri, str(error))
                    time.sleep(_PAUSE_SECONDS)
                else:
                    written.set()

        thread = threading.Thread(target=put, name="notice", daemon=True)
        thread.start()
        thread.join(NOTICE_SECONDS)
        return written.is_set()


def reporter_of(variables: Mapping[str, str], objects: Objects) -> Reporter | None:
    """The reporter of the pod with these variables; None where they do not say where its notices belong.

    What else is wrong with the pod's work is no hindrance: its end is reported all the same.
    """
    try:
        work = json.loads(variables.get(ENV_POD_WORK, ""))
        place, job = work["notices_uri"], _JOB.search(work["job"])
        run = split_s3_uri(place)[1].strip("/").split("/")[-1]
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    if job is None or not run:
        return None
    pod = variables.get(ENV_POD_NAME, "")
    number = pod.rsplit("-", 1)[-1]
    mark = f"{number if number.isdigit() else 0}-{int(time.time())}-{uuid.uuid4().hex[:8]}"
    return Reporter(objects, place, run, int(job[1]), int(job[2]), pod, mark)


def write_failure(base: Path, reason: str) -> None:
    """Write the reason to output/failure, as in the container of a training job; `base` stands for /opt/ml."""
    try:
        (base / "output").mkdir(parents=True, exist_ok=True)
        (base / "output" / "failure").write_text(failure_text(reason))
    except OSError as error:
        log.warning("event=failure-not-written reason=%r", str(error))


def write_termination_message(reason: str, variables: Mapping[str, str]) -> None:
    """Write the reason where Kubernetes reads it. Outside of a pod nothing is written."""
    path = Path(variables.get(_ENV_TERMINATION_LOG, _TERMINATION_LOG))
    try:
        if reason and (path.is_file() or _ENV_TERMINATION_LOG in variables):
            path.write_text(failure_text(reason))
    except OSError as error:
        log.warning("event=termination-message-not-written reason=%r", str(error))


def _text(seconds: float) -> timestamps.Timestamp:
    return timestamps.text(datetime.fromtimestamp(seconds, UTC))
