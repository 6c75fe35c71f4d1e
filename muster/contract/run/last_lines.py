"""The last lines that the program of a failed attempt has written: which are read, and how they are shown. Pure.

The lines come from the user's program, and may hold anything: they are bounded, and the values of the spec's
environment are replaced by their names.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt
from muster.contract.run.replica_variables import ENV_RESOLVED
from muster.contract.run.where import Where
from muster.contract.spec.secret_references import is_reference
from muster.contract.text import shortened

LINES = 40
"""How many lines are kept of one attempt."""
ATTEMPTS_READ = 8
"""Of how many attempts of a run lines are read, those that matter most first."""
LINE_MAX = 400
_SECRET_MIN = 6  # characters: a shorter value is found in too many lines that do not hold it
# Why a program itself can have failed, or have said something about it.
_WRITTEN = {
    FailureClass.USER_CODE,
    FailureClass.INVALID_REQUEST,
    FailureClass.INFRASTRUCTURE,
    FailureClass.TIMEOUT,
    FailureClass.UNKNOWN,
}
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Unread(NamedTuple):
    """An attempt whose lines are to be read."""

    rank: int
    attempt: int
    job: str
    where: Where | None = None


def is_explained_by_log(attempt: Attempt) -> bool:
    """Whether the log of the attempt can say why it did not succeed."""
    return attempt.has_proven_job and attempt.ended_at is not None and attempt.failure_class in _WRITTEN


def to_read(attempts: Mapping[int, Sequence[Attempt]], most: int = ATTEMPTS_READ) -> list[Unread]:
    """The attempts whose last lines are read, by rank: the latest failures of the replicas before earlier ones."""
    found: list[tuple[int, Unread]] = []
    for rank in sorted(attempts):
        failed = [one for one in attempts[rank] if is_explained_by_log(one)]
        for age, one in enumerate(reversed(failed)):
            if not one.last_lines:
                found.append((age, Unread(rank, one.attempt, one.job, one.where)))
    found.sort(key=lambda item: item[0])
    return [unread for _, unread in found[:most]]


def kept_lines(written: Iterable[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The last `LINES` of `written`, without control characters and the values of `environment`, each cut."""
    secrets = _secrets(environment)
    pieces = [piece for text in written for piece in (text.splitlines() or [""])]
    return tuple(shortened(_masked(_plain(piece), secrets), LINE_MAX) for piece in pieces[-LINES:])


def without_secrets(text: str, environment: Mapping[str, str]) -> str:
    """What a program has said of its end, without the values of `environment`, as in its last lines."""
    return _masked(text, _secrets(environment)) if text else text


def without_resolved(text: str, variables: Mapping[str, str]) -> str:
    """What a container writes for others, without the secrets that it has read into its environment, `variables`."""
    names = variables.get(ENV_RESOLVED, "").split(",")
    return without_secrets(text, {name: variables[name] for name in names if name in variables})


def _secrets(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """The texts that are hidden, each with the name that is shown for it; the longest first."""
    found = {
        (form, name)
        for name, value in environment.items()
        if not is_reference(value)
        for part in {value, *value.splitlines()}
        for form in _forms(part.strip())
        if len(form) >= _SECRET_MIN
    }
    return sorted(found, key=lambda item: (-len(item[0]), item))


def _forms(value: str) -> set[str]:
    """A value as programs write it: as it is, in the text of a dict or of JSON, in a URL, and in Base64."""
    if len(value) < _SECRET_MIN:
        return set()
    raw = value.encode("utf-8", "surrogatepass")
    quoted = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    in_urls = {quote(raw, safe=""), quote(raw), quote_plus(raw)}
    in_base64 = {encode(raw).decode().rstrip("=") for encode in (b64encode, urlsafe_b64encode)}
    return {_plain(form) for form in {value, *quoted, *in_urls, *in_base64}}


def _masked(line: str, secrets: Sequence[tuple[str, str]]) -> str:
    for value, name in secrets:
        line = line.replace(value, f"({name}, not shown)")
    return line


def _plain(line: str) -> str:
    """A line without colours; other characters that cannot be shown are spelled out."""
    bare = _COLOUR.sub("", line).replace("\t", "    ")
    return bare if bare.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in bare)
