"""Requests and answers held against botocore's models of the services."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any

import botocore.session
from botocore.exceptions import ParamValidationError
from botocore.model import ListShape, OperationModel, ServiceModel, Shape, StructureShape
from botocore.paginate import PaginatorModel
from botocore.validate import ParamValidator, type_check

from muster.local.sagemaker.documented_limits import documented_violations
from muster.local.sagemaker.request_validation import violations

_session = cache(botocore.session.get_session)
_validator = ParamValidator()
# The models' patterns are Java's.
_CLASSES = {
    r"\p{ASCII}": r"[\x00-\x7f]",
    r"\p{L}\p{Z}\p{N}_": r"\w\s",
    r"\u{10000}-\u{10FFFF}": "\U00010000-\U0010ffff",
}


class _AnswerValidator(ParamValidator):
    """A number may be below the model's minimum: a job can have trained for 0 seconds."""

    @type_check(valid_types=(int,))  # type: ignore[untyped-decorator]
    def _validate_integer(self, *_: object) -> None:
        pass


_answers = _AnswerValidator()


@cache
def operation_model(service: str, operation: str) -> OperationModel:
    """botocore's model of an operation, such as ("s3", "PutObject")."""
    return _service_model(service).operation_model(operation)


@cache
def paginator_model(service: str) -> PaginatorModel:
    """Which operations of a service come in pages, and how."""
    loader = _session().get_component("data_loader")
    return PaginatorModel(loader.load_service_model(service, "paginators-1"))


@cache
def _service_model(service: str) -> ServiceModel:
    return _session().get_service_model(service)


def check_parameters(service: str, operation: str, parameters: Mapping[str, Any]) -> None:
    """What a boto3 client checks before it sends anything: names, types, required members, minimum lengths.

    Raises:
        ParamValidationError: as boto3's.
    """
    shape = operation_model(service, operation).input_shape
    assert shape is not None, f"{operation} takes nothing"
    report = _validator.validate(parameters, shape)
    if report.has_errors():
        raise ParamValidationError(report=report.generate_report())


def broken_limits(service: str, operation: str, parameters: Mapping[str, Any]) -> list[str]:
    """What the service itself refuses in a request that the client has sent: every broken limit, in AWS's wording."""
    if service == "s3":
        return []  # It has codes of its own, see s3.py.
    if service == "sagemaker":
        request = _on_the_wire(parameters)
        found = violations(operation, request)
        return found or (documented_violations(request) if operation == "CreateTrainingJob" else [])
    return list(_walk(operation_model(service, operation).input_shape, parameters, ""))


def check_answer(service: str, operation: str, answer: Mapping[str, Any]) -> None:
    """Hold an answer against the operation's output: known members only, the required ones, values of their types.

    Raises:
        AssertionError: this AWS is at fault.
    """
    shape = operation_model(service, operation).output_shape
    if shape is None:
        assert not answer, f"{operation} answers nothing, not {answer!r}"
    else:
        report = _answers.validate(answer, shape)
        assert not report.has_errors(), f"{operation}: {report.generate_report()}"


def _walk(shape: Shape | None, value: Any, path: str) -> Iterator[str]:
    if isinstance(shape, StructureShape):
        for name, member in value.items():
            yield from _walk(shape.members[name], member, f"{path}.{name}" if path else name)
        return
    if isinstance(shape, ListShape):
        for index, member in enumerate(value, start=1):
            yield from _walk(shape.member, member, f"{path}.{index}.member")
    yield from _scalar_limits(shape, value, path)


def _scalar_limits(shape: Shape | None, value: Any, path: str) -> Iterator[str]:
    limits = shape.metadata if shape is not None else {}
    size = len(value) if isinstance(value, str | list | dict) else value if isinstance(value, int) else 0
    pattern, enum = limits.get("pattern"), limits.get("enum")
    # The client's validation has seen to the minimum.
    if size > limits.get("max", size):
        yield f"Value '{value}' at '{path}' failed to satisfy constraint: Member must be at most {limits['max']}"
    if pattern and not _compiled(pattern).fullmatch(value):
        yield f"Value '{value}' at '{path}' failed to satisfy constraint: Member must satisfy pattern: {pattern}"
    if enum and value not in enum:
        yield f"Value '{value}' at '{path}' failed to satisfy constraint: Member must satisfy enum value set: {enum}"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    for java, python in _CLASSES.items():
        pattern = pattern.replace(java, python)
    return re.compile(pattern)


def _on_the_wire(value: Any) -> Any:
    """Times are numbers in a JSON request."""
    if isinstance(value, Mapping):
        return {key: _on_the_wire(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_on_the_wire(member) for member in value]
    return value.timestamp() if isinstance(value, datetime) else value
