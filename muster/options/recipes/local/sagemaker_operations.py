"""SageMaker Hub in the embedded cloud."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from muster.local.sagemaker.service_errors import Operation
from muster.local.sagemaker.training_service import OfferedOperations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster.local.ministack.host import Account

HUBS = "hubs"
"""The folder of the state directory in which its user puts the models."""


def _of_hubs(account: Account, state: Path) -> Mapping[str, Operation]:
    from muster.options.recipes.local.hubs import Hubs  # noqa: PLC0415

    return Hubs(account, state / HUBS).operations


OFFER = OfferedOperations(_of_hubs)
