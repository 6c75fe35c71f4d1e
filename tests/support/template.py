"""A synthesized template as tests read it: intrinsic functions resolved, policies evaluated as IAM does."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from muster.infra.settings.stack_settings import Tables

ROOT = Path(__file__).resolve().parents[2]

REARM_SECONDS = 10_800
"""Of the stack that `tests/infra` looks at."""
FUNCTIONS = ("Plan", "Attempt", "React", "Stop", "Settle", "Sweep", "Start", "Notify", "Timer", "Admit", "Scale")
"""The functions of the stack, by their constructs."""

_PSEUDO = {
    "AWS::Partition": "aws",
    "AWS::Region": "REGION",
    "AWS::AccountId": "ACCOUNT",
    "AWS::URLSuffix": "amazonaws.com",
}


def app_environment(settings: Tables, outdir: Path) -> dict[str, str]:
    """The environment in which app.py writes its assembly to `outdir`; nothing of the caller's AWS settings."""
    outdir.mkdir(parents=True, exist_ok=True)
    file = outdir / "settings.json"
    file.write_text(json.dumps(settings), encoding="utf-8")
    context = {"settings": str(file), "target": "aws"}
    base = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))}
    return {**base, "CDK_OUTDIR": str(outdir), "CDK_CONTEXT_JSON": json.dumps(context)}


