"""The client: the SDK's classes, which are imported from `muster`, and the command `muster`.

The errors that its callers handle can be imported from here as well.
"""

from muster.client.errors import BusyError as BusyError
from muster.client.errors import ClientError as ClientError
from muster.client.errors import ClusterReplicaError as ClusterReplicaError
from muster.client.errors import CredentialsError as CredentialsError
from muster.client.errors import DamagedModelError as DamagedModelError
from muster.client.errors import DeniedError as DeniedError
from muster.client.errors import ForeignStackError as ForeignStackError
from muster.client.errors import InputError as InputError
from muster.client.errors import ModelFileError as ModelFileError
from muster.client.errors import ModelFolderError as ModelFolderError
from muster.client.errors import ModelPendingError as ModelPendingError
from muster.client.errors import NoClusterLogsError as NoClusterLogsError
from muster.client.errors import NoJobError as NoJobError
from muster.client.errors import NoModelError as NoModelError
from muster.client.errors import NoPlanError as NoPlanError
from muster.client.errors import NoResultError as NoResultError
from muster.client.errors import OptionError as OptionError
from muster.client.errors import OutageError as OutageError
from muster.client.errors import PickledSessionError as PickledSessionError
from muster.client.errors import RefusedError as RefusedError
from muster.client.errors import RegionError as RegionError
from muster.client.errors import RunContinuedError as RunContinuedError
from muster.client.errors import RunNotEndedError as RunNotEndedError
from muster.client.errors import SameRunError as SameRunError
from muster.client.errors import StackNotFoundError as StackNotFoundError
from muster.client.errors import UnfinishedRunError as UnfinishedRunError
from muster.client.errors import UnknownDeadLetterError as UnknownDeadLetterError
from muster.client.errors import UnknownReplicaError as UnknownReplicaError
from muster.client.errors import UnknownRunError as UnknownRunError
from muster.client.errors import UnreachableError as UnreachableError
from muster.client.errors import WaitTimeoutError as WaitTimeoutError
from muster.contract.errors import DocumentError as DocumentError
from muster.contract.errors import MusterError as MusterError
from muster.contract.errors import NewerDocumentError as NewerDocumentError
from muster.contract.errors import RecipeError as RecipeError
from muster.contract.errors import RunNameTakenError as RunNameTakenError
from muster.contract.errors import SpecError as SpecError

__all__ = [
    "BusyError",
    "ClientError",
    "ClusterReplicaError",
    "CredentialsError",
    "DamagedModelError",
    "DeniedError",
    "DocumentError",
    "ForeignStackError",
    "InputError",
    "ModelFileError",
    "ModelFolderError",
    "ModelPendingError",
    "MusterError",
    "NewerDocumentError",
    "NoClusterLogsError",
    "NoJobError",
    "NoModelError",
    "NoPlanError",
    "NoResultError",
    "OptionError",
    "OutageError",
    "PickledSessionError",
    "RecipeError",
    "RefusedError",
    "RegionError",
    "RunContinuedError",
    "RunNameTakenError",
    "RunNotEndedError",
    "SameRunError",
    "SpecError",
    "StackNotFoundError",
    "UnfinishedRunError",
    "UnknownDeadLetterError",
    "UnknownReplicaError",
    "UnknownRunError",
    "UnreachableError",
    "WaitTimeoutError",
]
