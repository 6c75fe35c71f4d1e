"""Scheduled runs: the context key `schedules`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from muster.contract.errors import ConfigurationError, SpecError
from muster.contract.names import RUN_MAX
from muster.contract.run.execution_input import INBOX, execution_input
from muster.contract.spec.spec_reader import parse_spec

SPEC_MAX = 7_000  # EventBridge: the input of a target has at most 8,192 characters, the spec and what is around it
NAME_MAX = RUN_MAX - len("-202601010300")  # the runs of a schedule are named by it and by their time
_NAME = re.compile(r"[a-zA-Z0-9](-?[a-zA-Z0-9])*")
_EXPRESSION = re.compile(r"(cron|rate)\([^()]+\)")


@dataclass(frozen=True)
class ScheduledRun:
    """One schedule: EventBridge's `expression`, and the spec's text or the key of a spec in the inbox."""

    name: str
    expression: str
    spec: str | None = None
    spec_key: str | None = None


def read_schedules(value: object) -> tuple[ScheduledRun, ...]:
    """The schedules of a context: `{"nightly": {"at": "cron(0 3 * * ? *)", "spec": {…}}}`, as an object or as JSON.

    Raises:
        ConfigurationError: one cannot be used; in one line.
    """
    if value is None:
        return ()
    try:
        read = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = repr(value)[:60]
        raise _refused(place="the value", found=found, allowed="a mapping of names to schedules, as JSON") from None
    if not isinstance(read, Mapping):
        raise _refused(
            place="the value",
            found=repr(read)[:60],
            allowed='a mapping: {"nightly": {"at": "cron(0 3 * * ? *)", "spec_key": "inbox/…"}}',
        )
    return tuple(_schedule(name, item) for name, item in sorted(read.items()))


def _schedule(name: str, item: object) -> ScheduledRun:
    if len(name) > NAME_MAX or not _NAME.fullmatch(name):
        allowed = f"letters, digits and single hyphens, at most {NAME_MAX}"
        raise _refused(place="a schedule's name", found=repr(name), allowed=allowed)
    fields = dict(item) if isinstance(item, Mapping) else {}
    expression, spec, key = fields.pop("at", None), fields.pop("spec", None), fields.pop("spec_key", None)
    if fields or not isinstance(expression, str) or (spec is None) == (key is None):
        raise _refused(name, repr(item)[:60], "at, and one of spec and spec_key")
    if not _EXPRESSION.fullmatch(expression):
        raise _refused(name, repr(expression), "cron(minutes hours day month weekday year) or rate(1 day)")
    if key is not None and not (isinstance(key, str) and key.startswith(INBOX)):
        raise _refused(name, repr(key), f"a key that begins with {INBOX}")
    return ScheduledRun(name, expression, None if spec is None else _inline(name, spec), key)


def _inline(name: str, spec: object) -> str:
    try:
        text = execution_input(parse_spec(spec))
    except SpecError as error:
        problems = "; ".join(map(str, error.problems))
        message = f"The context key schedules: the spec of {name} is invalid: {problems}. Correct it in cdk.json."
        raise ConfigurationError(message) from None
    # EventBridge replaces <words> in a target's input as its own placeholders.
    text = text.replace("<", r"\u003c")
    if len(text) > SPEC_MAX:
        raise _refused(name, f"a spec of {len(text):,} characters", f"at most {SPEC_MAX:,}, or a spec_key in the inbox")
    return text


def _refused(place: str, found: str, allowed: str) -> ConfigurationError:
    message = f"The context key schedules: {place}: found {found}; allowed: {allowed}. Set it in cdk.json."
    return ConfigurationError(message)