def run_app(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """app.py as the CDK CLI starts it."""
    return subprocess.run(
        [sys.executable, str(ROOT / "app.py")], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@dataclass(frozen=True)
class Statement:
    """One statement of a role's policy."""

    role: str
    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    condition: Mapping[str, Mapping[str, str | Sequence[str]]]

    def applies(self, action: str, resource: str, context: Mapping[str, str]) -> bool:
        """Whether this statement is about the request; `context` are its condition keys.

        IAM lets a statement match nothing that has a variable without a value.
        """
        conditions = [
            (operator, key, _strings(wanted))
            for operator, block in self.condition.items()
            for key, wanted in block.items()
        ]
        texts = [*self.resources, *(text for *_, wanted in conditions for text in wanted)]
        if any(variable not in context for text in texts for variable in _VARIABLE.findall(text)):
            return False
        return (
            any(matches(action, pattern, ignore_case=True) for pattern in self.actions)
            and any(matches(resource, _filled(pattern, context)) for pattern in self.resources)
            and all(
                _holds(operator, context.get(key), [_filled(text, context) for text in wanted])
                for operator, key, wanted in conditions
            )
        )


_VARIABLE = re.compile(r"\$\{([^}]+)\}")


def _filled(text: str, context: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: context[found[1]], text)


def matches(value: str, pattern: str, *, ignore_case: bool = False) -> bool:
    """Whether an IAM pattern (`*` and `?`) covers `value`, which may be a narrower pattern itself."""
    regex = "".join({"*": ".*", "?": "."}.get(character, re.escape(character)) for character in pattern)
    return re.fullmatch(regex, value, re.IGNORECASE if ignore_case else 0) is not None


def _holds(operator: str, actual: str | None, wanted: str | Sequence[str]) -> bool:
    if actual is None:
        return operator.endswith("IfExists")
    name = operator.removesuffix("IfExists")
    if name == "Null":
        return wanted in ("false", ["false"])
    if name in {"StringEquals", "Bool"}:
        return actual in _strings(wanted)
    if name == "StringLike":
        return any(matches(actual, value) for value in _strings(wanted))
    message = f"this evaluator does not know {operator}"
    raise NotImplementedError(message)


class Template:
    """A template in a region; a logical id begins with the path of its construct."""

    def __init__(self, body: dict[str, Any], pseudo: Mapping[str, str] = _PSEUDO) -> None:
        self.body = body
        self._pseudo = pseudo
        self.resources: dict[str, dict[str, Any]] = body["Resources"]

    @classmethod
    def in_folder(cls, folder: Path, name: str, stack: str = "*") -> Self:
        """The template of one of `tests.infra.variants`, which wrote all of them to `folder`, or of a stack of it."""
        [file] = (folder / name).glob(f"{stack}.template.json")
        return cls(json.loads(file.read_text(encoding="utf-8")))

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """The resources of a type, by logical id."""
        return {name: resource for name, resource in self.resources.items() if resource["Type"] == kind}

    def one(self, kind: str) -> dict[str, Any]:
        """The properties of the only resource of a type."""
        [resource] = self.of_type(kind).values()
        return self.resolve(resource["Properties"])  # type: ignore[no-any-return]

    def resolve(self, value: Any) -> Any:
        """`value` with intrinsic functions replaced; resources become ARNs with their construct's name."""
        if isinstance(value, list):
            return [self.resolve(item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            [(function, argument)] = value.items()
            if function == "Ref" or function.startswith("Fn::"):
                return self._call(function, argument)
        return {key: self.resolve(item) for key, item in value.items()}

    def _call(self, function: str, argument: Any) -> Any:
        if function == "Ref":
            return self._pseudo.get(argument) or self._physical(argument, "Ref")
        if function == "Fn::GetAtt":
            return self._physical(*argument)
        if function == "Fn::If":
            condition, then, otherwise = argument
            return self.resolve(then if self.resolve(self.body["Conditions"][condition]) else otherwise)
        if function == "Fn::Equals":
            return self.resolve(argument[0]) == self.resolve(argument[1])
        if function == "Fn::Or":
            return any(map(self.resolve, argument))
        if function == "Fn::FindInMap":
            name, first, second = argument
            return str(self.body["Mappings"][name][self.resolve(first)][self.resolve(second)])
        if function == "Fn::Sub":
            return re.sub(r"\$\{([^}]+)\}", lambda found: self._pseudo[found[1]], argument)
        assert function == "Fn::Join", function
        separator, parts = argument
        return str(separator).join(str(self.resolve(part)) for part in parts)

    def _physical(self, logical_id: str, attribute: str) -> str:
        if logical_id not in self.resources:
            return f"<{logical_id}.{attribute}>"
        kind = self.resources[logical_id]["Type"]
        name = construct_name(logical_id)
        arns = {
            "AWS::S3::Bucket": "arn:aws:s3:::BUCKET",
            "AWS::Events::EventBus": f"arn:aws:events:REGION:ACCOUNT:event-bus/{name}",
            "AWS::IAM::Role": f"arn:aws:iam::ACCOUNT:role/{name}",
            "AWS::Lambda::Function": f"arn:aws:lambda:REGION:ACCOUNT:function:{name}",
            "AWS::Lambda::Alias": f"arn:aws:lambda:REGION:ACCOUNT:function:{name}:live",
            "AWS::Logs::LogGroup": f"arn:aws:logs:REGION:ACCOUNT:log-group:{name}:*",
            "AWS::SNS::Topic": f"arn:aws:sns:REGION:ACCOUNT:{name}",
            "AWS::SQS::Queue": f"arn:aws:sqs:REGION:ACCOUNT:{name}",
            "AWS::StepFunctions::StateMachine": f"arn:aws:states:REGION:ACCOUNT:stateMachine:{name}",
        }
        # The Ref of these is their ARN; the Ref of any other resource is its name.
        known_by_arn = {"AWS::StepFunctions::StateMachine", "AWS::SNS::Topic", "AWS::Lambda::Alias"}
        as_arn = attribute == "Arn" or (kind in known_by_arn and attribute == "Ref")
        if kind in arns and as_arn:
            return arns[kind]
        return "BUCKET" if kind == "AWS::S3::Bucket" else name

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """Every statement of every role, inline or attached."""
        return tuple(self._statements())

    def _statements(self) -> Iterator[Statement]:
        for name, role in self.of_type("AWS::IAM::Role").items():
            assert "ManagedPolicyArns" not in role["Properties"], f"{name} has a policy that was not written by hand"
            for policy in role["Properties"].get("Policies", []):
                yield from self._of_policy(construct_name(name), policy["PolicyDocument"])
        for policy in self.of_type("AWS::IAM::Policy").values():
            for reference in policy["Properties"]["Roles"]:
                yield from self._of_policy(construct_name(reference["Ref"]), policy["Properties"]["PolicyDocument"])

    def _of_policy(self, role: str, document: dict[str, Any]) -> Iterator[Statement]:
        for statement in document["Statement"]:
            yield Statement(
                role,
                statement["Effect"],
                _strings(statement["Action"]),
                _strings(self.resolve(statement["Resource"])),
                self.resolve(statement.get("Condition", {})),
            )

    def allows(self, role: str, action: str, resource: str, context: Mapping[str, str] | None = None) -> bool:
        """Whether `role` may do `action` on `resource`, which belongs to the stack's account if `context` is silent."""
        keys = {"aws:ResourceAccount": "ACCOUNT", **(context or {})}
        effects = {one.effect for one in self.statements if one.role == role and one.applies(action, resource, keys)}
        return effects == {"Allow"}


# The constructs that infra/stack.py composes; a logical id begins with one of them.
_CONSTRUCTS = (
    *("Rendezvous", "Replica", "DeadLetters", "Plan", "Attempt", "React", "Stop", "Settle", "Sweep", "Events"),
    *("Inbox", "Start", "Notify", "TimerScheduler", "Timer", "Admit", "Launcher", "Look", "Scale"),
    *("Workflow", "Health", "Dashboard", "ClusterAccess", "Pod", "Notices", "PlaceNotices", "Forwarder"),
)


def construct_name(logical_id: str) -> str:
    """`PlanHandlerRole6C94FEC7` belongs to Plan."""
    return next(name for name in _CONSTRUCTS if logical_id.startswith(name))


def function(template: Template, name: str) -> dict[str, Any]:
    found = template.of_type("AWS::Lambda::Function")
    return template.resolve(next(f["Properties"] for key, f in found.items() if construct_name(key) == name))


def _strings(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
