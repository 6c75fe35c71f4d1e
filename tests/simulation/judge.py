"""The invariants: what holds in every schedule, whatever happens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from muster.client.runs.observer import Observer
from muster.client.runs.run_list import RunFilter, list_runs
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.document import StoredDocument
from muster.contract.layout import RunLayout
from muster.contract.run.attempt import Attempt, rule_of_end
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.plan import Plan
from muster.contract.run.record import Record
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard
from muster.contract.run.run_queue import QUEUE_KEY, Queue
from muster.contract.run.where import Where
from muster.contract.spec.places import HOME
from muster.options.elastic.contract.seats import ParkedSeat, Seats, parked_key, parked_prefix, ranks_in, seats_key
from tests.simulation.functions import PREFIX, SKEW_MAX, Cause, Invocation
from tests.simulation.kernel import START
from tests.simulation.lives import Life, job_parts
from tests.simulation.scenario import LATE_SWEEP_SECONDS
from tests.support.function_rights import may
from tests.support.memory_client import client_of

if TYPE_CHECKING:
    from tests.simulation.simulated_aws import Caller
    from tests.simulation.world import Execution, World

D = TypeVar("D", bound=StoredDocument)

_ALIVE_SECONDS = 15 * 60.0
_ENDS_SECONDS = 3_600.0
_PATIENT_SECONDS = 7_200.0
"""A user calls it a failure of Muster if a state gives up sooner."""
_ASYNC_SECONDS = 50 * 60.0
"""Lambda: three tries of fifteen minutes each, and the waits between them."""
_SETTLING_SECONDS = 60.0
"""From the look at the jobs until the result is written, and more than clocks differ."""
_SHORTAGES = {FailureClass.CAPACITY, FailureClass.QUOTA}
_STOPS = {FailureClass.STOPPED_BY_USER, FailureClass.STOPPED_BY_MUSTER}
_WATCHED = {
    "stepfunctions": ("DescribeExecution",),
    "sagemaker": ("StopTrainingJob", "ListTrainingJobs", "DescribeTrainingJob", "ListTags"),
    "s3": ("GetObject", "PutObject", "ListObjectsV2", "HeadObject"),
    "kubernetes": ("GetJob", "ListJobs", "DeleteJob"),
    "eks": ("DescribeCluster",),
}
_PATIENT = {"sagemaker", "kubernetes", "eks"}
"""The services whose refusals a function that stops a run waits out for as long as it has time."""


def _is_excused(execution: Execution) -> bool:
    """Whether states gave up because of faults that lasted for more than two hours."""
    # The map only repeats what a child has failed of.
    given_up = [one for one in execution.gave_up if one.state != "Train the replicas"]
    return bool(given_up) and all(one.injected and one.seconds > _PATIENT_SECONDS for one in given_up)


class Judge:
    """Watches a schedule, and looks at everything at its end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._injured: dict[str, list[tuple[float, str]]] = {}
        self._missed: dict[str, list[Invocation]] = {}
        """Who has looked in vain for a job that does not exist yet."""

    # --- while things happen -------------------------------------------------------------------

    def job_missed(self, job: str) -> None:
        """A call finds no such job: one of the replica's workflow may record that none was created."""
        caller = self._caller()
        _, run, rank, _ = job_parts(job)
        if caller is not None and caller.label == f"{run}/{rank}":
            self._missed.setdefault(job, []).append(caller)

    def job_created(self, life: Life) -> None:
        """Never two jobs of a replica, except where SageMaker's answers lied."""
        world = self._world
        # Of two calls for one attempt SageMaker refused one, and then took the other.
        life.came_late = life.came_late or self._is_refused(life)
        creator = self._caller()
        life.was_missed = any(one.is_under_way and one is not creator for one in self._missed.pop(life.name, ()))
        others = [other for other in world.lives.living(life.run, life.rank) if other is not life]
        if others:
            world.reach("two jobs of a replica")
            if not any(self._came_late(one) or self._is_left(one) for one in (*others, life)):
                names = ", ".join(other.name for other in others)
                world.violate("two jobs", f"{life.name} is created while {names} lives")
        execution = world.executions.get(life.run)
        if execution is not None and execution.ended is not None and not life.came_late:
            world.reach("a job is created after its run's end")
        self._check_cap()

    @property
    def is_injured(self) -> bool:
        """Whether a function has failed for a reason of its own."""
        return bool(self._injured)

    def recorded(self, life: Life) -> Attempt | None:
        """What the record says of a job."""
        record = self._document(Record, RunLayout(life.run).record(life.rank))
        attempts = () if record is None else record.attempts
        return next((attempt for attempt in attempts if attempt.job == life.name), None)

    def recorded_where(self, life: Life) -> Where | None:
        """Where the record says that a job is."""
        attempt = self.recorded(life)
        return None if attempt is None else attempt.where

    def _is_left(self, life: Life) -> bool:
        """Whether its attempt was given up because its place was silent."""
        where = self.recorded_where(life)
        return where is not None and where.silent_since is not None

    def _is_refused(self, life: Life) -> bool:
        """Whether the record says that no such job was created."""
        attempt = self.recorded(life)
        return attempt is not None and not attempt.was_created

    def _caller(self) -> Invocation | None:
        current = self._world.kernel.current
        return current.owner if current is not None and isinstance(current.owner, Invocation) else None

    def _came_late(self, life: Life) -> bool:
        """Whether nobody could know of it; also where a call that had missed it has recorded that there is none."""
        life.came_late = life.came_late or (life.was_missed and self._is_refused(life))
        return life.came_late

    def _check_cap(self) -> None:
        world = self._world
        if world.scenario.cap is None:
            return
        # Nobody can count a job of whose creation SageMaker has said that it failed, nor waits for a silent place.
        jobs = [life for life in world.lives.jobs.values() if life.ended is None and not life.came_late]
        living = {life.run for life in jobs if world.places is None or not self._is_left(life)}
        # A run that is being stopped leaves the queue once its jobs have ended, as far as SageMaker lists them.
        running = [run for run in living if world.executions[run].ended is None and self.fence(run) is None]
        plans = [plan for run in running if (plan := self.plan(run))]
        used = sum(plan.spec.replicas for plan in plans)
        if used > world.scenario.largest_cap and len(plans) > 1:
            world.violate("cap", f"{used} replicas of {', '.join(plan.run for plan in plans)} run at once")

    def job_stopped(self, job: str, caller: str) -> None:
        """Muster stops no job of a run that goes on."""
        world = self._world
        life = world.lives.jobs.get(job)
        if life is None or life.ended is not None:
            return
        life.stopped_by.append(caller)
        execution = world.executions[life.run]
        newer = any(other.attempt > life.attempt for other in world.lives.of(life.run, life.rank))
        record = self._document(Record, RunLayout(life.run).record(life.rank))
        leaves = record is not None and record.leaves == life.attempt
        if leaves:
            world.reach("the job of a closed seat is stopped")
        allowed = (
            newer
            or self._came_late(life)
            or leaves
            or self._is_left(life)
            or caller.startswith("settle")
            or execution.gave_up_launches
        )
        if execution.ended is None and self.fence(life.run) is None and not allowed:
            world.violate("stopped a living run's job", f"{caller} stops {job}")

    def object_called(self, caller: Caller, operation: str, parameters: dict[str, Any]) -> None:
        """A function does with the bucket what its role allows. The rights for places are not in the table."""
        if isinstance(caller, Invocation) and not may(caller.function_name, operation, parameters):
            where = parameters.get("Key") or parameters.get("Prefix")
            self._world.violate("a function lacks a right", f"{caller.function_name}: {operation} {where}")

    def held(self, label: str) -> None:
        """The seat `run/rank` is parked: as long as it is, it has no job."""
        run, _, rank = label.partition("/")
        if waits := self._waiting(run, {int(rank)}):
            self._world.kernel.after(_ALIVE_SECONDS, lambda: self._check_held(run, waits))

    def _check_held(self, run: str, waits: set[ParkedSeat]) -> None:
        for seat in waits & self._waiting(run, {seat.rank for seat in waits}):
            living = [life.name for life in self._world.lives.living(run, seat.rank) if not life.came_late]
            if living and not self._world.faults.storms and self._marks(run) == ([], False):
                self._world.violate("a parked seat has a job", f"{living}; {seat}")

    def scaled(self, run: str) -> None:
        """Within half an hour, every open seat has been launched."""
        self._world.kernel.after(_ALIVE_SECONDS, lambda: self._check_open(run))

    def _check_open(self, run: str, before: set[ParkedSeat] | None = None) -> None:
        world, seats, execution = self._world, self.seats(run), self._world.executions.get(run)
        if seats is None or execution is None or seats.ended or self.fence(run) or execution.ended is not None:
            return
        if world.faults.storms or self._marks(run) != ([], False) or execution.gave_up:
            return
        waits = {seat for seat in self._waiting(run, seats.open_ranks) if seat.until is None}
        if before is None and waits:
            world.kernel.after(_ALIVE_SECONDS, lambda: self._check_open(run, waits))
        for seat in waits & (before or set()):
            world.violate("an open seat waits", f"{run}: {seat}")

    def _waiting(self, run: str, ranks: set[int]) -> set[ParkedSeat]:
        """The seats whose tokens are kept, and whose next attempt has not been launched."""
        found = set()
        for rank in ranks:
            record = self._document(Record, RunLayout(run).record(rank))
            parked = self._document(ParkedSeat, parked_key(run, rank))
            if parked is not None and parked.attempt > (0 if record is None else len(record.attempts)):
                found.add(parked)
        return found

    def seats(self, run: str) -> Seats | None:
        return self._document(Seats, seats_key(run))

    def event_seen(self, job: str, status: str) -> None:
        """React has seen an event: where the job has a successor, it is stopped."""
        world = self._world
        life = world.lives.jobs[job]
        if status != "InProgress" or life.status != "InProgress":
            return
        if any(other.attempt > life.attempt for other in world.lives.of(life.run, life.rank)):
            world.violate("the older of two jobs lives on", f"react has seen an event of {job}")

    def invocation_failed(self, invocation: Invocation, cause: Cause) -> None:
        run = invocation.label.partition(" ")[0].partition("/")[0]
        if cause.injected:
            self._injured.setdefault(run, []).append((self._world.kernel.seconds, invocation.function_name))

    def execution_ended(self, execution: Execution) -> None:
        """Fifteen minutes later nothing of the run is alive."""
        self._world.kernel.after(_ALIVE_SECONDS, lambda: self._check_dead(execution))
        if self._world.scenario.cap is not None:
            self._world.kernel.after(_ENDS_SECONDS, self._check_told)

    def _check_told(self) -> None:
        """An hour after a run has left the queue, no run that was admitted in its place still waits."""
        untold = self._untold()
        if untold:
            # A function may just be about to tell it.
            self._world.kernel.after(_ALIVE_SECONDS, lambda: self._check_still_untold(untold))

    def _check_still_untold(self, before: set[str]) -> None:
        for run in sorted(before & self._untold()):
            self._world.violate("queue", f"{run} was admitted and is not told")

    def _untold(self) -> set[str]:
        """The runs that are admitted and wait."""
        world, queue = self._world, self._document(Queue, QUEUE_KEY)
        if queue is None or world.faults.storms or self._injured or world.were_dead_letters or world.lost_events:
            return set()
        waiting = {name for name, one in world.executions.items() if one.ended is None and one.is_waiting}
        return {queued.run for queued in queue.runs if queued.admitted} & waiting

    def _check_dead(self, execution: Execution) -> None:
        world, name = self._world, execution.name
        if execution.ended is None or world.kernel.seconds < execution.ended + _ALIVE_SECONDS:
            return  # it was redriven
        living = [life for life in world.lives.living(name) if not life.came_late or life.began < execution.ended]
        if not living:
            return
        status = world.workflow.status(name)
        if f"{name} {status}" in world.lost_events or (status == "RUNNING"):
            return
        if any(life.came_late for life in living) and status == "SUCCEEDED":
            return
        now = world.kernel.seconds
        is_silent = world.places is not None and world.places.silent_until(execution.began)
        again = execution.ended + (LATE_SWEEP_SECONDS + _ALIVE_SECONDS if is_silent else 0.0)
        for service, operations in (_WATCHED | _watched_elsewhere(living)).items():
            for operation in operations:
                until = world.faults.refused_until(service, operation, execution.ended)
                patience = _ALIVE_SECONDS if service.partition("@")[0] in _PATIENT else _ASYNC_SECONDS
                again = max(again, until + patience if until > execution.ended else again)
        if again > execution.ended + _ASYNC_SECONDS and f"{name} {status}" in world.were_dead_letters:
            # All tries of stop were refused: what is left is the sweep's.
            again = max(again, execution.ended + LATE_SWEEP_SECONDS + _ALIVE_SECONDS)
        for at, function in self._injured.get(name, ()):
            if (
                function in {"stop", "settle", "attempt", "react", "look", "timer"}
                and at > execution.ended - _ALIVE_SECONDS
            ):
                again = max(again, at + _ASYNC_SECONDS)
        if any(event.startswith(life.name) for life in living for event in world.lost_events):
            again = max(again, execution.ended + _ASYNC_SECONDS)
        if again > now:
            world.kernel.at(again, lambda: self._check_dead(execution))
            return
        # Only what failed for a reason of its own may become a dead letter: a refusal ends sooner than the patience.
        if self._injured.get(name) and any(letter.startswith(name) for letter in world.were_dead_letters):
            return
        jobs = ", ".join(f"{life.name} ({life.status})" for life in living)
        world.violate("alive after the end", f"{jobs}: {now - execution.ended:.0f} s after the end of {name}")

    # --- at the end ------------------------------------------------------------------------------

    def at_the_end(self) -> None:
        """Nothing is due any more: every run has ended, and all who know of it agree."""
        world = self._world
        for name, execution in world.executions.items():
            if execution.ended is None:
                world.violate("endless run", f"{name} is still running")
                return
        for name, execution in list(world.executions.items()):
            plan = self.plan(name)
            status = world.workflow.status(name)
            if plan is None:
                world.reach("a run without a plan")
                if world.lives.of(name):
                    world.violate("no plan", f"{name} has jobs")
                continue
            result = self.result(name)
            world.reach(f"end: {status}, {result.verdict if result else None}")
            if result is None:
                world.violate("no result", f"{name} has ended as {status}")
                continue
            self._check_verdict(execution, status, plan, result)
            self._count_ends(plan, result)
            for replica in result.replicas:
                self._check_replica(execution, replica)
                self._check_budgets(plan, replica)
                self._check_rules(plan, replica)
            self._check_records(name)
            self._check_seats(plan, result)
            self._check_times(execution, plan, result)
        self._check_continuations()
        self._check_queue()
        self._check_client()
        for one in world.cloud.kubernetes.associations.values():
            world.violate("rights for ever", f"the pods of {one.account} keep their rights")
        for life in world.lives.jobs.values():
            if life.ended is None:
                world.violate("alive for ever", f"{life.name} is {life.status}")

    def _check_verdict(self, execution: Execution, status: str, plan: Plan, result: Result) -> None:
        name, spec, fence, excused = execution.name, plan.spec, self.fence(execution.name), _is_excused(execution)
        ends = [self._decisive(name, rank) for rank in range(spec.replicas)]
        completed = sum(life is not None and _completed(life) for life in ends)
        # What nobody could see may complete in place of a seat that looks for capacity.
        seen = sum(life is not None and _completed(life) and not self._is_unseen(life, result) for life in ends)
        sure = completed if spec.elastic is None else seen
        succeeded, failed = result.verdict is Verdict.SUCCEEDED, result.verdict is Verdict.FAILED
        # Where the run was stopped before the last one completed, it may have been settled before.
        early = execution.cancelled_at is not None or fence is not None or excused
        lost = len(self._under(f"control/{plan.run}/lost/"))
        lost_quorum = fence is not None and fence.cause is FenceCause.QUORUM_LOST
        cancel_failed = execution.is_cancelled and failed and not execution.was_settling
        for broken, invariant in (
            (succeeded and completed < spec.quorum, "untrue success"),
            (sure == spec.replicas and not succeeded and not early, "lost success"),
            (result.verdict is Verdict.STOPPED and execution.cancelled_at is None, "untrue stop"),
            (cancel_failed, "a cancel is a failure"),
            (status == "SUCCEEDED" and not succeeded, "execution and result"),
            (status == "FAILED" and succeeded and not excused, "a success became a failure"),
            (failed and fence is None and sure >= spec.quorum and not excused, "untrue failure"),
            (spec.sweep and lost_quorum and lost <= spec.replicas - spec.quorum, "a sweep is stopped with its quorum"),
            (execution.gave_up and not excused, "Muster failed"),
        ):
            if broken:
                what = f"{status}, {result.verdict}; {completed} of {spec.replicas} completed, {spec.quorum} needed"
                gave_up = f"{lost} lost; fence {fence}; gave up {execution.gave_up}"
                self._world.violate(invariant, f"{name}: {what}; {gave_up}")

    def _count_ends(self, plan: Plan, result: Result) -> None:
        reach = self._world.reach
        if (fence := self.fence(plan.run)) is not None:
            reach(f"fence: {fence.cause}")
        outcomes = [replica.outcome for replica in result.replicas]
        if plan.spec.sweep and result.verdict is Verdict.SUCCEEDED and ReplicaOutcome.FAILED in outcomes:
            reach("a replica of a sweep is lost, and the others train on")
        if result.verdict is Verdict.SUCCEEDED and ReplicaOutcome.FAILED in outcomes:
            reach("a replica is lost, and the run succeeds")
        for replica in result.replicas:
            if replica.outcome is ReplicaOutcome.SUCCEEDED and len(replica.attempts) > 1:
                reach("a replica is rerun, and succeeds")
        for key, body in self._under(f"control/{plan.run}/replicas/"):
            decision = Record.from_json(body, key).decision
            if decision is not None and "cost ceiling" in decision.reason:
                reach("the cost ceiling prevents a rerun")

    def _check_seats(self, plan: Plan, result: Result) -> None:
        """No seat is lost from what was wanted, what was open was launched, and with too few the run was stopped."""
        world, seats, elastic = self._world, self.seats(plan.run), plan.spec.elastic
        if elastic is None or seats is None:
            return
        marks = self._under(RunLayout(plan.run).lost)
        ranks, lost = seats.open_ranks, {int(key.rpartition("/")[2]) for key, _ in marks}
        in_bounds = elastic.min <= seats.wanted <= plan.spec.replicas
        # A seat may be closed while its replica is lost. It is not opened again: then all others may be too few.
        enough = seats.wanted <= len(ranks) or ranks | lost == {*range(plan.spec.replicas)}
        if not in_bounds or not enough or len(ranks - lost) > seats.wanted:
            world.violate("seats", f"{plan.run}: {seats.wanted} are wanted; open {seats.open}; lost {lost}")
        if len(ranks - lost) < elastic.min and seats.ended is None and self.fence(plan.run) is None:
            world.violate("seats", f"{plan.run}: {elastic.min} are needed; open {seats.open}; lost {lost}")
        for replica in result.replicas:
            rank, lives = replica.rank, world.lives.of(plan.run, replica.rank)
            late = seats.ended is not None and seats.opening(rank) is not None
            excused = late or self.fence(plan.run) is not None or bool(replica.attempts)
            if not lives and rank in ranks and not excused:
                world.violate("seats", f"{plan.run}: the open rank {rank} was never launched")
            last = self._decisive(plan.run, rank)
            completed = last is not None and _completed(last) and not self._is_unseen(last, result)
            if replica.outcome is ReplicaOutcome.PARKED and completed:
                world.violate("untrue outcome", f"{plan.run}: replica {rank} is parked and has completed")
            if any(ended.is_shortage for ended in replica.attempts) and rank in self._parked(plan.run):
                world.reach("a seat without capacity is parked")
            if seats.opening(rank) is not None and len(lives) > 1:
                world.reach("a seat is opened again")
        if plan.lineage is not None and seats.wanted != elastic.start:
            world.reach("a continuation keeps its seats")

    def _is_unseen(self, life: Life, result: Result) -> bool:
        """Whether the settlement could not know its end: SageMaker said that there is no such job, or was silent."""
        at = (timestamps.parse(result.settled_at) - START).total_seconds()
        lately = at - _SETTLING_SECONDS
        silent = any(
            storm.service == life.place and storm.begin < at + SKEW_MAX and storm.end > lately
            for storm in self._world.faults.storms
        )
        return life.came_late or (self._is_left(life) and (silent or life.ended is None or life.ended > lately))

    def _parked(self, run: str) -> set[int]:
        """The seats that were parked."""
        return {ParkedSeat.from_json(body, key).rank for key, body in self._under(parked_prefix(run))}

    def _was_closed(self, run: str, rank: int) -> bool:
        seats = self.seats(run)
        return seats is not None and (
            rank not in seats.open_ranks or any(rank in ranks_in(one.closed) for one in seats.scalings)
        )

    def _decisive(self, run: str, rank: int) -> Life | None:
        """The job whose end is its replica's: the newest one that was not left behind, or that has completed since."""
        lives = sorted(self._world.lives.of(run, rank), key=lambda life: -life.attempt)
        decisive = (life for life in lives if _completed(life) or not self._is_left(life))
        return next(decisive, next(iter(lives), None))

    def _last(self, run: str, rank: int) -> Life | None:
        lives = self._world.lives.of(run, rank)
        return max(lives, key=lambda life: life.attempt) if lives else None

    def _check_replica(self, execution: Execution, replica: ReplicaResult) -> None:
        world = self._world
        name = execution.name
        lives = {life.name: life for life in world.lives.of(name, replica.rank)}
        if replica.outcome is ReplicaOutcome.NOT_LAUNCHED and any(not life.came_late for life in lives.values()):
            created = min(life.began for life in lives.values())
            world.violate("untrue outcome", f"{name}: {replica.rank} is not-launched; a job was created at {created}")
        if replica.outcome is ReplicaOutcome.SUCCEEDED:
            life = lives.get(replica.attempts[-1].job)
            if life is None or life.end is None or life.end.status != "Completed":
                world.violate("untrue outcome", f"{name}: replica {replica.rank} did not succeed")
        for attempt in replica.attempts:
            self._check_attempt(name, attempt, lives.get(attempt.job))

    def _check_attempt(self, run: str, attempt: Attempt, life: Life | None) -> None:
        world = self._world
        where = attempt.where
        if where is not None and life is not None and life.place != where.place:
            world.violate("another place", f"{life.name} is in {life.place}, and recorded in {where.place}")
        if where is not None and where.silent_since is not None:
            world.reach("a silent place" if where.may_run else "a place that answered again")
            return  # nobody could know
        if not attempt.was_created:
            # A cluster forgets a job that is deleted: where the call that created it got no answer, nobody knows of it.
            is_forgotten = attempt.cluster is not None and attempt.failure_class is FailureClass.STOPPED_BY_MUSTER
            # Of two calls at once one may have created the job after the other, which recorded this, had looked for it.
            if life is not None and not (life.came_late or life.was_missed) and not is_forgotten:
                world.violate("untrue class", f"{attempt.job} is recorded as not created: {attempt.reason}")
            return
        if attempt.ended_at is None:
            return
        if life is None or life.end is None:
            world.violate("untrue class", f"{attempt.job} has ended as {attempt.status}, but it has not")
            return
        wanted = {life.end.failure_class}
        if life.end.failure_class in _STOPS:
            wanted = {
                *({FailureClass.STOPPED_BY_USER} if "a user" in life.stopped_by else ()),
                *({FailureClass.STOPPED_BY_MUSTER} if self.fence(run) or life.stopped_by != ["a user"] else ()),
            }
        if self._was_closed(run, life.rank):
            wanted.add(FailureClass.STOPPED_BY_MUSTER)  # however it ended
        if life.came_late:
            # It was refused, and then created after all: the refusal stays its end. So does the stop of its run before.
            wanted |= {FailureClass.QUOTA} | ({FailureClass.STOPPED_BY_MUSTER} if self.fence(run) else set())
        if self._world.executions[run].gave_up_launches:
            # It could not be checked for hours, so it was stopped.
            wanted.add(FailureClass.UNKNOWN)
        if attempt.failure_class not in wanted:
            found = f"{attempt.failure_class}, not {life.end.failure_class}; stopped by {life.stopped_by}"
            world.violate("untrue class", f"{attempt.job} is {found}")

    def _marks(self, run: str) -> tuple[list[float], bool]:
        """When a function of a run, or a timer, failed for a reason of its own; and whether an event did not come."""

        def concerns(label: str) -> bool:
            return label.partition(" ")[0].partition("/")[0] in {run, "timer"} or label.startswith(f"{PREFIX}-{run}-r")

        failures = [at for label, found in self._injured.items() if concerns(label) for at, _ in found]
        return failures, any(map(concerns, (*self._world.lost_events, *self._world.were_dead_letters)))

    def _check_times(self, execution: Execution, plan: Plan, result: Result) -> None:
        """Where every event came, nothing waits for a time-out or a sweep."""
        world, name = self._world, execution.name
        lives = [life for life in world.lives.of(name) if not life.came_late]
        failures, is_lost = self._marks(name)
        if execution.ended is None or not lives or is_lost or execution.gave_up or execution.redriven_at is not None:
            return
        last = max(life.ended or 0.0 for life in lives)
        # A later call may have adopted a job that came late.
        very_last = max(life.ended or 0.0 for life in world.lives.of(name))
        storms = [storm.end for storm in world.faults.storms if storm.begin < execution.ended]
        if execution.ended > max(very_last, *failures, *storms, 0.0) + _ENDS_SECONDS:
            world.violate("late end", f"{name} ended {execution.ended - very_last:.0f} s after its last job")
        marks = [*failures, *storms]
        stopping = world.cloud.training.stop_seconds + _ALIVE_SECONDS
        began = min(life.began for life in lives)  # the time in the run queue does not count
        limit = plan.spec.deadline_seconds
        # What fails at the launch may leave the run without its timer.
        if limit is not None and not marks and last > began + limit + stopping:
            world.violate("deadline", f"a job of {name} ended {last - began - limit:.0f} s after its deadline")
        stopped = [replica.attempts[-1].job for replica in result.replicas if self._stops(plan, replica)]
        ends = [life.ended for job in stopped if (life := world.lives.jobs.get(job)) is not None and life.ended]
        if ends and not _any_from(marks, min(ends)) and last > min(ends) + stopping:
            world.violate("stop", f"a job of {name} ended {last - min(ends):.0f} s after a rule stopped the run")
        lost = sorted(
            life.ended
            for rank in range(plan.spec.replicas)
            if (life := self._last(name, rank)) is not None and life.ended is not None and self._is_lost(life)
        )
        needless = len(lost) - (plan.spec.replicas - plan.spec.quorum) - 1
        if result.verdict is Verdict.FAILED and needless >= 0 and plan.spec.elastic is None:
            decisive = lost[len(lost) - 1 - needless]
            if not _any_from(marks, decisive) and last > decisive + stopping:
                world.violate("quorum", f"a job of {name} ended {last - decisive:.0f} s after the quorum was lost")

    def _check_budgets(self, plan: Plan, replica: ReplicaResult) -> None:
        """No replica has more reruns for a failure class than its budget, nor more by rules of `watch`."""
        ends = [attempt.failure_class for attempt in replica.attempts if rule_of_end(attempt) is None]
        if replica.attempts and rule_of_end(replica.attempts[-1]) is not None:
            ends.append(None)  # what came before was followed by a rerun
        unbounded = set() if plan.spec.elastic is None else {*_SHORTAGES, FailureClass.STOPPED_BY_MUSTER}
        for kind in {kind for kind in ends[:-1] if kind is not None} - unbounded:
            allowed = plan.spec.budget(kind).max_reruns
            if ends[:-1].count(kind) > allowed:
                what = f"{plan.run}: replica {replica.rank} was rerun after {ends[:-1]}"
                self._world.violate("too many reruns", f"{what}; {allowed} are allowed for {kind}")

    def _check_rules(self, plan: Plan, replica: ReplicaResult) -> None:
        """Restarts by rules are bounded, and what stops the run is followed by no rerun."""
        rules, world = plan.spec.watch, self._world
        met = [rule for attempt in replica.attempts[:-1] if (rule := rule_of_end(attempt)) is not None]
        where = f"{plan.run}: replica {replica.rank}"
        if any(rules.then(rule) == "stop" for rule in met):
            world.violate("a stop is followed by a rerun", f"{where} after {met}")
        if len(met) > rules.max_restarts:
            world.violate("too many reruns", f"{where} was restarted {len(met)} times; allowed: {rules.max_restarts}")
        if met:
            world.reach("a replica that hung is rerun")
        if self._stops(plan, replica):
            world.reach("a replica that hung stops its run")

    @staticmethod
    def _stops(plan: Plan, replica: ReplicaResult) -> bool:
        rule = rule_of_end(replica.attempts[-1]) if replica.attempts else None
        # In a sweep it ends this replica alone.
        return rule is not None and plan.spec.watch.then(rule) == "stop" and not plan.spec.sweep

    @staticmethod
    def _is_lost(life: Life) -> bool:
        return life.end is not None and life.end.status != "Completed" and set(life.stopped_by) <= {"a user"}

    def _check_records(self, run: str) -> None:
        """The roll-up says what the records say, and each attempt's end is true there, too."""
        world = self._world
        entries = {
            entry.rank: entry
            for key, body in self._under(RunLayout(run).roll_up)
            for entry in RollUpShard.from_json(body, key).replicas
        }
        for key, body in self._under(f"control/{run}/replicas/"):
            record = Record.from_json(body, key)
            for attempt in record.attempts:
                life = world.lives.jobs.get(attempt.job)
                self._check_attempt(run, attempt, life)
            entry = entries.get(record.rank)
            agrees = entry is not None and entry.says_the_same(ReplicaEntry.of(record))
            # What a dead letter left undone is done when it is replayed.
            if not agrees and not self._injured.get(run) and not self._marks(run)[1]:
                world.violate("roll-up", f"{run}: replica {record.rank} differs from its record")

    def _check_continuations(self) -> None:
        world = self._world
        for name, execution in world.executions.items():
            parent = execution.flow.context["Execution"]["Input"].get("resume_from")
            if parent is None:
                continue
            world.reach("a continuation")
            plan, root = self.plan(parent), name.partition("-x")[0]
            count = sum(one.startswith(f"{root}-x") for one in world.executions)
            if plan is None or plan.spec.continuation_policy is None or count > plan.spec.continuation_policy.max:
                world.violate("too many continuations", f"{name} of {parent}")
            cancelled_at = self._cancelled_at(world.executions[parent])
            # One that was started at the same time is refused before it has a plan.
            if cancelled_at is not None and execution.began > cancelled_at and self.plan(name) is not None:
                world.violate("a cancelled run is continued", f"{parent}, cancelled, by {name}")
            fence, ended = self.fence(parent), self.result(parent)
            if plan is not None and ended is not None and any(self._stops(plan, one) for one in ended.replicas):
                world.violate("a limit is evaded", f"{parent}, which a rule of watch has stopped, by {name}")
            if fence is not None and fence.cause.is_limit:
                world.violate("a limit is evaded", f"{parent}, which has reached its {fence.cause}, by {name}")

    def _cancelled_at(self, execution: Execution) -> float | None:
        """Since when a run stays cancelled. A redrive takes a cancel back that no fence holds by then."""
        if execution.is_cancelled:
            return execution.cancelled_at
        fence = self.fence(execution.name)
        if fence is None or not fence.is_cancellation:
            return None
        stored: Any = self._world.cloud.s3.peek("bucket", RunLayout(execution.name).fence)
        return (stored.modified_at - START).total_seconds() + 1  # S3 has whole seconds

    def _check_queue(self) -> None:
        queue = self._document(Queue, QUEUE_KEY)
        for queued in () if queue is None else queue.runs:
            if not queued.admitted:
                self._world.violate("queue", f"{queued.run} has ended and waits")
            elif self.result(queued.run) is not None and not self._injured.get(queued.run):
                self._world.violate("queue", f"{queued.run} has ended and keeps its place")

    def _check_client(self) -> None:
        """Status, list, page and result agree."""
        world = self._world
        client = client_of(world.cloud)
        found: dict[str, tuple[str, str, str]] = {}

        def look() -> None:
            listed = {one.run: one.state.value for one in list_runs(client, RunFilter(), 100 + len(world.executions))}
            for name in world.executions:
                if self.plan(name) is None:
                    continue
                status = Observer(client, name).look()
                result = self.result(name)
                verdict = "none" if result is None else result.verdict.value
                found[name] = (verdict, status.state.value, listed[name])

        world.look(look)
        for name, seen in found.items():
            excused = _is_excused(world.executions[name])
            if len(set(seen)) > 1 and not excused:
                world.violate("what clients see", f"{name}: result {seen[0]}, status {seen[1]}, list {seen[2]}")
            page = self._object(RunLayout(name).page)
            if page is not None and seen[0].encode() not in page:
                world.violate("what clients see", f"{name}: the page does not say {seen[0]}")

    # --- what is in the bucket -------------------------------------------------------------------

    @cached_property
    def _folders(self) -> Mapping[str, list[tuple[str, bytes]]]:
        """The keys and bodies at the end, by folder and run."""
        found: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
        for key, one in self._world.cloud.s3.objects("bucket").items():
            found[_folder(key)].append((key, one.body))
        return found

    def _object(self, key: str) -> bytes | None:
        found: Any = self._world.cloud.s3.peek("bucket", key)
        return None if found is None else found.body

    def _under(self, prefix: str) -> list[tuple[str, bytes]]:
        """At the end: what is below the prefix of a run, or a longer one."""
        return [(key, body) for key, body in self._folders[_folder(prefix)] if key.startswith(prefix)]

    def _document(self, kind: type[D], key: str) -> D | None:
        found = self._object(key)
        return None if found is None else kind.from_json(found, key)

    def plan(self, run: str) -> Plan | None:
        return self._document(Plan, RunLayout(run).plan)

    def result(self, run: str) -> Result | None:
        return self._document(Result, RunLayout(run).result)

    def fence(self, run: str) -> Fence | None:
        return self._document(Fence, RunLayout(run).fence)


def _watched_elsewhere(living: Sequence[Life]) -> dict[str, tuple[str, ...]]:
    """What stops jobs in places beside home: their SageMaker, in a session that home's STS gives."""
    places = {life.place for life in living} - {HOME}
    own = dict.fromkeys((f"sagemaker@{place}" for place in sorted(places)), _WATCHED["sagemaker"])
    return {**own, "sts": ("AssumeRole",)} if places else {}


def _completed(life: Life) -> bool:
    return life.end is not None and life.end.status == "Completed"


def _folder(key: str) -> str:
    """`control/run`, for instance."""
    return "/".join(key.split("/", 2)[:2])


def _any_from(marks: Sequence[float], moment: float) -> bool:
    """Whether anything went wrong after a moment: what was over before delays nothing."""
    return any(mark >= moment for mark in marks)
