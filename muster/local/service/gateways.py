"""The gateways of a cloud: each answers for an account in a region, and they share faults, counts and the admin."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from muster.contract.spec.places import HOME
from muster.local.cloud_state import StateDirectory
from muster.local.ministack.host import Account, Host
from muster.local.sagemaker.job_life import Machine
from muster.local.sagemaker.training_service import OfferedOperations, TrainingService
from muster.local.service.admin_api import AdminApi, Books
from muster.local.service.gateway import Gateway
from muster.local.service.option_services import Hosted, option_services
from muster.local.service.rate_limiter import RateLimiter
from muster.options import offers

if TYPE_CHECKING:
    from muster.local.cloud_settings import Settings
    from muster.local.counted_calls import CallLog
    from muster.local.processes.process_pool import ProcessPool
    from muster.local.sagemaker.service_errors import Operation
    from muster.local.service.fault_book import FaultBook


@dataclass
class Gateways:
    """Makes them, for the event loop that runs."""

    settings: Settings
    directory: StateDirectory
    processes: ProcessPool
    faults: FaultBook
    calls: CallLog
    _trainings: list[TrainingService] = field(default_factory=list)
    _admin: AdminApi | None = None

    def home(self, host: Host, token: str, hosted: Sequence[Hosted], endpoint: Mapping[str, str]) -> Gateway:
        """The gateway of the cloud's own account and region, which is made first; `hosted`: the services beside it."""
        books = self._books(HOME)
        self._admin = AdminApi(token, host, self._running, books, hosted)
        further = {name: operation for one in hosted for name, operation in one.operations.items()}
        return self._gateway(host, books, endpoint, "jobs", further)

    def of(self, account: Account, place: str, endpoint: Mapping[str, str]) -> Gateway:
        """The gateway of another account or region, where faults of `place` fire.

        `endpoint`: the environment variables with which its jobs reach the services.
        """
        host = Host(account, asyncio.get_running_loop())
        return self._gateway(host, self._books(place), endpoint, f"jobs-{account.account_id}-{account.region}", {})

    def _books(self, place: str) -> Books:
        return Books(self.faults.at(place), self.calls, RateLimiter(enforced=self.settings.call_rates))

    def _gateway(
        self, host: Host, books: Books, endpoint: Mapping[str, str], folder: str, further: Mapping[str, Operation]
    ) -> Gateway:
        assert self._admin is not None  # noqa: S101 - home is made first
        operations = dict(further)
        for offered in offers("local.sagemaker_operations", OfferedOperations):
            operations |= offered.of(host.account, self.directory.root)
        jobs = self.directory.scratch / folder
        jobs.mkdir(exist_ok=True, mode=0o700)
        machine = Machine(self.settings, books.faults, self.processes, jobs, endpoint)
        training = TrainingService(host, machine, operations)
        self._trainings.append(training)
        return Gateway(host.account, training, self._admin, books, tuple(option_services().values()))

    def _running(self) -> list[str]:
        return list(chain.from_iterable(training.running() for training in self._trainings))
