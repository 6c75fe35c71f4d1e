"""Scheduled runs: the tables `schedules.NAME` of the settings."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.errors import Problem, SpecError, StatedProblem
from muster.contract.names import RUN_MAX, is_run_name
from muster.contract.run.execution_input import INBOX, scheduled_input
from muster.contract.training.values import Wording

# EventBridge: InputTransformer, InputTemplate: 8,192 characters. The spec stands in it as a string of JSON, with its
# quotes escaped, beside the schedule's name and time.
SPEC_MAX = 8_192 - 192
NAME_MAX = RUN_MAX - len("-202601010300")  # the runs of a schedule are named by it and by their time
# EventBridge: a rate's unit is singular for 1 alone; of a cron's days, one field is `?` and the other is not.
_DAYS = r"([^ ()?]+ +[^ ()]+ +\?|\? +[^ ()]+ +[^ ()?]+)"
_EXPRESSION = (
    r"^(rate\((1 +(minute|hour|day)|([2-9]|[1-9][0-9]+) +(minutes|hours|days))\)"
    rf"|cron\([^ ()]+ +[^ ()]+ +{_DAYS} +[^ ()]+\))$"
)


class ScheduledRun(BaseModel):
    """One schedule: its expression, and a spec or the key of a spec in the inbox."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    at: Annotated[
        str,
        Field(pattern=_EXPRESSION),
        Wording("cron(minutes hours day month weekday year), with ? for day or weekday, or rate(1 day), rate(2 days)"),
    ] = Field(description="when runs start, in UTC")
    spec: dict[str, Any] | None = Field(default=None, description="the spec; or set `spec_key`")
    spec_key: (
        Annotated[
            str, Field(max_length=1_024, pattern=rf"^{INBOX}[^\n\r]*$"), Wording(f"a key that begins with {INBOX}")
        ]
        | None
    ) = Field(default=None, description="key of a spec in the stack's bucket")

    @property
    def spec_text(self) -> str | None:
        """The spec as the input of an execution."""
        if self.spec is None:
            return None
        # EventBridge replaces <words> in a target's input as its own placeholders.
        return scheduled_input(self.spec).text.replace("<", r"\u003c")


def schedule_problems(name: str, schedule: ScheduledRun) -> list[Problem]:
    """What is wrong with a schedule, each of whose values is right by itself."""
    place = f"schedules.{name}"
    problems: list[Problem] = []
    if len(name) > NAME_MAX or not is_run_name(name):
        allowed = f"letters, digits and single hyphens, at most {NAME_MAX} characters"
        problems.append(Problem(place, repr(name), "choose another name", allowed))
    if (schedule.spec is None) == (schedule.spec_key is None):
        statement = "both spec and spec_key" if schedule.spec is not None else "neither spec nor spec_key"
        problems.append(StatedProblem(place, statement, "set one of them"))
    try:
        text = schedule.spec_text
    except SpecError as error:
        return problems + [
            type(problem)(f"{place}.spec.{problem.field}", problem.found, problem.remedy, problem.allowed)
            for problem in error.problems
        ]
    length = len(json.dumps(text or ""))
    if length > SPEC_MAX:
        allowed = f"at most {SPEC_MAX:,} characters, a limit of EventBridge"
        remedy = "put the spec into the inbox and name it with spec_key"
        problems.append(Problem(f"{place}.spec", f"{length:,} characters with its quotes escaped", remedy, allowed))
    return problems
