"""The client's errors. Each message is one line: what was found, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from errno import ENOSPC
from typing import Self

from muster.contract.errors import MusterError


class ClientError(MusterError, RuntimeError):
    """Root of the client's errors."""


class InputError(ClientError):
    """Root of the errors that a different input would avoid."""


def os_reason(error: OSError) -> str:
    """The operating system's reason, as part of a sentence."""
    return (error.strerror or str(error)).lower()


class UnknownRunError(InputError):
    """No execution has the run's name."""

    def __init__(self, run: str, stack: str, near: str | None = None) -> None:
        self.run, self.stack = run, stack
        hint = "" if near is None else f" Did you mean {near}?"
        super().__init__(
            f"The stack {stack} has no run named {run!r}.{hint} `muster list` shows its runs; a run stays visible "
            "for 90 days after it ends."
        )


class UnknownReplicaError(InputError):
    """The run has no such replica, or its replicas have had no such attempt."""

    @classmethod
    def of_ranks(cls, run: str, ranks: Sequence[int], replicas: int) -> Self:
        """`ranks` are not among those of a run with so many replicas."""
        from muster.contract.training.ranks import show_ranks  # noqa: PLC0415 - of a message alone

        named = f"replica {ranks[0]}" if len(ranks) == 1 else f"replicas {show_ranks(ranks)}"
        has = "only replica 0" if replicas == 1 else f"the replicas 0 to {replicas - 1:,}"
        return cls(f"The run {run} has no {named}: it has {has}.")

    @classmethod
    def of_attempt(cls, run: str, attempt: int, had: Mapping[int, int]) -> Self:
        """`had` is the latest attempt of each replica that was asked for; 0: it has not been launched."""
        rank, latest = max(had.items(), key=lambda item: item[1], default=(0, 0))
        whose = f"replica {rank}" if len(had) == 1 else "no replica that was asked for"
        if latest == 0:
            found = "has not been launched yet" if len(had) == 1 else "has been launched yet"
        else:
            count = "1 attempt" if latest == 1 else f"{latest} attempts"
            found = f"has had {count}" if len(had) == 1 else f"has had more than {count}"
        return cls(f"The run {run} has no attempt {attempt} to show: {whose} {found}.")


class UnknownDeadLetterError(InputError):
    """The dead-letter queue holds no such letter, or another reader has it."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__(
            f"No dead letter has the id {', '.join(ids)}. `muster deadletters list` shows them; one that another "
            "command is reading is hidden for up to five minutes."
        )


class UnfinishedRunError(InputError):
    """The run has not ended, so it has no result yet."""

    def __init__(self, run: str) -> None:
        super().__init__(f"The run {run} has no result yet: watch it with `muster status {run} --watch`.")


class RunNotEndedError(InputError):
    """Only a run that has ended can be continued."""

    def __init__(self, run: str, *, stopping: bool = False) -> None:
        if stopping:
            message = f"The run {run} is being stopped: wait until `muster status {run} --watch` ends, and repeat this."
        else:
            message = f"The run {run} has not ended: wait until it ends, or cancel it with `muster cancel {run}`."
        super().__init__(message)


class RunContinuedError(InputError):
    """Another run already continues the run."""

    def __init__(self, run: str, continued_by: str) -> None:
        super().__init__(
            f"The run {run} is already continued by {continued_by}. Once that run has ended, continue it: "
            f"`muster continue {continued_by}`."
        )


class NoResultError(ClientError):
    """The run ended without a settlement, most often because its spec was refused."""

    def __init__(self, run: str, reason: str) -> None:
        super().__init__(f"The run {run} ended without a result: {reason}")


class ModelPendingError(InputError):
    """The run has not ended, so its model is not written yet."""

    def __init__(self, run: str) -> None:
        super().__init__(
            f"The run {run} has not ended: its model is written when the last replicas finish. "
            f"Watch it with `muster status {run} --watch`."
        )


class NoJobError(ClientError):
    """A replica has no training job that could be stopped."""

    def __init__(self, run: str, rank: int, seconds: float) -> None:
        super().__init__(
            f"Replica {rank} of the run {run} had no running training job for {seconds:g} s: its next attempt waits, "
            f"or is being launched. Try again once `muster status {run}` shows its job, or stop the whole run: "
            f"`muster cancel {run}`."
        )


class ScaleError(InputError):
    """The run cannot have another number of replicas, or not this one. Nothing changed."""

    def __init__(self, run: str, reason: str) -> None:
        super().__init__(f"The run {run} was not scaled: {reason.rstrip('.')}.")


class ScalePendingError(ClientError):
    """Another number of replicas was asked for, and the control plane has not answered yet."""

    def __init__(self, run: str, replicas: int, seconds: float) -> None:
        super().__init__(
            f"{replicas:,} replicas were asked for, and the run {run} has not been scaled within {seconds:g} s. "
            f"`muster status {run}` shows whether it is later. Asking again is safe."
        )


class ClusterReplicaError(ClientError):
    """A job on a cluster cannot be stopped by a client, which has no rights in Kubernetes."""

    def __init__(self, run: str, rank: int, job: str, namespace: str) -> None:
        super().__init__(
            f"Replica {rank} of {run} is on a cluster, where a client has no rights: stop its job with `kubectl delete "
            f"hyperpodpytorchjob {job} --namespace {namespace}`, or the whole run with `muster cancel {run}`."
        )


class PlacedReplicaError(ClientError):
    """A job in another place cannot be stopped by a client, whose rights are those of home."""

    def __init__(self, run: str, rank: int, place: str) -> None:
        super().__init__(
            f"Replica {rank} of {run} is in {place}, where this client has no rights: stop its job in the console of "
            f"that region and account, or the whole run with `muster cancel {run}`."
        )


class NoClusterLogsError(ClientError):
    """A cluster ships no lines of pods to CloudWatch Logs."""

    def __init__(self, run: str, cluster: str, namespace: str) -> None:
        super().__init__(
            f"CloudWatch Logs has no lines of {run} from the cluster {cluster}, whose pods have trained: it has no log "
            f"agent that ships them. `kubectl logs --namespace {namespace} --selector "
            f"muster/run={run} --prefix --tail=-1` reads them in the cluster while its pods exist."
        )


class NoModelError(ClientError):
    """The run has ended without a model."""

    def __init__(self, run: str, reason: str) -> None:
        super().__init__(f"The run {run} has no model: {reason.rstrip('.')}.")


class DamagedModelError(ClientError):
    """The model in the bucket is not the one of the run's result."""

    def __init__(self, run: str, detail: str) -> None:
        super().__init__(f"The model of the run {run} has changed in the bucket or is damaged: {detail}.")


