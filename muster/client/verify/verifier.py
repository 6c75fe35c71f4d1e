"""The order of a verification: what costs nothing first, then the run, and last that nothing is left."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any

from muster.client.errors import ClientError, InputError, UnknownRunError
from muster.client.launch.dry_run import DryRun
from muster.client.launch.estimate import Quota, quotas
from muster.client.sdk import Muster
from muster.client.verify import (
    account_checks,
    bucket_checks,
    cluster_checks,
    delivery_checks,
    leftovers,
    permission_checks,
    quota_checks,
    run_checks,
    stack_checks,
    workflow_checks,
)
from muster.client.verify.asking import UncheckedError
from muster.client.verify.bucket_checks import LifecycleRule
from muster.client.verify.own_run import FAILING_RANK, INSTANCE_TYPE, own_spec, promise
from muster.client.verify.run_facts import RunFacts
from muster.client.verify.run_gathering import Watching, gather_run
from muster.client.verify.services import Account
from muster.client.verify.topic import Topic, with_clean_up
from muster.client.verify.verification import Check, Promise, Verification
from muster.contract import timestamps
from muster.contract.errors import SpecError
from muster.contract.names import JobName, fresh_run_name, time_suffix
from muster.contract.spec.spec import Spec
from muster.contract.spec.stack_defaults import StackDefaults

Announce = Callable[[str], None]


class NoImageError(InputError):
    """The run of a verification has no image."""

    def __init__(self, stack: str) -> None:
        super().__init__(
            f"The stack {stack} has no default image for the run of the verification: name an image that has Python, "
            "with --image, or leave the run out with --no-run."
        )


@dataclass(frozen=True)
class Wishes:
    """What the caller of a verification wants."""

    run: bool = True
    """Whether to start the run, which is what costs money."""
    instance_type: str = INSTANCE_TYPE
    image: str | None = None
    spec: Spec | None = None
    """A spec whose quotas are checked, too."""
    watching: Watching = field(default_factory=Watching)


class Verifier:
    """One verification of a stack. `announce` in its methods is called with what is being done, before it takes time.

    Raises:
        NoImageError: there is no image for the run.
        SpecError: the run, or the spec whose quotas are asked for, cannot be run on this stack.
        ClientError: the stack cannot be found.
    """

    def __init__(self, stack: Muster, wishes: Wishes) -> None:
        self._muster = stack
        self._account = Account(stack._cloud)
        self._wishes = wishes
        self._started_at = datetime.now(UTC)
        self.run_name = fresh_run_name("verify", time_suffix(self._started_at, secrets.choice))
        self._spec = own_spec(self.run_name, wishes.instance_type, wishes.image)
        self._dry = self._plan() if wishes.run else None
        self.promise: Promise | None = None if self._dry is None else promise(self._dry)
        self._quotas = self._needed()
        self._lifecycle: Sequence[LifecycleRule] = ()
        self._launched = False

    def document(self, checks: Iterable[Check]) -> Verification:
        """The verification with these checks."""
        return Verification(
            stack=self._account.cloud.stack.name,
            region=self._account.session.region_name,
            version=version("muster-train"),
            started_at=timestamps.text(self._started_at),
            promise=self.promise,
            run=self.run_name if self._launched else None,
            checks=tuple(checks),
        )

    def checks(self, announce: Announce) -> Iterator[Check]:
        """Every check, as soon as it is made.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed; call `clean_up`.
        """
        for topic in self._free():
            yield from _of(topic, announce)
        if self._dry is not None:
            yield from self._of_run(announce)

    def clean_up(self, announce: Announce) -> Iterator[Check]:
        """Cancel the run if it still runs, wait until no job of it is left, and remove what it left."""
        if not self._launched:
            return
        announce(f"Cancelling {self.run_name}, and waiting for the end of its jobs")
        try:
            self._muster.run(self.run_name).cancel()
        except UnknownRunError:
            return
        yield from _of(self._leftovers(), announce)

    def _free(self) -> Iterator[Topic[Any]]:
        """The subjects that cost nothing."""
        account = self._account
        yield Topic(
            "Looking at the stack",
            (stack_checks.CREDENTIALS, stack_checks.STACK, stack_checks.VERSION),
            partial(stack_checks.gather_stack, account),
            stack_checks.judge_stack,
        )
        yield Topic("Looking at the bucket", bucket_checks.BUCKET, self._gather_bucket, bucket_checks.judge_bucket)
        yield Topic(
            "Looking at the rules",
            (delivery_checks.RULES,),
            partial(delivery_checks.gather_rules, account),
            delivery_checks.judge_rules,
        )
        yield Topic(
            "Looking at the functions",
            (workflow_checks.FUNCTIONS,),
            partial(workflow_checks.gather_functions, account),
            workflow_checks.judge_functions,
        )
        yield Topic(
            "Looking at the state machine",
            (workflow_checks.STATE_MACHINE,),
            partial(workflow_checks.gather_machine, account),
            workflow_checks.judge_machine,
        )
        yield Topic(
            "Looking at the dead letters",
            (delivery_checks.DEAD_LETTERS,),
            partial(delivery_checks.gather_dead_letters, account),
            delivery_checks.judge_dead_letters,
        )
        yield Topic(
            "Looking at the subscriptions",
            (delivery_checks.SUBSCRIPTIONS,),
            partial(delivery_checks.gather_subscriptions, account),
            delivery_checks.judge_subscriptions,
        )
        yield Topic(
            "Reading the quotas",
            (quota_checks.QUOTA,),
            partial(quota_checks.gather_quotas, account),
            partial(quota_checks.judge_quotas, needs=self._quotas),
        )
        yield Topic(
            "Simulating the permissions of every role",
            (permission_checks.ROLE, permission_checks.DENIALS),
            partial(permission_checks.gather_permissions, account),
            permission_checks.judge_permissions,
        )
        for cluster in cluster_checks.clusters_of(account):
            yield Topic(
                f"Looking at the cluster {cluster.name}",
                cluster_checks.names(cluster),
                partial(cluster_checks.gather_cluster, account, cluster),
                cluster_checks.judge_cluster,
            )
        if vpc := StackDefaults.from_json(account.cloud.stack.defaults, "the output ReplicaDefaults").vpc_config:
            yield Topic(
                "Looking at the replicas' way to S3",
                (account_checks.ROUTE,),
                partial(account_checks.gather_routes, account, vpc.subnets),
                account_checks.judge_routes,
            )
        yield Topic(
            "Asking for the price",
            (account_checks.PRICES,),
            partial(account_checks.gather_prices, account, self._wishes.instance_type),
            account_checks.judge_prices,
        )

    def _of_run(self, announce: Announce) -> Iterator[Check]:
        account, image = self._account, self._image()
        if image:
            gather = partial(account_checks.gather_image, account, image)
            topic = Topic("Looking for the image", (account_checks.IMAGE,), gather, account_checks.judge_image)
            yield from _of(topic, announce)
        self._launched = True
        yield from with_clean_up(self._run_checks(announce), partial(self.clean_up, announce))

    def _run_checks(self, announce: Announce) -> Iterator[Check]:
        account = self._account
        announce(f"Running {self.run_name}: two replicas, of which one fails once on purpose")
        facts = self._gather_run()
        yield from run_checks.judge_run(facts)
        if facts.jobs:
            job = str(JobName(facts.prefix, facts.run, FAILING_RANK, 1))
            gather_rates = partial(account_checks.gather_rates, account, job)
            rates = Topic("Measuring rates of calls", (account_checks.RATES,), gather_rates, account_checks.judge_rates)
            yield from _of(rates, announce)
            execution = account.cloud.stack.execution_arn(self.run_name)
            yield from account_checks.judge_console(execution, facts.prefix)

    def _gather_bucket(self) -> bucket_checks.BucketFacts:
        facts = bucket_checks.gather_bucket(self._account)
        self._lifecycle = facts.lifecycle
        return facts

    def _gather_run(self) -> RunFacts:
        run = self._muster.run(self.run_name)
        try:
            return gather_run(self._account, run, self._spec, self._wishes.watching)
        except (UncheckedError, ClientError) as error:
            prefix = self._account.cloud.stack.job_prefix
            return RunFacts(self.run_name, prefix, problem=f"the run could not be watched: {error}")

    def _leftovers(self) -> Topic[leftovers.Leftovers]:
        poll = self._wishes.watching.poll_seconds
        return Topic(
            "Looking for what is left",
            (leftovers.JOBS, leftovers.SCHEDULES, leftovers.OBJECTS),
            lambda: leftovers.gather_leftovers(self._account, self.run_name, self._lifecycle, poll),
            leftovers.judge_leftovers,
        )

    def _plan(self) -> DryRun:
        try:
            return self._muster.plan(self._spec)
        except SpecError as error:
            if all(problem.field == "image" for problem in error.problems) and self._wishes.image is None:
                raise NoImageError(self._account.cloud.stack.name) from error
            raise

    def _needed(self) -> Sequence[Quota]:
        """The quotas that the run and the caller's spec need, each once, with the larger need."""
        ranks = [self._spec.of_rank(rank) for rank in range(self._spec.replicas)]
        found = quotas(ranks)
        if self._wishes.spec is not None:
            found += self._muster.plan(self._wishes.spec).quotas
        needs: dict[str, Quota] = {}
        for need in found:
            known = needs.get(need.name)
            if known is None or known.instances < need.instances:
                needs[need.name] = need
        return list(needs.values())

    def _image(self) -> str:
        if self._dry is None:
            return ""
        algorithm = self._dry.requests[0]["AlgorithmSpecification"]
        image = algorithm.get("TrainingImage") if isinstance(algorithm, dict) else None
        return image if isinstance(image, str) else ""


def _of(topic: Topic[Any], announce: Announce) -> Iterator[Check]:
    announce(topic.doing)
    return topic.checks()
