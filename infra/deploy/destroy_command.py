"""`muster destroy`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from muster.client.aws.connection import open_session
from muster.client.cli.option_groups import Json, grouped
from muster.client.cli.output import busy, print_either, print_lines, require_terminal
from muster.client.client_errors import ForeignStackError, InputError, StackNotFoundError
from muster.client.sdk import Muster
from muster.contract.aws.partitions import Locality
from muster.contract.errors import ConfigurationError, MusterError, SettingsError
from muster.infra.deploy.account import Account
from muster.infra.deploy.deploy_answers import Destruction as DestructionAnswer
from muster.infra.deploy.deploy_command import TargetOptions
from muster.infra.deploy.destruction import Destruction, Unfinished
from muster.infra.deploy.further_stacks import FurtherStacks, Home, further_stacks
from muster.infra.settings.stack_settings import DEFAULT_STACK, StackSettings, StackTable

_SETTLE_SECONDS = 1_800.0  # SageMaker gives a job two minutes; a run of thousands is stopped at SageMaker's rate
_POLL_SECONDS = 2.0
_LOOKS_MAX = 5  # how often runs that start meanwhile are stopped, too, before the command gives up


class RunsRunningError(InputError):
    """A stack with runs that have not ended is not deleted: nothing would stop their jobs any more."""

    def __init__(self, stack: str, runs: Sequence[str]) -> None:
        names = f"{', '.join(runs[:5])}{' and others' if len(runs) > 5 else ''}"
        super().__init__(
            f"{stack} is not deleted: {len(runs)} of its runs or training jobs have not ended ({names}). Wait until "
            "they end, or stop them with --stop-runs."
        )


class ProtectedStackError(InputError):
    """A stack with termination protection is not deleted: CloudFormation would refuse it in the end."""

    def __init__(self, stack: str, options: str) -> None:
        super().__init__(
            f"{stack} is not deleted: its termination protection is on. To turn it off: aws cloudformation "
            f"update-termination-protection --no-enable-termination-protection --stack-name {stack} {options}"
        )


class DataConfirmationError(InputError):
    """The data of a stack is deleted only under its bucket's name, and only if the stack made the bucket."""

    def __init__(self, found: str, bucket: str, *, made: bool) -> None:
        reason = (
            f"the bucket of the stack is {bucket}: write --delete-data {bucket}"
            if made
            else f"the stack did not make the bucket {bucket}: delete it yourself if nothing else needs it"
        )
        super().__init__(f"--delete-data: found {found!r}; {reason}. Nothing was deleted.")


class BucketLeftError(ConfigurationError):
    """The stack is deleted, and its bucket is not, or not all of it."""

    def __init__(self, bucket: str, reason: str, options: str) -> None:
        super().__init__(
            f"The stack is deleted, but its bucket {bucket} is not: {reason}. To delete the bucket with everything in "
            f"it: aws s3 rb s3://{bucket} --force {options}"
        )


