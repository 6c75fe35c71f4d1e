"""Service Quotas, as far as a client looks at it: the quotas of SageMaker for training jobs, one page after another.

Every quota of an instance type that botocore knows has the same value. Those of `ml.p2` are not listed, because AWS
leaves out a quota whose applied value is not available. Nothing counts against a quota: the fault `quota-error` is how
a launch finds it used up.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.local.ministack.host import Account
from muster.local.sagemaker import service_errors
from muster.local.sagemaker.answer_pages import page
from muster.local.sagemaker.request_validation import service_model

TARGET = "ServiceQuotasV20190624."
ACTION = "servicequotas:ListServiceQuotas"
VALUE = 100.0
_SERVICE = "sagemaker"
_USAGES = ("training job usage", "spot training job usage", "training warm pool usage")
_NOT_LISTED = "ml.p2."
_PAGE = 100  # ListServiceQuotas: MaxResults


def list_service_quotas(request: Mapping[str, object], account: Account) -> Mapping[str, object]:
    """The answer to ListServiceQuotas.

    Raises:
        ServiceError: another service's quotas, or a token that is not from an answer.
    """
    if request.get("ServiceCode") != _SERVICE:
        code, message = "NoSuchResourceException", "The embedded cloud has quotas of SageMaker only."
        raise service_errors.ServiceError(code, message)
    rows = [_quota(number, name, account) for number, name in enumerate(_names())]
    return page("Quotas", rows, request, _PAGE, "InvalidPaginationTokenException")


def _names() -> list[str]:
    types: list[str] = service_model().shape_for("TrainingInstanceType").metadata["enum"]
    return [f"{name} for {usage}" for name in types if not name.startswith(_NOT_LISTED) for usage in _USAGES]


def _quota(number: int, name: str, account: Account) -> dict[str, object]:
    code = f"L-{number:08X}"
    return {
        "ServiceCode": _SERVICE,
        "ServiceName": "Amazon SageMaker",
        "QuotaArn": account.arn("servicequotas", f"{_SERVICE}/{code}"),
        "QuotaCode": code,
        "QuotaName": name,
        "Value": VALUE,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
