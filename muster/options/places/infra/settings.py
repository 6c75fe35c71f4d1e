"""What holds between the tables `places.NAME` and others. Without the CDK, which takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from muster.contract.errors import Problem, StatedProblem
from muster.contract.spec.places import HOME
from muster.infra.settings.settings_file import SettingsOffer
from muster.infra.settings.stack_settings import OTHER_PARTITIONS, StackSettings
from muster.options.places.client.place_session import local_places

if TYPE_CHECKING:
    from muster.infra.deploy.account import Account

_ALLOWED = "a commercial region of AWS: no other partition shares events and roles with these"
_HOME_ALONE = {
    "replicas.role_arn": "the jobs of a place run under a role of their account, which its outpost makes",
    "replicas.vpc": "a subnet belongs to one region",
    "replicas.kms_key_arn": "a key belongs to one region",
    "stack.kms_key_arn": "a key belongs to one region",
}
"""What a stack with places does without, each with the reason."""


def _problems(settings: StackSettings) -> Iterator[Problem]:
    if not settings.places:
        return
    stack = settings.stack
    if stack.region is not None and stack.region.startswith(OTHER_PARTITIONS):
        yield Problem("places", f"a stack in {stack.region}", "leave [places] out", f"the stack in {_ALLOWED}")
    taken = {(stack.region, None): HOME, (stack.region, stack.account): HOME}
    for name, table in sorted(settings.places.items()):
        if name == HOME:
            yield StatedProblem(f"places.{name}", "this is the name of the stack's own place", "choose another name")
        if table.region.startswith(OTHER_PARTITIONS):
            yield Problem(f"places.{name}.region", table.region, "choose another region", _ALLOWED)
        account = None if table.account == stack.account else table.account
        if (other := taken.setdefault((table.region, account), name)) != name:
            remedy = "leave it out: replicas run there in any case" if other == HOME else "leave one of them out"
            yield StatedProblem(f"places.{name}.region", f"{other} is in the same region and account", remedy)
    yield from _beside(settings)


def _beside(settings: StackSettings) -> Iterator[Problem]:
    """Settings that hold for one region or one account."""
    for key, reason in _HOME_ALONE.items():
        table, _, name = key.partition(".")
        if getattr(getattr(settings, table), name) is not None:
            yield StatedProblem(key, "set together with [places]", f"leave one of them out: {reason}")
    others = {table.account for table in settings.places.values()} - {None, settings.stack.account}
    own = [index for index, arn in enumerate(settings.replicas.policy_arns) if ":iam::aws:" not in arn]
    if others and own:
        statement = f"a policy of one account, and there is a place in {min(map(str, others))}"
        remedy = "leave it out, and write replicas.data and replicas.secrets instead"
        yield StatedProblem(f"replicas.policy_arns.{own[0]}", statement, remedy)


def _local_tables(environment: Mapping[str, str]) -> dict[str, Any]:
    places = local_places(environment)
    tables = {name: {"region": one.region, "account": one.account} for name, one in places.items()}
    return {"places": tables} if tables else {}


def _preflight(_account: Account, _settings: StackSettings) -> Iterable[Problem]:
    return ()  # each place has an account of its own: deployment.py


OFFER = SettingsOffer(_problems, _local_tables, _preflight)