@grouped
def destroy(
    stack: TargetOptions,
    *,
    stop_runs: Annotated[bool, typer.Option("--stop-runs", help="Stop the runs that have not ended first.")] = False,
    delete_data: Annotated[
        str | None,
        typer.Option("--delete-data", metavar="BUCKET", help="Delete the bucket and everything in it, too; its name."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    as_json: Json = False,
) -> None:
    """Delete the stack. Its bucket stays, with the results of all runs."""
    environment = stack.environment()
    account = Account(open_session(stack.profile, stack.region))
    name = stack.stack or DEFAULT_STACK
    with busy("reading the stack"):
        place = account.place()
        deployed = account.stack(name)
    if deployed is None:
        raise StackNotFoundError(name, place.region)
    for output in ("BucketName", "JobPrefix", "StateMachineArn"):
        if output not in deployed.outputs:
            raise ForeignStackError(name, output)
    if deployed.is_protected:
        raise ProtectedStackError(name, _cli_options(place, stack.profile))
    work = Destruction(account, deployed, place)
    # None of them is wanted any more.
    nothing = StackSettings(stack=StackTable(name=name))
    further = further_stacks(Home(account, place, deployed, nothing, environment, stack.profile))
    if delete_data is not None and (delete_data != work.bucket or not deployed.makes_its_bucket):
        raise DataConfirmationError(delete_data, work.bucket, made=deployed.makes_its_bucket)
    unfinished = work.unfinished()
    if unfinished.blocking and not stop_runs:
        raise RunsRunningError(name, unfinished.blocking)
    if not as_json:
        with busy("asking the places"):
            warnings = [line for one in further for line in one.warnings()]
        print_lines([*_announcement(work, unfinished, delete_data), *(f"WARNING: {line}" for line in warnings)])
    if not yes:
        _ask(name, as_json=as_json)
    stopped = list(unfinished.runs)
    stack_runs = Muster(name, profile=stack.profile, region=place.region)
    if unfinished.blocking:
        with busy("stopping the runs"):
            stop(work, stack_runs, unfinished)
    with busy("deleting the stack"), rules_if_it_stays(work):
        stopped += quieten(work, stack_runs if stop_runs else None)
        beside = remove_beside(work, further, delete_data=delete_data is not None)
        work.delete_stack()
    if delete_data is not None:
        with busy("deleting the bucket"):
            delete_bucket(work, stack.profile)
    kept = None if delete_data is not None else work.bucket
    answer = DestructionAnswer(
        stack=name,
        region=place.region,
        stopped_runs=tuple(stopped),
        resources=sum(work.kinds.values()),
        kept_bucket=kept,
        kept_beside=tuple(beside),
    )
    print_either(answer, _outcome(name, kept, beside), as_json=as_json)


def _announcement(work: Destruction, unfinished: Unfinished, delete_data: str | None) -> Iterator[str]:
    yield f"Stack {work.stack.name} in {work.place.region}, account {work.place.account}."
    kinds = ", ".join(f"{count} {kind.removeprefix('AWS::')}" for kind, count in sorted(work.kinds.items()))
    yield f"Deleted: {kinds}, and the timers of its runs"
    if unfinished.blocking:
        yield f"Stopped first: {', '.join(unfinished.blocking)}"
    if unfinished.foreign:
        yield f"Left alone: {', '.join(unfinished.foreign)}, training jobs that Muster did not create"
    if delete_data is not None:
        yield f"Deleted as well: the bucket {work.bucket} with everything in it"
    else:
        yield f"Stays: the bucket {work.bucket} with its policy and all results"
    if places := work.stack.settings.get("places"):
        kept = "" if delete_data is not None else "; a bucket stays where replicas have left outputs or checkpoints"
        yield f"Deleted as well: the stacks of the places {', '.join(sorted(places))}, with their buckets{kept}"
    yield "Stays: the training jobs' own records and logs, and the CDK's stack CDKToolkit with its bucket"


def _ask(name: str, *, as_json: bool) -> None:
    require_terminal("add --yes to delete the stack", as_json=as_json)
    if typer.prompt("Type the stack's name to delete it", default="", show_default=False) != name:
        print_lines(["Nothing was deleted."])
        raise typer.Exit(1)


def stop(work: Destruction, muster: Muster, unfinished: Unfinished) -> None:
    """Cancel the runs and wait until they are settled and their jobs have ended; stop the jobs that have no run.

    Raises:
        RunsRunningError: jobs have not ended in time; the stack is still there.
        ClientError: AWS cannot be reached or refuses.
    """
    for name in unfinished.runs:
        muster.run(name).cancel()
    for name in unfinished.runs:
        muster.run(name).wait(_SETTLE_SECONDS)
    deadline = time.monotonic() + _SETTLE_SECONDS
    asked: set[str] = set()
    while jobs := work.unfinished().jobs:
        for name in jobs:
            if name not in asked:
                work.stop_job(name)
                asked.add(name)
        if time.monotonic() > deadline:
            raise RunsRunningError(work.stack.name, jobs)
        time.sleep(_POLL_SECONDS)


@contextmanager
def rules_if_it_stays(work: Destruction) -> Iterator[None]:
    """Enable the stack's rules again where the block fails and the stack stays: without them its runs do not end."""
    try:
        yield
    except BaseException:
        if not work.is_being_deleted():
            work.enable_rules()
        raise


def quieten(work: Destruction, stopping: Muster | None) -> list[str]:
    """Let nothing start any more, look again, and delete the timers. A run may have started since the question.

    Such runs are stopped with `stopping`, which needs the rules, and returned.

    Raises:
        RunsRunningError: there are such runs and None is given.
        ClientError: AWS cannot be reached or refuses.
    """
    stopped: list[str] = []
    for _ in range(_LOOKS_MAX):
        work.disable_rules()
        found = work.unfinished()
        if not found.blocking:
            work.delete_timers()
            return stopped
        if stopping is None:
            break
        work.enable_rules()
        stop(work, stopping, found)
        stopped += found.runs
    raise RunsRunningError(work.stack.name, found.blocking)


def remove_beside(work: Destruction, further: Sequence[FurtherStacks], *, delete_data: bool) -> list[str]:
    """Delete the stacks of places before this one, which says where they are; the names of the buckets that stay.

    Raises:
        SettingsError: something runs there.
        ClientError: AWS cannot be reached or refuses.
    """
    if problems := [problem for one in further for problem in one.problems()]:
        name = f"The deletion of {work.stack.name}"
        raise SettingsError(name, problems)
    return [bucket for one in further for bucket in one.remove(delete_data=delete_data)]


def delete_bucket(work: Destruction, profile: str | None) -> None:
    """Delete the bucket. The stack is gone, so this command cannot be repeated.

    Raises:
        BucketLeftError: it was not deleted; the message has the command that does it.
    """
    try:
        work.delete_bucket()
    except (MusterError, KeyboardInterrupt) as error:
        reason = str(error) or "interrupted"
        raise BucketLeftError(work.bucket, reason, _cli_options(work.place, profile)) from error


def _cli_options(place: Locality, profile: str | None) -> str:
    """The options with which the AWS CLI asks the stack's account and region."""
    return f"--region {place.region}{'' if profile is None else f' --profile {profile}'}"


def _outcome(name: str, kept: str | None, beside: Sequence[str]) -> Iterator[str]:
    yield f"{name} is deleted."
    if kept is not None:
        yield f'To use the bucket again, write existing = "{kept}" under [bucket] in muster.toml and deploy.'
        yield f"To delete it: aws s3 rb s3://{kept} --force"
    yield from (f"The bucket {bucket} of a place stays with what replicas have written there." for bucket in beside)