class ModelFolderError(InputError):
    """The folder for a model cannot be used."""

    def __init__(self, folder: str, detail: str) -> None:
        super().__init__(
            f"The model cannot be written to {folder}: {detail}. Name another folder with --out, or remove what is "
            "there. Nothing was fetched."
        )


class ModelFileError(ClientError):
    """A file of a model cannot be written."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(
            f"{path} cannot be written: {detail}. What was fetched stays: repeat the command once this is mended."
        )


class NoPlanError(ClientError):
    """The run has no plan, so it has no page."""

    def __init__(self, run: str, reason: str) -> None:
        if reason:
            message = f"The run {run} has no plan to show: {reason.rstrip('.')}."
        else:
            message = f"The run {run} has just started and has no plan yet. Try again in a few seconds."
        super().__init__(message)


class ReportFileError(InputError):
    """The file for a page cannot be written."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"The page cannot be written to {path}: {detail}. Name another file with --out.")


class PortError(InputError):
    """The port for a live page is not free."""

    def __init__(self, port: int, detail: str) -> None:
        super().__init__(
            f"The page cannot be served on port {port}: {detail}. Choose another with --port, or "
            "leave --port out to use any free port."
        )


class SpecFileError(InputError):
    """The file with the spec cannot be read."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(
            f"The spec {path} cannot be read: {detail}. Name a YAML or JSON file, or - for standard input."
        )


class RecipeFileError(InputError):
    """The file with a recipe cannot be read."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(
            f"The recipe {path} cannot be read: {detail}. Name a YAML file, an s3:// URI, a spec, or with --checkout a "
            "path in it."
        )


class RecipePlaceError(InputError):
    """There are no recipes to list at a place."""

    def __init__(self, statement: str, remedy: str) -> None:
        super().__init__(f"No recipes can be listed: {statement}; {remedy}.")


class RecipeWriteError(InputError):
    """The file for a resolved recipe cannot be written."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"The recipe cannot be written to {path}: {detail}. Name another file with --out.")


class SpecWriteError(InputError):
    """A file that `muster init` makes cannot be written."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path} cannot be written: {detail}. Name another folder, or - to print the spec.")


class FilesExistError(InputError):
    """Files that were to be written exist already."""

    def __init__(self, paths: Sequence[str]) -> None:
        found = f"{paths[0]} already exists" if len(paths) == 1 else f"{', '.join(paths)} already exist"
        super().__init__(f"{found}; nothing was written. Name another folder, or - to print the spec.")


class FileTroubleError(InputError):
    """A file or folder that a command needs cannot be used."""

    @classmethod
    def of(cls, error: OSError) -> Self:
        """What the operating system has refused."""
        if error.errno == ENOSPC:
            place = "" if error.filename is None else f" of {error.filename}"
            return cls(f"The disk{place} is full: make room, and repeat the command.")
        name = "A file or a connection" if error.filename is None else error.filename
        return cls(f"{name} cannot be used: {os_reason(error)}. Name another place, or change who may use this one.")


