"""The functions, and the state machine that calls them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from muster.client.verify.asking import allowed
from muster.client.verify.services import Account
from muster.client.verify.verification import Check, judged

FUNCTIONS, STATE_MACHINE = "functions", "state-machine"

_INTEGRATION = re.compile(r'"Resource"\s*:\s*"(arn:[^"]+)"')
_FUNCTION = re.compile(r"arn:[\w-]+:lambda:[\w-]+:\d+:function:[\w-]+")


@dataclass(frozen=True)
class Function:
    """A function as Lambda has it."""

    name: str
    state: str
    last_update: str
    reason: str


def gather_functions(account: Account) -> tuple[Function, ...]:
    """One call for each function."""
    found = []
    for _, name, _ in account.template.of_type("AWS::Lambda::Function"):
        with allowed("lambda:GetFunctionConfiguration", f"arn:*:lambda:*:*:function:{name}"):
            answer = account.functions.get_function_configuration(FunctionName=name)
        reason = answer.get("StateReason") or answer.get("LastUpdateStatusReason") or ""
        found.append(Function(name, answer.get("State", ""), answer.get("LastUpdateStatus", ""), reason))
    return tuple(found)


def judge_functions(functions: tuple[Function, ...]) -> Iterator[Check]:
    """All functions together. One that was not called for weeks is Inactive; the next call wakes it."""
    problems = [
        f"{function.name} is {function.state}, its last update {function.last_update}: {function.reason or 'no reason'}"
        for function in functions
        if function.state not in {"Active", "Inactive"} or function.last_update != "Successful"
    ]
    if not functions:
        problems.append("the stack has no function")
    seen = f"all {len(functions)} functions are ready."
    yield judged(FUNCTIONS, problems, seen, "Wait a minute for an update that is running; else deploy the stack again.")


@dataclass(frozen=True)
class Machine:
    """The state machine as Step Functions has it."""

    status: str
    integrations: tuple[str, ...]
    called: tuple[str, ...]
    functions: tuple[str, ...]
    """The functions of the stack."""
    partition: str


def gather_machine(account: Account) -> Machine:
    """One call."""
    arn = account.cloud.stack.state_machine_arn
    with allowed("states:DescribeStateMachine", arn):
        answer = account.stepfunctions.describe_state_machine(stateMachineArn=arn)
    definition = answer["definition"]
    own = [name for _, name, _ in account.template.of_type("AWS::Lambda::Function")]
    return Machine(
        status=answer.get("status", ""),
        integrations=tuple(sorted(set(_INTEGRATION.findall(definition)))),
        called=tuple(sorted(set(_FUNCTION.findall(definition)))),
        functions=tuple(own),
        partition=arn.split(":")[1],
    )


def judge_machine(machine: Machine) -> Iterator[Check]:
    """The state machine runs, in its own partition, the functions of its own stack."""
    problems = [] if machine.status == "ACTIVE" else [f"the state machine is {machine.status}"]
    foreign = [arn for arn in machine.integrations if arn.split(":")[1] != machine.partition]
    problems += [f"{arn} is not of the partition {machine.partition}: the first state would fail" for arn in foreign]
    strangers = [arn for arn in machine.called if arn.rpartition(":")[2] not in machine.functions]
    problems += [f"it calls {arn}, which is not a function of the stack" for arn in strangers]
    if not machine.called:
        problems.append("its definition calls no function")
    seen = (
        f"is active, calls {len(machine.called)} functions of the stack, and names the partition {machine.partition}."
    )
    yield judged(STATE_MACHINE, problems, seen, "Deploy the stack again.")
