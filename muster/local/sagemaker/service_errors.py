"""Who makes a call, and the errors of the service with the codes and wordings of AWS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class ServiceError(Exception):
    """An error that a caller gets: code, message, HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


def invalid(message: str) -> ServiceError:
    """ValidationException."""
    return ServiceError("ValidationException", message)


def not_found() -> ServiceError:
    """The answer of Describe, Stop and the tag calls for a job that does not exist: a ValidationException."""
    return invalid("Requested resource not found.")


def no_hub_content(message: str) -> ServiceError:
    """ResourceNotFound, of a hub and of what is in it."""
    return ServiceError("ResourceNotFound", message)


def unknown_operation(name: str) -> ServiceError:
    """An operation of SageMaker that the embedded cloud does not have."""
    message = f"The embedded cloud does not have the operation SageMaker.{name}."
    return ServiceError("UnknownOperationException", message, 404)


def unsupported(what: str) -> ServiceError:
    """A part of an operation that AWS has and the embedded cloud does not."""
    return ServiceError("NotImplemented", f"The embedded cloud does not have {what}.", 501)


def foreign_region(signed: str, home: str) -> ServiceError:
    """A call that is signed for another region than the cloud's: on AWS it goes to that region's own endpoint."""
    return ServiceError("InvalidSignatureException", f"Credential should be scoped to {home}, not to {signed}.", 403)


def no_training_plan(arn: str) -> ServiceError:
    """The training plan is not one of this account and region."""
    return invalid(f"The training plan {arn} does not exist.")


def name_taken(arn: str) -> ServiceError:
    """ResourceInUse."""
    return ServiceError(
        "ResourceInUse",
        f"Training job names must be unique within an AWS account and region, "
        f"and a training job with this name already exists ({arn})",
    )


def quota_exceeded(instance_type: str, count: int) -> ServiceError:
    """ResourceLimitExceeded."""
    return ServiceError(
        "ResourceLimitExceeded",
        f"The account-level service limit '{instance_type} for training job usage' is 0 Instances, with current "
        f"utilization of 0 Instances and a request delta of {count} Instances. Please use AWS Service Quotas to "
        "request an increase for this quota. If AWS Service Quotas is not available, contact AWS support to "
        "request an increase for this quota.",
    )


def foreign_role() -> ServiceError:
    """The role is another account's: no policy of either account can allow it."""
    return ServiceError("AccessDeniedException", "Cross-account pass role is not allowed.", 403)


def role_refused(role_arn: str) -> ServiceError:
    """The role does not exist, or does not trust SageMaker."""
    return invalid(
        f"Could not assume role {role_arn}. Please ensure that the role exists and allows principal "
        "'sagemaker.amazonaws.com' to assume the role."
    )


Authorise = Callable[[str, str, Mapping[str, object]], None]
"""Checks (action, resource ARN, condition keys) for the caller; raises ServiceError if the caller may not."""


@dataclass(frozen=True)
class Caller:
    """Who makes a call."""

    authorise: Authorise
    session_tags: Mapping[str, str]
    """Those of the caller's session."""


Operation = Callable[[Any, Caller], Mapping[str, object]]
"""Answers a request of a caller with a document; raises ServiceError if it does not."""
