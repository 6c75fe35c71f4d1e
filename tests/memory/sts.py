"""STS: sessions of a role. This AWS has no policies: it checks only that a session has not ended."""

import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.memory.calls import Operation, Parameters, refuse
from tests.memory.clock import VirtualClock

_DURATION_MAX = 3_600  # role chaining


@dataclass(frozen=True)
class _Session:
    role: str
    name: str
    tags: dict[str, str]
    ends_at: datetime


class Sts:
    """The sessions of one account, by their access keys."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self._sessions: dict[str, _Session] = {}
        self.creators: dict[str, dict[str, str]] = {}
        """The tags of the session in which each training job was created, by the job's name."""
        self.external_ids: dict[str, str] = {}
        """What the roles of other places ask for."""
        self.denied: set[str] = set()
        """Roles that do not exist any more, or whose account denies their sessions."""
        self.operations = {
            "AssumeRole": Operation(
                self._assume, {"RoleArn", "RoleSessionName", "DurationSeconds", "Tags", "ExternalId"}
            )
        }

    @property
    def names(self) -> list[str]:
        """The names of all sessions, in the order in which they were made."""
        return [session.name for session in self._sessions.values()]

    def in_session(self, access_key: str, name: str, operation: Operation, role: str | None = None) -> Operation:
        """`operation` as a client with the session's credentials calls it; `role`: whose sessions alone may."""

        def effect(parameters: Parameters) -> dict[str, Any]:
            session = self._sessions[access_key]
            if self._clock.now() >= session.ends_at:
                refuse("ExpiredTokenException", "The security token included in the request is expired")
            if role is not None and session.role != role:
                refuse("AccessDeniedException", f"a session of {session.role} may not call {name}", 403)
            if role is not None and name in {"CreateTrainingJob", "PutObject"} and not session.tags:
                refuse("AccessDeniedException", f"a session without tags may not call {name}", 403)
            answer = operation.effect(parameters)
            if name == "CreateTrainingJob":
                self.creators[parameters["TrainingJobName"]] = session.tags
            return answer

        return operation._replace(effect=effect)

    def _assume(self, parameters: Parameters) -> dict[str, Any]:
        seconds = parameters.get("DurationSeconds", _DURATION_MAX)
        if seconds > _DURATION_MAX:
            refuse(
                "ValidationError", "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed"
            )
        role = parameters["RoleArn"]
        if role in self.denied or parameters.get("ExternalId") != self.external_ids.get(role):
            refuse("AccessDenied", "not authorized to perform: sts:AssumeRole", 403)
        key = f"ASIA{next(self._numbers):016}"
        ends_at = self._clock.now() + timedelta(seconds=seconds)
        tags = {tag["Key"]: tag["Value"] for tag in parameters.get("Tags", [])}
        self._sessions[key] = _Session(role, parameters["RoleSessionName"], tags, ends_at)
        credentials = {"AccessKeyId": key, "SecretAccessKey": "secret", "SessionToken": "token", "Expiration": ends_at}
        return {"Credentials": credentials}
