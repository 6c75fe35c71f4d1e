"""Muster: one model, N independent SageMaker training jobs, one S3 bucket.

    from muster import Muster

    run = Muster().launch({"replicas": 4, "trainer": "my.module:train"})
    run.wait()
    print(run.result().verdict)

This package is the public interface: every name in `__all__`. The names load on first use, so that `import muster` is
quick and a container needs only the packages of what it uses. Trainers written for PyTorch use `muster.torch` and
`muster.torchft`, those of frameworks `muster.huggingface` and `muster.lightning`; programs that resolve recipes use
`muster.recipes`.
"""

from __future__ import annotations

__version__ = "0.1.0"

# Type checkers read the name, not the value. Importing typing would take most of the time of `import muster`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from muster.client.client_errors import BusyError as BusyError
    from muster.client.client_errors import ClientError as ClientError
    from muster.client.client_errors import ClusterReplicaError as ClusterReplicaError
    from muster.client.client_errors import CredentialsError as CredentialsError
    from muster.client.client_errors import DamagedModelError as DamagedModelError
    from muster.client.client_errors import DeniedError as DeniedError
    from muster.client.client_errors import ForeignStackError as ForeignStackError
    from muster.client.client_errors import InputError as InputError
    from muster.client.client_errors import ModelFileError as ModelFileError
    from muster.client.client_errors import ModelFolderError as ModelFolderError
    from muster.client.client_errors import ModelPendingError as ModelPendingError
    from muster.client.client_errors import NoClusterLogsError as NoClusterLogsError
    from muster.client.client_errors import NoJobError as NoJobError
    from muster.client.client_errors import NoModelError as NoModelError
    from muster.client.client_errors import NoPlanError as NoPlanError
    from muster.client.client_errors import NoResultError as NoResultError
    from muster.client.client_errors import OptionError as OptionError
    from muster.client.client_errors import OutageError as OutageError
    from muster.client.client_errors import PickledSessionError as PickledSessionError
    from muster.client.client_errors import PlacedReplicaError as PlacedReplicaError
    from muster.client.client_errors import RefusedError as RefusedError
    from muster.client.client_errors import RegionError as RegionError
    from muster.client.client_errors import RunContinuedError as RunContinuedError
    from muster.client.client_errors import RunNotEndedError as RunNotEndedError
    from muster.client.client_errors import SameRunError as SameRunError
    from muster.client.client_errors import ScaleError as ScaleError
    from muster.client.client_errors import ScalePendingError as ScalePendingError
    from muster.client.client_errors import StackNotFoundError as StackNotFoundError
    from muster.client.client_errors import UnansweredLaunchError as UnansweredLaunchError
    from muster.client.client_errors import UnfinishedRunError as UnfinishedRunError
    from muster.client.client_errors import UnknownDeadLetterError as UnknownDeadLetterError
    from muster.client.client_errors import UnknownReplicaError as UnknownReplicaError
    from muster.client.client_errors import UnknownRunError as UnknownRunError
    from muster.client.client_errors import UnreachableError as UnreachableError
    from muster.client.client_errors import WaitTimeoutError as WaitTimeoutError
    from muster.client.launch.dry_run import ClusterPlace as ClusterPlace
    from muster.client.launch.dry_run import DryRun as DryRun
    from muster.client.launch.dry_run import RankGroup as RankGroup
    from muster.client.launch.dry_run import SourceArchive as SourceArchive
    from muster.client.launch.estimate import ClusterShare as ClusterShare
    from muster.client.launch.estimate import Cost as Cost
    from muster.client.launch.estimate import Quota as Quota
    from muster.client.launch.planned_places import PlaceQuota as PlaceQuota
    from muster.client.launch.planned_places import PlannedPlace as PlannedPlace
    from muster.client.launch.planned_places import PlannedPlaces as PlannedPlaces
    from muster.client.launch.planned_recipe import PlannedRecipe as PlannedRecipe
    from muster.client.launch.planned_recipe import RecipeSource as RecipeSource
    from muster.client.launch.planned_seats import PlannedSeats as PlannedSeats
    from muster.client.launch.planned_seats import SeatCost as SeatCost
    from muster.client.launch.planned_seats import SeatQuota as SeatQuota
    from muster.client.logs.log_lines import LogLine as LogLine
    from muster.client.runs.cancellation import Cancellation as Cancellation
    from muster.client.runs.dead_letter import DeadLetter as DeadLetter
    from muster.client.runs.dead_letter import GivenUpBy as GivenUpBy
    from muster.client.runs.dead_letters import DeadLetters as DeadLetters
    from muster.client.runs.dead_letters import Dropped as Dropped
    from muster.client.runs.dead_letters import Replay as Replay
    from muster.client.runs.event_log import EventKind as EventKind
    from muster.client.runs.event_log import EventLogEntry as EventLogEntry
    from muster.client.runs.failed_attempt import FailedAttempt as FailedAttempt
    from muster.client.runs.live_page import PageSource as PageSource
    from muster.client.runs.model_download import FetchedModel as FetchedModel
    from muster.client.runs.model_download import ModelDownload as ModelDownload
    from muster.client.runs.run_list import RunSummary as RunSummary
    from muster.client.runs.run_state import RunState as RunState
    from muster.client.runs.run_status import ReplicaState as ReplicaState
    from muster.client.runs.run_status import ReplicaStatus as ReplicaStatus
    from muster.client.runs.run_status import RunStatus as RunStatus
    from muster.client.runs.scaling import Scaled as Scaled
    from muster.client.sdk import Muster as Muster
    from muster.client.sdk import Run as Run
    from muster.contract.aws.failure_classes import FailureClass as FailureClass
    from muster.contract.aws.prices import PriceTable as PriceTable
    from muster.contract.backend import Backend as Backend
    from muster.contract.errors import DocumentError as DocumentError
    from muster.contract.errors import MusterError as MusterError
    from muster.contract.errors import NewerDocumentError as NewerDocumentError
    from muster.contract.errors import Problem as Problem
    from muster.contract.errors import RecipeError as RecipeError
    from muster.contract.errors import RunNameTakenError as RunNameTakenError
    from muster.contract.errors import SpecError as SpecError
    from muster.contract.run.attempt import Attempt as Attempt
    from muster.contract.run.attempt import Transition as Transition
    from muster.contract.run.cluster_job import ClusterJob as ClusterJob
    from muster.contract.run.ended_run import FailureCount as FailureCount
    from muster.contract.run.ended_run import Verdict as Verdict
    from muster.contract.run.finding import Finding as Finding
    from muster.contract.run.forecast import ExchangeSettings as ExchangeSettings
    from muster.contract.run.forecast import Forecast as Forecast
    from muster.contract.run.forecast import Phase as Phase
    from muster.contract.run.job_details import FinalMetric as FinalMetric
    from muster.contract.run.job_details import JobDetails as JobDetails
    from muster.contract.run.job_details import JobProgress as JobProgress
    from muster.contract.run.job_details import MlflowRun as MlflowRun
    from muster.contract.run.job_details import PoolState as PoolState
    from muster.contract.run.job_details import RuleVerdict as RuleVerdict
    from muster.contract.run.job_details import WarmPool as WarmPool
    from muster.contract.run.model import ModelKind as ModelKind
    from muster.contract.run.model import ModelResult as ModelResult
    from muster.contract.run.result import ReplicaOutcome as ReplicaOutcome
    from muster.contract.run.result import ReplicaResult as ReplicaResult
    from muster.contract.run.result import Result as Result
    from muster.contract.run.run_cost import SpotSaving as SpotSaving
    from muster.contract.run.seat_states import SeatChange as SeatChange
    from muster.contract.run.seat_states import SeatGroup as SeatGroup
    from muster.contract.run.seat_states import SeatState as SeatState
    from muster.contract.run.seat_states import SeatsView as SeatsView
    from muster.contract.run.trained_data import EpochShards as EpochShards
    from muster.contract.run.where import Where as Where
    from muster.contract.spec.elastic import Elastic as Elastic
    from muster.contract.spec.elastic import ScaleStep as ScaleStep
    from muster.contract.spec.recipe_reference import Origin as Origin
    from muster.contract.spec.recipe_reference import RunRecipe as RunRecipe
    from muster.contract.spec.spec import Spec as Spec
    from muster.contract.spec.watch_rules import Rule as Rule
    from muster.replica.algorithms.algorithm import Algorithm as Algorithm
    from muster.replica.context import Context as Context
    from muster.replica.context import Shards as Shards
    from muster.replica.frontends.array_diloco import DiLoCo as DiLoCo
    from muster.replica.model.final_model import FinalModel as FinalModel
    from muster.replica.replica_errors import AlgorithmError as AlgorithmError
    from muster.replica.replica_errors import DivergedError as DivergedError
    from muster.replica.replica_errors import FencedError as FencedError
    from muster.replica.replica_errors import ParametersError as ParametersError
    from muster.replica.replica_errors import RendezvousError as RendezvousError
    from muster.replica.replica_errors import RunEndedError as RunEndedError
    from muster.replica.replica_errors import StoppedError as StoppedError
    from muster.replica.replica_errors import TrainerError as TrainerError
    from muster.replica.replica_errors import WatchError as WatchError
    from muster.replica.rounds.exchange import RoundOutcome as RoundOutcome
    from muster.replica.statistics.metrics import Metrics as Metrics
    from muster.report.comparison import ComparedFigure as ComparedFigure
    from muster.report.comparison import ComparedMetric as ComparedMetric
    from muster.report.comparison import ComparedOutcome as ComparedOutcome
    from muster.report.comparison import Comparison as Comparison
    from muster.report.comparison import SpecDifference as SpecDifference
    from muster.report.page_model import Page as Page
    from muster.report.read_back import KeptInstances as KeptInstances
    from muster.report.time_split import TimeSplit as TimeSplit


def _homes() -> dict[str, str]:
    """The module of each public name, from the imports above: the package's source is the only list of them."""
    lines = globals()["__loader__"].get_source(__name__).splitlines()
    imports = (line.split() for line in lines if line.startswith("    from muster."))
    return {name: module for _, module, _, name, *_ in imports}


def __getattr__(name: str) -> object:
    homes = _homes()
    if name == "__all__":
        return sorted([*homes, "__version__"])
    if name not in homes:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module  # noqa: PLC0415 - what `import muster` takes counts for every command

    home = homes[name]
    try:
        found: object = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if not home.startswith("muster.replica."):
            raise
        # The SDK alone is installed, and a trainer is tried with it.
        message = f"muster.{name} needs the module {error.name}: run pip install 'muster-train[replica]'"
        raise ModuleNotFoundError(message, name=error.name) from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes()})
