"""The settings of an embedded cloud."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, field_validator

from muster.local.service.option_services import option_services

DEFAULT_PORT = 4570
DEFAULT_REGION = "us-east-1"
DEFAULT_ACCOUNT_ID = "123456789012"


class Settings(BaseModel):
    """Settings of one embedded cloud. All times are seconds.

    A job goes through the phases of SageMaker in the same order, in tenths of a second instead of minutes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535, description="Port on 127.0.0.1; 0 for any free port.")
    region: str = Field(
        default=DEFAULT_REGION, pattern=r"^[a-z]{2}(-[a-z]+)+-\d$", description="Region of the embedded cloud."
    )
    account_id: str = Field(default=DEFAULT_ACCOUNT_ID, pattern=r"^\d{12}$", description="Account number, 12 digits.")
    code: tuple[Path, ...] = ()
    """Directories in the image `muster-local/python`: its PYTHONPATH; the first one is its working directory."""
    phase_seconds: float = Field(
        default=0.1, ge=0, description="Seconds of each of a job's phases Starting, Interrupted and Restarting."
    )
    stop_grace_seconds: float = Field(
        default=10.0, ge=0.1, description="Seconds from SIGTERM to SIGKILL (SageMaker: 120)."
    )
    checkpoint_sync_seconds: float = Field(default=1.0, gt=0)
    """Between two scans of the checkpoint directory."""
    lambda_concurrency: int = Field(default=8, ge=1)
    """Functions that run at once, each in a process; further invocations are queued."""
    call_rates: bool = True
    """Whether calls are throttled by the rates of `call_rates.py`, or only by those that are set later."""
    services: Mapping[str, SerializeAsAny[BaseModel]] = Field(default_factory=dict)
    """Settings of the services that options add, by name, as `{"hyperpod": ClusterSettings()}`: only these run."""
    end_with_parent: bool = False
    """Stop when the standard input is closed: when the process that started the service has ended."""

    @field_validator("services", mode="before")
    @classmethod
    def _known_services(cls, found: Mapping[str, object]) -> dict[str, BaseModel]:
        offered = option_services()
        if unknown := sorted(found.keys() - offered):
            message = f"no option adds {', '.join(unknown)}; there are: {', '.join(offered) or 'none'}"
            raise ValueError(message)
        return {name: offered[name].settings.model_validate(values) for name, values in found.items()}
