"""An elastic run in memory, with the part of its workflow: each rank's calls of attempt, until it ends."""

from itertools import count
from typing import Any

from muster.control.active_run import ActiveRun
from muster.control.stop import StopRequest, stop_run
from muster.options.elastic.contract.seats import ParkedSeat, Seats, parked_key, seats_key
from muster.options.elastic.control.seat_changes import ScaleRequest, scale
from tests.memory.harness import RUN, ControlHarness, budget
from tests.support.control_steps import found

RANGE = {"min": 1, "start": 2, "max": 4}
NO_CAPACITY = "CapacityError: Unable to provision requested ML compute capacity"
PER_SECOND = 10


class ElasticRun:
    """A run of `RANGE`, planned and with every rank's first call made."""

    def __init__(self, harness: ControlHarness, run: str = RUN, **fields: Any) -> None:
        self.harness, self.name = harness, run
        self.run: ActiveRun = harness.plan(run, **{"replicas": RANGE, **fields})
        self._asked = count()
        self.tokens: dict[int, str] = {}
        """Of the ranks whose workflow waits."""
        self.event: Any = None
        """The last one of a job, for a test that lets it come twice."""
        self.attempts = dict.fromkeys(range(self.run.plan.spec.replicas), 1)
        self.states: dict[int, dict[str, Any]] = {}
        """With which each workflow went on last."""
        for rank in self.attempts:
            self.arm(rank)
        self.go_on()

    def arm(self, rank: int) -> str:
        """A rank's workflow calls attempt, after a time-out with a new token."""
        request = self.harness.request(rank, self.attempts[rank], self.name)
        self.tokens[rank] = request.token
        return self.harness.attempt(request).value

    def go_on(self) -> None:
        """Let every event be seen, and every workflow continue that has got an answer, until all wait or have ended."""
        while True:
            self.harness.deliver()
            answers = {rank: self.harness.output(token) for rank, token in sorted(self.tokens.items())}
            answered = {rank: state for rank, state in answers.items() if state is not None}
            if not answered:
                return
            for rank, state in answered.items():
                self.states[rank] = state
                del self.tokens[rank]
                if state["next"] == "stop":
                    stop_run(self.harness.plane, StopRequest(run=self.name, reason=state["reason"]), budget())
                elif state["next"] == "rerun":
                    self.harness.cloud.clock.advance(state["delay_seconds"])
                    self.attempts[rank] = state["attempt"]
                    self.arm(rank)

    def scale(self, replicas: int, by: str | None = None, time: str | None = None) -> str:
        """Ask for so many replicas, and let what follows happen."""
        return self.asked(replicas, by, time, go_on=True)

    def asked(self, replicas: int, by: str | None = None, time: str | None = None, *, go_on: bool = False) -> str:
        """Ask for so many replicas, at this time as EventBridge says, and let nothing that follows happen."""
        request = ScaleRequest(run=self.name, replicas=replicas, by=by or f"request {next(self._asked)}", time=time)
        answer = scale(self.harness.plane, request, PER_SECOND, budget())
        if go_on:
            self.go_on()
        return answer

    def train(self) -> None:
        """Let all jobs come to train."""
        for name in self.harness.cloud.training.names("InProgress"):
            self.harness.cloud.training.train(name)
        self.go_on()

    def fail(self, rank: int, reason: str = NO_CAPACITY) -> None:
        """Let the present job of a rank fail."""
        self.harness.cloud.training.fail(self.harness.job(rank, self.attempts[rank], self.name), reason)
        self.go_on()

    def complete(self, rank: int) -> None:
        """Let the present job of a rank complete."""
        self.harness.cloud.training.complete(self.harness.job(rank, self.attempts[rank], self.name))
        self.go_on()

    def stopped(self) -> None:
        """Let the jobs that were asked to stop end."""
        self.harness.cloud.clock.advance(self.harness.cloud.training.stop_seconds + 1)
        self.go_on()

    @property
    def jobs(self) -> list[str]:
        """The ranks and attempts of the jobs that nobody stops."""
        names = self.harness.cloud.training.names("InProgress")
        return sorted(name.removeprefix(f"muster-{self.name}-") for name in names)

    @property
    def seats(self) -> Seats:
        """The seats as they stand."""
        return found(self.harness.plane.store.document(Seats, seats_key(self.name)))

    def parked(self, rank: int) -> ParkedSeat:
        """What is kept of a parked seat."""
        return found(self.harness.plane.store.document(ParkedSeat, parked_key(self.name, rank)))
