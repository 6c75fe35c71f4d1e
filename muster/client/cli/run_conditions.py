"""Which runs `muster list` shows."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from muster.client.cli.option_groups import read_time
from muster.client.client_errors import OptionError

if TYPE_CHECKING:
    from muster.client.runs.run_list import RunFilter

# Step Functions: a name has 1 to 80 characters, and none of these nor a space.
_NAME_MAX = 80
_NOT_IN_NAMES = re.compile(r"[\s<>{}#%\\^|~`$&,;:/\"]")


@dataclass(frozen=True)
class RunConditions:
    """Which runs `muster list` shows."""

    state: Annotated[str | None, typer.Option("--state", help="Only running, succeeded, failed or stopped runs.")] = (
        None
    )
    since: Annotated[
        str | None, typer.Option("--since", help="Only runs that started since then: 90m, 2h, 3d or an ISO time.")
    ] = None
    until: Annotated[
        str | None, typer.Option("--until", help="Only runs that started before then, in the same form.")
    ] = None
    name: Annotated[
        str | None,
        typer.Option("--name", help="Only runs whose name begins with this, or matches a pattern such as 'gpt-*-x2'."),
    ] = None
    reason: Annotated[str | None, typer.Option("--reason", help="Only runs whose reason contains this text.")] = None
    failure: Annotated[
        str | None,
        typer.Option("--failure", help="Only runs with an attempt of this failure class: spot, user-code, ..."),
    ] = None

    def read(self) -> RunFilter:
        """The conditions as the SDK takes them.

        Raises:
            OptionError: one of them cannot be used.
        """
        # For Tab completion, which imports this module, these would take too long.
        from muster.client.runs.run_list import RunFilter  # noqa: PLC0415
        from muster.client.runs.run_state import RunState  # noqa: PLC0415
        from muster.contract.aws.failure_classes import FailureClass  # noqa: PLC0415

        # A list knows a run by its execution, which does not distinguish `stopping` from an end.
        states = [state for state in RunState if state is not RunState.STOPPING]
        since = None if self.since is None else read_time("--since", self.since)
        until = None if self.until is None else read_time("--until", self.until)
        if since is not None and until is not None and since >= until:
            raise OptionError(str(self.until), f"write a time after --since {self.since}", option="--until")
        return RunFilter(
            state=None if self.state is None else RunState(_member("--state", self.state, states)),
            since=since,
            until=until,
            name=None if self.name is None else _pattern(self.name),
            reason=None if self.reason is None else _words(self.reason),
            failure=None if self.failure is None else FailureClass(_member("--failure", self.failure, FailureClass)),
        )


def _member(option: str, text: str, allowed: Iterable[str]) -> str:
    known = [str(value) for value in allowed]
    if text in known:
        return text
    near = difflib.get_close_matches(text, known, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise OptionError(text, f"write one of {', '.join(known)}{hint}", option=option)


def _pattern(text: str) -> str:
    if not text or len(text) > _NAME_MAX or _NOT_IN_NAMES.search(text):
        remedy = (
            "write what the name begins with, or a pattern with *, ? or [abc], in at most "
            f"{_NAME_MAX} letters, digits and hyphens"
        )
        raise OptionError(text, remedy, option="--name")
    return text


def _words(text: str) -> str:
    if not text.strip():
        raise OptionError(text, "write words that the reason contains", option="--reason")
    return text
