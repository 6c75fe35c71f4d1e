"""What can go wrong between a client and the cloud. One line each: what was found, what to do."""

from __future__ import annotations

from muster.contract.errors import MusterError


class ClientError(MusterError):
    """Root of the client's errors: the cloud, or the way to it, is in trouble."""


class InputError(ClientError):
    """Root of the errors that another input would avoid."""


def os_reason(error: OSError) -> str:
    """Why the operating system refused, as part of a sentence."""
    return (error.strerror or str(error)).lower()


class UnknownRunError(InputError):
    """No execution has the run's name."""

    def __init__(self, run: str, stack: str) -> None:
        super().__init__(
            f"The stack {stack} has no run named {run!r}: check the name. `muster list` shows the runs there are; "
            "they can be looked at for 90 days after their end."
        )


class UnfinishedRunError(InputError):
    """A result was asked for before there is one."""

    def __init__(self, run: str) -> None:
        super().__init__(f"The run {run} has no result yet: watch it with `muster status {run} --watch`.")


class GoingRunError(InputError):
    """A run was to go on that has not ended."""

    def __init__(self, run: str) -> None:
        super().__init__(f"The run {run} has not ended: cancel it with `muster cancel {run}`, or wait for its end.")


class ResumedRunError(InputError):
    """A run was to go on that goes on already."""

    def __init__(self, run: str, continued_by: str) -> None:
        super().__init__(f"The run {run} goes on as {continued_by} already: rerun that one once it has ended.")


class NoResultError(ClientError):
    """An execution that ended without a settlement, most often because its spec was refused."""

    def __init__(self, run: str, reason: str) -> None:
        super().__init__(f"The run {run} ended without a result: {reason}")


class NoPlanError(ClientError):
    """A page was asked for of a run that has no plan."""

    def __init__(self, run: str, reason: str) -> None:
        why = reason or "it has only just begun: try again in a moment"
        super().__init__(f"The run {run} has no plan to show: {why.rstrip('.')}.")


class ReportFileError(InputError):
    """The file for a page cannot be written."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"The page cannot be written to {path}: {detail}. Name another file with --out.")


class PortError(InputError):
    """The port for a live page is not free."""

    def __init__(self, port: int, detail: str) -> None:
        super().__init__(f"The page cannot be served on port {port}: {detail}. Name another with --port, or none.")


class SpecFileError(InputError):
    """The file with the spec cannot be read."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(
            f"The spec {path} cannot be read: {detail}. Name a YAML or JSON file, or - for standard input."
        )


class SpecWriteError(InputError):
    """The file for a spec cannot be written."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(
            f"The spec cannot be written to {path}: {detail}. Name another file, or - for standard output."
        )


class SpecExistsError(InputError):
    """A spec was to be written where there is a file."""

    def __init__(self, path: str) -> None:
        super().__init__(f"The file {path} exists and is left alone: name another, or - for standard output.")


class OptionError(InputError):
    """An option's value that cannot be read."""

    def __init__(self, found: str, remedy: str, option: str) -> None:
        super().__init__(f"{option}: found {found!r}; {remedy}.")


class UsageError(InputError):
    """A command line that cannot be read."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem.rstrip('.')}: --help says what there is.")


class WaitTimeoutError(ClientError):
    """The run did not end within the time given to `wait`; it goes on."""

    def __init__(self, run: str, seconds: float) -> None:
        super().__init__(f"The run {run} did not end within {seconds:g} s. It goes on; wait longer or cancel it.")


class StackNotFoundError(ClientError):
    """There is no such stack in this account and region."""

    def __init__(self, stack: str, region: str) -> None:
        super().__init__(
            f"There is no stack named {stack} in {region}: deploy it with `make deploy`, "
            "or name another with --stack, --region or --profile."
        )


class ForeignStackError(ClientError):
    """The stack exists but is none of ours."""

    def __init__(self, stack: str, missing: str) -> None:
        super().__init__(
            f"The stack {stack} has no output {missing}: it is not a Muster stack, or its deployment failed. "
            "Deploy it again with `make deploy`, or name another with --stack."
        )


class CredentialsError(ClientError):
    """There are no credentials, or they are not accepted."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"No usable AWS credentials: {detail.rstrip('.')}. Log in (`aws sso login`), name a profile with "
            '--profile, or turn this shell to the embedded cloud: eval "$(muster local env)".'
        )


class RegionError(ClientError):
    """Nothing says which region to use."""

    def __init__(self) -> None:
        super().__init__("No AWS region is set: pass --region, set AWS_REGION, or name one in your profile.")


OUTAGE_SECONDS = 600.0
"""A run lasts days and a laptop's network does not: who waits or follows goes on through an outage of this length."""


class OutageError(ClientError):
    """Root of the errors that pass: who waits for something else anyway asks again."""


class UnreachableError(OutageError):
    """Nothing answers at the endpoint."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"{detail.rstrip('.')}. If this is the embedded cloud, start it with `muster local up` "
            'and turn this shell to it: eval "$(muster local env)"; otherwise check the network and AWS_ENDPOINT_URL.'
        )


class BusyError(OutageError):
    """The service throttles, or is in trouble itself, beyond the patience of a call."""

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(f"AWS is busy: {what}: {detail.rstrip('.')}. Try again in a moment.")


class DeniedError(ClientError):
    """The credentials are good but may not do this."""

    def __init__(self, action: str, detail: str) -> None:
        super().__init__(f"These credentials may not call {action}: {detail.rstrip('.')}. Use a role that may.")


class RefusedError(ClientError):
    """Anything else that keeps a request from its answer."""

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(f"The request to AWS failed: {what}: {detail.rstrip('.')}.")
