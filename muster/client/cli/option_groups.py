"""The arguments and options that commands share. Heavy imports wait inside the functions: Tab completion must be quick.

A command takes related options as one parameter, a dataclass whose fields are the options; `grouped` spreads them for
Typer, which knows only a function's own parameters.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Annotated, get_type_hints

import typer

from muster.client.client_errors import OptionError, UnknownRunError

if TYPE_CHECKING:
    from muster.client.aws.light_session import LightSession
    from muster.client.sdk import Muster

_COMPLETED_MAX = 100  # one call: ListExecutions returns at most 100


def _run_names(context: typer.Context, incomplete: str) -> list[str]:
    """The newest runs of the stack that the command line names."""
    options = context.params
    names = _newest(options.get("stack"), options.get("profile"), options.get("region"))
    return [name for name in names if name.startswith(incomplete)]


def _newest(stack: str | None, profile: str | None, region: str | None) -> list[str]:
    """The names of the newest runs of a stack; none when AWS does not answer quickly."""
    from botocore.config import Config  # noqa: PLC0415

    from muster.client.aws.cloud import Cloud  # noqa: PLC0415
    from muster.client.aws.connection import open_session  # noqa: PLC0415
    from muster.client.runs.run_list import newest_names  # noqa: PLC0415
    from muster.contract.errors import MusterError  # noqa: PLC0415

    quick = Config(connect_timeout=1, read_timeout=2, retries={"mode": "standard", "total_max_attempts": 1})
    try:
        return list(newest_names(Cloud(stack or None, open_session(profile, region or None), quick), _COMPLETED_MAX))
    except MusterError:
        return []


SpecPath = Annotated[str, typer.Argument(metavar="SPEC", help="A YAML or JSON file; - reads standard input.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="The run's name.", autocompletion=_run_names)]
FirstRun = Annotated[str, typer.Argument(metavar="A", help="A run's name.", autocompletion=_run_names)]
SecondRun = Annotated[str, typer.Argument(metavar="B", help="Another run's name.", autocompletion=_run_names)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Watch the run until it ends.")]


Profile = Annotated[str | None, typer.Option("--profile", help="AWS profile; default as the AWS CLI.")]
Region = Annotated[
    str | None, typer.Option("--region", envvar="AWS_REGION", help="AWS region; default as the AWS CLI.")
]


@dataclass(frozen=True)
class AccountOptions:
    """The account that a command asks where it needs no stack."""

    profile: Profile = None
    region: Region = None

    def session(self) -> LightSession:
        """A session there.

        Raises:
            CredentialsError: there is no such profile.
        """
        from muster.client.aws.connection import open_session  # noqa: PLC0415

        return open_session(self.profile, self.region or None)


@dataclass(frozen=True)
class StackOptions:
    """The stack that a command asks."""

    stack: Annotated[str | None, typer.Option("--stack", envvar="MUSTER_STACK", help="CloudFormation stack.")] = None
    profile: Profile = None
    region: Region = None

    def account(self) -> AccountOptions:
        """The account and the region of the stack."""
        return AccountOptions(self.profile, self.region)

    def muster(self) -> Muster:
        """The stack.

        Raises:
            CredentialsError: there is no such profile.
        """
        from muster.client.sdk import Muster  # noqa: PLC0415

        return Muster(self.stack or None, profile=self.profile, region=self.region or None)


def grouped(command: Callable[..., None], **offered: type) -> Callable[..., None]:
    """`command` with every parameter that is a dataclass replaced by keyword parameters, one for each field.

    `offered`: the dataclasses of parameters for which an option offers them.
    """
    hints = {**get_type_hints(command, include_extras=True), **offered}
    own: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = kind
        else:
            own.append(parameter.replace(annotation=kind))
    spread = [_keyword(kind, name) for kind in groups.values() for name in (field.name for field in fields(kind))]

    @wraps(command)
    def run(*arguments: object, **options: object) -> None:
        made = {
            name: kind(**{field.name: options.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        try:
            command(*arguments, **options, **made)
        except UnknownRunError as error:
            raise _with_nearest(error, options, made) from error

    parameters = [*own, *spread]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _with_nearest(error: UnknownRunError, options: dict[str, object], made: dict[str, object]) -> UnknownRunError:
    """The error with the name of the run that was meant, where one of the newest has a similar name."""
    named = next((one for one in made.values() if isinstance(one, StackOptions)), None)
    if named is None or error.run != options.get("run"):
        return error
    near = difflib.get_close_matches(error.run, _newest(named.stack, named.profile, named.region), n=1)
    return UnknownRunError(error.run, error.stack, near[0]) if near else error


def _keyword(group: type, name: str) -> inspect.Parameter:
    annotation = get_type_hints(group, include_extras=True)[name]
    default = getattr(group, name, inspect.Parameter.empty)  # a dataclass keeps the defaults of its fields
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def read_time(option: str, text: str) -> datetime:
    """The time that `10m` (ago) or an ISO time names; one without a zone is local.

    Raises:
        OptionError: it is neither.
    """
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        remedy = "write an age like 90s, 10m, 2h or 3d, or a time like 2026-11-21T09:30:00Z"
        raise OptionError(text, remedy, option) from None
