"""The order of a verification: what costs nothing first, then the run, and last that nothing is left."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version

from muster.client.client_errors import InputError, UnknownRunError
from muster.client.launch.dry_run import DryRun
from muster.client.launch.estimate import Quota, quotas
from muster.client.launch.planned_places import PlannedPlace
from muster.client.sdk import Muster
from muster.contract import timestamps
from muster.contract.errors import SpecError
from muster.contract.names import fresh_run_name, time_suffix
from muster.contract.spec.places import HOME
from muster.contract.spec.spec import Spec
from muster.options import offers
from muster.options.verify.client import stack_checks
from muster.options.verify.client.check_outcomes import Check, Verification
from muster.options.verify.client.own_run import INSTANCE_TYPE, own_spec, promise
from muster.options.verify.client.permission_checks import DENIALS, permissions
from muster.options.verify.client.run_checks import CHECKS, LEFTOVERS, SmokeRun, leftovers
from muster.options.verify.client.verified_stack import Account, FreeChecks, OfferedChecks, made

Announce = Callable[[str], None]
_POLL_SECONDS = 5.0


class NoImageError(InputError):
    """The run of a verification has no image."""

    def __init__(self, stack: str) -> None:
        super().__init__(
            f"The stack {stack} has no default image for the run of the verification: name an image that has Python, "
            "with --image, or leave the run out with --no-run."
        )


class Verifier:
    """One verification of a stack. `announce` in its methods is called with what is being done, before it takes time.

    Raises:
        NoImageError: there is no image for the run.
        SpecError: the run, or the spec whose quotas are asked for, cannot be run on this stack.
        ClientError: the stack cannot be found.
    """

    def __init__(
        self,
        stack: Muster,
        *,
        run: bool = True,
        instance_type: str = INSTANCE_TYPE,
        image: str | None = None,
        spec: Spec | None = None,
    ) -> None:
        """`run`: with the run, which is what costs money; `spec`: one whose quotas are checked, too."""
        self._muster, self._account, self._instance_type = stack, Account(stack._cloud), instance_type
        self._started_at = datetime.now(UTC)
        self.run_name = fresh_run_name("verify", time_suffix(self._started_at, secrets.choice))
        self._spec = own_spec(self.run_name, instance_type, image)
        self._dry = self._plan() if run else None
        self.promise = None if self._dry is None else promise(self._dry)
        wanted = None if spec is None else stack.plan(spec)
        self._quotas = self._needed(wanted)
        self._elsewhere = [one.place for one in _places(wanted) if one.place != HOME]
        self._launched = False

    def document(self, checks: Iterable[Check]) -> Verification:
        """The verification with these checks."""
        return Verification(
            stack=self._account.cloud.stack.name,
            region=self._account.region,
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
        for names, asked in self.free().items():
            announce(f"Checking: {', '.join(names)}")
            yield from made(names, partial(asked, self._account))
        if self._dry is None:
            return
        if isinstance(algorithm := self._dry.requests[0]["AlgorithmSpecification"], dict):
            uri = str(algorithm.get("TrainingImage", ""))
            yield from made(("image",), lambda: stack_checks.image(self._account, uri))
        announce(f"Running {self.run_name}: two replicas, of which one fails once on purpose")
        self._launched = True
        run = SmokeRun(self._account, self._muster.run(self.run_name), _POLL_SECONDS)
        try:
            yield from made(CHECKS, lambda: run.checks(self._spec))
        except Exception:
            yield from self.clean_up(announce)
            raise
        yield from self.clean_up(announce)

    def clean_up(self, announce: Announce) -> Iterator[Check]:
        """Cancel the run if it still runs, wait until no job of it is left, and remove what it left."""
        if not self._launched:
            return
        announce(f"Cancelling {self.run_name}, and waiting for the end of its jobs")
        try:
            self._muster.run(self.run_name).cancel()
        except UnknownRunError:
            return
        yield from made(LEFTOVERS, lambda: leftovers(self._account, self.run_name, _POLL_SECONDS))

    def free(self) -> FreeChecks:
        """What costs nothing, by the names of the checks."""
        defaults, found = self._account.defaults, dict(stack_checks.FREE)
        if defaults.vpc_config is not None:
            found["route-to-s3",] = stack_checks.route
        for offer in offers("client.checks", OfferedChecks):
            found |= offer.of(self._account)
        found["quota",] = partial(stack_checks.quotas, needs=self._quotas, elsewhere=self._elsewhere)
        found["permissions", DENIALS] = permissions
        found["prices",] = partial(stack_checks.prices, instance_type=self._instance_type)
        return found

    def _plan(self) -> DryRun:
        try:
            return self._muster.plan(self._spec)
        except SpecError as error:
            if all(problem.field == "image" for problem in error.problems) and self._spec.image is None:
                raise NoImageError(self._account.cloud.stack.name) from error
            raise

    def _needed(self, wanted: DryRun | None) -> list[Quota]:
        """The quotas that the run and the caller's spec need here, each once, with the larger need."""
        found = quotas([self._spec.of_rank(rank) for rank in range(self._spec.replicas)])
        found += () if wanted is None else wanted.quotas
        at_home = [one for place in _places(wanted) if place.place == HOME for one in place.quotas]
        found += [Quota(name=one.name, instances=one.instances) for one in at_home]
        return list({need.name: need for need in sorted(found, key=lambda need: need.instances)}.values())


def _places(wanted: DryRun | None) -> tuple[PlannedPlace, ...]:
    return () if wanted is None or wanted.places is None else wanted.places.places
