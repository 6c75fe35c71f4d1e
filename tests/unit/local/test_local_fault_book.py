"""The fault book: which calls and jobs a fault hits, how often, and what is left; and the commands for it."""

import typer.main
from pydantic import ValidationError
from typer.testing import CliRunner

from muster.local.commands.fault_commands import app
from muster.local.counted_calls import Call
from muster.local.faults import FAULT, CallError, CapacityError, Fault, FaultBase, LostInstance, RateLimit
from muster.local.service.fault_book import FaultBook

CREATE = Call("sagemaker", "CreateTrainingJob")


def fired(book: FaultBook) -> list[int]:
    return [report.fired for report in book.report()]


def test_a_fault_fires_as_often_as_asked_and_is_then_spent() -> None:
    book = FaultBook()
    book.add(CapacityError(count=2))
    hits = [book.take(CapacityError, lambda _: True) is not None for _ in range(4)]
    assert hits == [True, True, False, False]
    assert fired(book) == [2]
    # Without a count it fires without end, but only for its kind and a match.
    book.add(LostInstance(job="a-*", count=None))
    assert book.take(CapacityError, lambda _: True) is None
    assert book.take(LostInstance, lambda fault: fault.job == "b-*") is None
    assert all(book.take(LostInstance, lambda _: True) for _ in range(100))
    assert fired(book) == [2, 100]


def test_faults_fire_in_their_order_and_spent_ones_are_passed_over() -> None:
    book = FaultBook()
    for code in ("First", "Second"):
        book.add(CallError(code=code))
    codes = [fault.code for _ in range(3) if (fault := book.take_call(CREATE, "root", [""]))]
    assert codes == ["First", "Second"]


def test_calls_are_matched_by_service_operation_resource_and_caller() -> None:
    wanted = {
        CallError(): True,
        CallError(service="s3"): False,
        CallError(operation="Create*"): True,
        CallError(operation="Stop*"): False,
        CallError(resource="job-1"): True,
        CallError(resource="other"): False,
        CallError(caller="launcher"): True,
        CallError(caller="replica"): False,
    }
    assert {fault: takes(fault) for fault in wanted} == wanted


def takes(fault: CallError) -> bool:
    book = FaultBook()
    book.add(fault)
    return book.take_call(CREATE, "launcher", ["", "job-1"]) is not None


def test_a_rate_limit_lets_a_burst_through_and_throttles_the_rest() -> None:
    book = FaultBook()
    book.add(RateLimit(per_second=0.001, burst=3))
    answers = [book.take_call(CREATE, "root", [""]) for _ in range(5)]
    assert [answer.code if answer else None for answer in answers] == [None] * 3 + ["ThrottlingException"] * 2
    assert fired(book) == [2]
    assert book.take_call(Call("s3", "PutObject"), "root", [""]) is None


def test_faults_can_be_removed() -> None:
    book = FaultBook()
    first, second = book.add(CapacityError()), book.add(CapacityError())
    assert book.remove(first.id)
    assert not book.remove(first.id)
    assert [report.id for report in book.report()] == [second.id]
    book.clear()
    assert book.report() == []


def test_a_fault_that_makes_no_sense_is_refused_and_others_survive_the_wire() -> None:
    documents: list[dict[str, object]] = [
        {"kind": "capacity-error", "count": 0},
        {"kind": "capacity-error", "jobs": "typo"},
        {"kind": "event", "action": "mangle"},
        {"kind": "slow-start", "seconds": 0},
        {"kind": "call-error", "status": 200},
        {"kind": "no-such-kind"},
    ]
    assert [document for document in documents if is_taken(document)] == []
    fault: Fault = LostInstance(job="run-r1-*", after_seconds=2.5, count=None)
    assert FAULT.validate_json(fault.model_dump_json()) == fault


def is_taken(document: dict[str, object]) -> bool:
    try:
        FAULT.validate_python(document)
    except ValidationError:
        return False
    return True


COMMON = {"as_json", "state"}


def kinds(base: type[FaultBase]) -> dict[str, type[FaultBase]]:
    """The models of faults by their kind."""
    found = {
        model.model_fields["kind"].default: model for model in base.__subclasses__() if "kind" in model.model_fields
    }
    return found | {kind: model for sub in base.__subclasses__() for kind, model in kinds(sub).items()}


def test_every_fault_is_a_command_and_every_field_a_parameter() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    models = kinds(FaultBase)
    assert set(models) - set(commands) == {RateLimit.model_fields["kind"].default}  # `throttle` covers it
    assert set(commands) - set(models) == {"list", "clear", "throttle"}
    for kind in models.keys() & commands.keys():
        parameters = {parameter.name for parameter in commands[kind].params}
        assert parameters == (models[kind].model_fields.keys() - {"kind"}) | COMMON, kind


def test_a_value_out_of_range_is_a_usage_error_before_any_cloud_is_asked() -> None:
    for line in ("crash job --exit-code 256", "slow-start job --seconds 0", "event mangle job", "crash job --count 0"):
        outcome = CliRunner().invoke(app, line.split())
        assert outcome.exit_code == 2, line
        assert "Invalid value" in outcome.output