class SameRunError(InputError):
    """A run was to be compared with itself."""

    def __init__(self, run: str) -> None:
        super().__init__(f"{run} cannot be compared with itself: name two runs. `muster list` shows them.")


class OptionError(InputError):
    """An option has a value that cannot be used."""

    def __init__(self, found: str, remedy: str, option: str) -> None:
        super().__init__(f"{option}: found {found!r}; {remedy}.")


class UsageError(InputError):
    """The command line cannot be used."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem.rstrip('.')}. See --help for the options.")


class WaitTimeoutError(ClientError):
    """The run did not end within the time given to `wait`; it is still running."""

    def __init__(self, run: str, seconds: float) -> None:
        super().__init__(
            f"The run {run} did not end within {seconds:g} s and is still running. Wait longer, or cancel it with "
            f"`muster cancel {run}`."
        )


class StackNotFoundError(ClientError):
    """There is no such stack in this account and region."""

    def __init__(self, stack: str, region: str) -> None:
        super().__init__(
            f"There is no stack named {stack} in {region}: deploy it with `muster deploy`, "
            "or select another with --stack, --region or --profile."
        )


class SeveralStacksError(InputError):
    """No stack is named, none has the default name, and several could be meant."""

    def __init__(self, stacks: Sequence[str], region: str) -> None:
        super().__init__(
            f"There are several stacks of Muster in {region}: {', '.join(stacks)}. Select one with --stack, or for "
            "this shell with MUSTER_STACK."
        )


class ForeignStackError(ClientError):
    """The stack exists but is not a Muster stack."""

    def __init__(self, stack: str, missing: str) -> None:
        super().__init__(
            f"The stack {stack} has no output {missing}: it is not a Muster stack, or its deployment failed. "
            "Deploy it again with `muster deploy`, or name another with --stack."
        )


class CredentialsError(ClientError):
    """There are no credentials, or they are not accepted."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"No usable AWS credentials: {detail.rstrip('.')}. Log in (`aws sso login`), choose a profile "
            'with --profile, or point this shell at the embedded cloud: eval "$(muster local env)".'
        )


class RegionError(ClientError):
    """No region is set."""

    def __init__(self) -> None:
        super().__init__(
            "No AWS region is set: pass --region, set AWS_REGION, name one in your profile, or point this shell at the "
            'embedded cloud: eval "$(muster local env)".'
        )


OUTAGE_SECONDS = 600.0
"""A run lasts days; a laptop's network may fail meanwhile. Waiting and following survive an outage of this length."""


class OutageError(ClientError):
    """Root of the temporary errors: waiting and following retry after them."""


class UnreachableError(OutageError):
    """Nothing answers at the endpoint."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"{detail.rstrip('.')}. If this is the embedded cloud, start it with `muster local up` "
            'and point this shell at it: eval "$(muster local env)"; otherwise check the region, the network and '
            "AWS_ENDPOINT_URL."
        )


class BusyError(OutageError):
    """The service throttled the call or failed, after several tries."""

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(
            f"AWS throttled the call or is unavailable: {what}: {detail.rstrip('.')}. Try again in a few seconds."
        )


def may_have_started(run: str) -> str:
    """What a user can do after a launch whose answer is not known."""
    return (
        f"The run {run} may have started: `muster status {run}` shows it, and launching again with `--name {run}` "
        "starts it at most once."
    )


class UnansweredLaunchError(OutageError):
    """AWS has not said whether a run without a name of the caller's choice has started."""

    def __init__(self, run: str, reason: OutageError) -> None:
        self.run = run
        super().__init__(f"{reason} {may_have_started(run)}")


class DeniedError(ClientError):
    """The credentials are valid but do not allow the call."""

    def __init__(self, action: str, detail: str) -> None:
        super().__init__(
            f"These credentials are not allowed to call {action}: {detail.rstrip('.')}. Use a role that "
            "has this permission."
        )


class UnnamedStackError(DeniedError):
    """No stack is named, and the credentials do not allow to look for it."""

    def __init__(self, default: str, detail: str) -> None:
        ClientError.__init__(
            self,
            f"No stack is named, and these credentials may not ask for one named {default}: {detail.rstrip('.')}. Name "
            "the stack with --stack, or for this shell with MUSTER_STACK.",
        )


class RefusedError(ClientError):
    """AWS refused the request for another reason."""

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(f"The request to AWS failed: {what}: {detail.rstrip('.')}.")


class PickledSessionError(InputError):
    """A `Muster` that was given a session or clients cannot be pickled."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"{found} was created with a boto3 session or with clients, which cannot be pickled. "
            "Create it with a profile or a region instead."
        )
