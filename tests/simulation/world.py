"""One schedule: a stack, its runs, their jobs and users, and what befalls them."""

import json
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from muster.contract import timestamps
from muster.contract.aws.job_status import PASSING
from muster.contract.spec.places import HOME
from muster.contract.spec.stack_defaults import StackDefaults
from tests.memory.cloud import ACCOUNT, REGION
from tests.simulation.cluster_lives import CLUSTERS, ClusterLives
from tests.simulation.defects import source
from tests.simulation.draws import Draws
from tests.simulation.faults import Faults
from tests.simulation.functions import NEW_FIELD, RETRY_SECONDS, Cause, Fleet, Invocation, Version
from tests.simulation.judge import Judge
from tests.simulation.kernel import Activity, Kernel
from tests.simulation.lives import Lives
from tests.simulation.places import Places
from tests.simulation.scenario import Kind, Scenario
from tests.simulation.simulated_aws import CAUGHT, SimulatedCloud
from tests.simulation.state_machine import Failed, Flow, Interpreter, StateError

HORIZON_SECONDS = 30 * 86_400.0
_MOST_STEPS = 1_000_000
"""Seventy replicas that train for a day under a broken function, and a continuation, take three quarters of them."""
_INVOKE_SECONDS = 960.0
"""How long the workflow waits for an invocation that Lambda does not answer."""
_EARLY_ENDS = {"ABORTED", "FAILED", "TIMED_OUT"}
_ENDS = {"Completed", "Failed", "Stopped"}


@cache
def definition() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(source("statemachine/run.asl.json"))
    return found


@dataclass
class User:
    """A caller outside of the control plane, whose calls meet no faults."""

    name: str
    pace: float = 0.02
    can_crash = False
    meets_faults = False

    def check(self) -> None:
        """It does not end."""


class GaveUp(NamedTuple):
    """A state that failed after its retries."""

    state: str
    seconds: float
    """From its first try to its last."""
    injected: bool
    """Whether the simulation caused one of its errors."""


@dataclass
class Execution:
    """An execution, as the judge sees it."""

    name: str
    began: float
    flow: Flow
    activity: Activity
    ended: float | None = None
    cancelled_at: float | None = None
    was_settling: bool = False
    """When it was cancelled: its result may have been on its way."""
    gave_up: list[GaveUp] = field(default_factory=list)
    redriven_at: float | None = None

    @property
    def is_waiting(self) -> bool:
        return self.flow.state == "Wait in the run queue"

    @property
    def gave_up_launches(self) -> bool:
        """Whether a replica was given up because its job could neither be launched nor checked for hours."""
        return any(one.state == "Launch the job and wait for its end" for one in self.gave_up)

    @property
    def is_cancelled(self) -> bool:
        """Whether a user cancelled it, and has not redriven it since."""
        return self.cancelled_at is not None and (self.redriven_at is None or self.redriven_at < self.cancelled_at)


class World:
    """The kernel, the services, the functions, and everything that happens, for one seed."""

    def __init__(
        self,
        seed: int,
        only: Collection[str] | None = None,
        *,
        tracing: bool = False,
        draws: Draws | None = None,
        kind: Kind = Kind.MIXED,
    ) -> None:
        self.tracing, self.most_steps = tracing, _MOST_STEPS
        self.trace: list[str] = []
        self.violations: list[tuple[str, str]] = []
        self.reached: Counter[str] = Counter()
        self.kernel = Kernel()
        self.draws = draws or Draws(seed, only)
        self.on_invoke: Callable[[str], None] = lambda _: None
        """Called with the name of each function that is to be invoked."""
        self.faults = Faults(self.kernel, self.draws, self.reach)
        self.cloud = SimulatedCloud(self.kernel, self.faults)
        self.workflow = self.cloud.workflow
        self.fleet = Fleet(self)
        self.executions: dict[str, Execution] = {}
        self.dead_letters: list[tuple[str, Any, str]] = []
        self.were_dead_letters: set[str] = set()
        """The labels of all that ever were: a replay comes days late."""
        self.lost_events: list[str] = []
        self.lives = Lives(self)
        self.cluster_lives: ClusterLives | None = None
        self.places: Places | None = None
        self.scenario, self.judge = Scenario(self, kind), Judge(self)
        self.interpreter = Interpreter(self)
        self._wire()

    # --- what the parts need -------------------------------------------------------------------

    @property
    def current_name(self) -> str:
        activity = self.kernel.current
        return "the client" if activity is None else activity.name

    @property
    def is_over(self) -> bool:
        """Whether no execution is running any more."""
        return all(execution.ended is not None for execution in self.executions.values())

    def tell(self, who: str, what: str) -> None:
        """Add a line to the trace; the calls of sweeps after everything, and of clients, are not of interest."""
        if self.tracing and not self.cloud.is_direct and "late sweep" not in who:
            self.trace.append(f"{self.kernel.seconds:12.2f}  {who}: {what}")

    def violate(self, invariant: str, what: str) -> None:
        self.violations.append((invariant, what))
        self.tell("VIOLATION", f"{invariant}: {what}")

    def reach(self, transition: str) -> None:
        self.reached[transition] += 1

    # --- wiring --------------------------------------------------------------------------------

    def _wire(self) -> None:
        cloud = self.cloud
        if self.tracing:
            cloud.on_call = lambda name, shown, outcome: self.tell(self.current_name, f"{name}({shown}) {outcome}")
        cloud.notifications.on_send = self._sent
        if self.scenario.uses_clusters:
            self.cluster_lives = ClusterLives(self)
            self.fleet.variables |= {
                "MUSTER_CLUSTERS": CLUSTERS.to_json().decode(),
                "MUSTER_POD_ROLE_ARN": f"arn:aws:iam::{ACCOUNT}:role/pods",
                "MUSTER_DEFAULTS": StackDefaults(clusters=CLUSTERS.clusters).to_json().decode(),
            }
        if self.scenario.uses_places:
            self.places = Places(self)
        cloud.on_stop = self.judge.job_stopped
        cloud.on_miss = self.judge.job_missed
        if not self.scenario.uses_places:
            cloud.on_object = self.judge.object_called
        cloud.rewrite = _with_new_field
        self.faults.on_late = self.lives.comes_late
        cloud.workflow.on_start = self._started
        cloud.workflow.on_end = self._ended
        cloud.scheduler.on_firing = lambda firing: self._fired(json.loads(firing.input))

    def _fired(self, request: dict[str, Any]) -> None:
        if "timer" in request:
            self.call_later("timer", request, "timer")
        else:
            self.call_later("scale", request, f"{request['run']} {request['by']}")

    def run(self) -> None:
        try:
            self.scenario.begin()
            if not self.kernel.run(HORIZON_SECONDS, self.most_steps):
                self.violate("endless", f"more than {self.most_steps} steps")
            self.judge.at_the_end()
        finally:
            self.kernel.close()

    def look(self, work: Callable[[], None]) -> None:
        """Let a client look, after everything."""
        self.cloud.is_direct = True
        try:
            work()
        except Exception as error:
            self.violate("client", f"{type(error).__name__}: {error}")
        finally:
            self.cloud.is_direct = False

    # --- functions -----------------------------------------------------------------------------

    def begin(self, resource: str, parameters: Any, label: str, then: Callable[[Any, Failed | None], None]) -> None:
        """A task of the workflow: it invokes a function and waits for its answer."""
        assert resource == "arn:aws:states:::lambda:invoke", resource
        name = parameters["FunctionName"].removeprefix("${").removesuffix("FunctionArn}").lower()
        self.on_invoke(name)
        if not self.faults.invokes(name):
            # Longer than any function may take.
            hung = Failed("Lambda.ClientExecutionTimeoutException", "no answer", injected=True)
            self.kernel.after(_INVOKE_SECONDS, lambda: then(None, hung))
            self.reach("an invocation hangs")
            return
        draws, rate = self.draws, self.scenario.invoke_faults
        choice = draws.number(f"invoke {name}({label})")
        share = draws.share(choice)
        if share < rate and draws.is_free(choice):
            if share < rate / 2:
                draws.note(choice, "Lambda refuses")
                then(None, Failed("Lambda.TooManyRequestsException", "Rate exceeded", injected=True))
                return
            draws.note(choice, "Lambda's answer is lost")
            self.reach("an invocation's answer is lost")
            self.kernel.after(5.0, lambda: then(None, Failed("Lambda.SdkClientException", "timed out", injected=True)))

        def ended(answer: Any, cause: Cause | None) -> None:
            then({"Payload": answer}, None if cause is None else Failed(cause.error, cause.text, cause.injected))

        self.fleet.begin(name, parameters["Payload"], label, ended)

    def call_later(self, function: str, event: Any, label: str, tried: int = 0) -> None:
        """Invoke a function for an event: Lambda tries it again twice, then it is a dead letter."""

        def ended(_: Any, cause: Cause | None) -> None:
            if cause is None:
                if tried:
                    self.reach("an asynchronous retry succeeds")
                if function == "scale":
                    self.judge.scaled(label.partition(" ")[0])
                if function == "react" and "TrainingJobName" in event.get("detail", {}):
                    detail = event["detail"]
                    self.judge.event_seen(detail["TrainingJobName"], detail["TrainingJobStatus"])
                return
            if tried < len(RETRY_SECONDS):
                self.kernel.after(RETRY_SECONDS[tried], lambda: self.call_later(function, event, label, tried + 1))
                return
            self.reach("a dead letter")
            self.tell("Lambda", f"{function}({label}) is a dead letter")
            self.dead_letters.append((function, event, label))
            self.were_dead_letters.add(label)

        self.on_invoke(function)
        self.fleet.begin(function, event, label, ended)

    # --- events --------------------------------------------------------------------------------

    def _sent(self, event: dict[str, Any]) -> None:
        detail = event["detail"]
        if event["source"] == "aws.sagemaker":
            if event["region"] == REGION:
                self.lives.changed(detail)
            if detail["TrainingJobStatus"] not in _ENDS and detail["SecondaryStatus"] in PASSING:
                return
            self.deliver("react", event, f"{detail['TrainingJobName']} {detail['SecondaryStatus']}")
        elif event["source"] == "aws.states" and detail["status"] in _EARLY_ENDS:
            self.deliver("stop", event, f"{detail['name']} {detail['status']}")

    def is_on_cluster(self, job: str) -> bool:
        return self.cluster_lives is not None and job in self.cluster_lives.cluster.jobs()

    def put(self, key: str, body: bytes, place: str = HOME) -> None:
        bucket = "bucket" if place == HOME else self.cloud.places[place].at.bucket
        self.cloud.s3.operations["PutObject"].effect({"Bucket": bucket, "Key": key, "Body": body})

    def deliver(self, function: str, event: Any, label: str) -> None:
        for delay in self.scenario.deliveries(label):
            self.kernel.after(delay, lambda: self.call_later(function, event, label))

    # --- executions ----------------------------------------------------------------------------

    def _started(self, name: str, document: str) -> None:
        shown = {"Name": name, "Id": self.workflow.execution_arn(name), "StartTime": timestamps.text(self.kernel.now())}
        flow = self.interpreter.flow(shown, definition(), json.loads(document))
        activity = self.kernel.spawn(name, lambda: self._execute(name, flow), owner=User(name))
        self.executions[name] = Execution(name, self.kernel.seconds, flow, activity)
        self.tell(name, "execution starts")

    def redrive(self, name: str) -> None:
        """A user redrives an execution: what had not ended goes on where it was."""
        execution = self.executions[name]
        if execution.ended is None or not self.workflow.redrive(name):
            return
        self.reach("an execution is redriven")
        self.tell(name, "execution is redriven")
        execution.ended = None
        execution.redriven_at = self.kernel.seconds
        execution.activity = self.kernel.spawn(name, lambda: self._execute(name, execution.flow), owner=User(name))

    def replay_dead_letters(self) -> None:
        letters, self.dead_letters = self.dead_letters, []
        for function, event, label in letters:
            self.reach("a dead letter is replayed")
            self.call_later(function, event, label)

    def _execute(self, name: str, flow: Flow) -> None:
        try:
            output = self.interpreter.run(flow)
        except StateError as error:
            self.workflow.fail(name, error.error, error.cause)
        else:
            self.workflow.succeed(name, output)

    def _ended(self, name: str) -> None:
        execution = self.executions[name]
        execution.ended = self.kernel.seconds
        self.tell(name, "execution ends")
        if execution.activity is not self.kernel.current:
            execution.cancelled_at = self.kernel.seconds
            execution.was_settling = execution.flow.state == "Settle the run"
            self.kernel.kill(execution.activity)
        self.judge.execution_ended(execution)
        if self.workflow.status(name) == "FAILED":
            self.scenario.failed(name)
        self.scenario.sweep_late()

    # --- what the interpreter asks ---------------------------------------------------------------

    def jitter(self, label: str) -> float:
        return self.draws.share(self.draws.number(label))

    def abort_lag(self, label: str) -> float:
        """How much longer than its parent a child execution lives."""
        return self.draws.pick(f"{label}/abort lag", (0.0, 0.0, 1.0, 15.0, 60.0))

    def entered(self, who: str, state: str) -> None:
        self.tell(who, f"enters {state!r}")
        self.reach(f"state: {state}")

    def caught(self, who: str, state: str, error: StateError) -> None:
        if error.error not in CAUGHT:
            self.reach(f"re-armed: {state}" if error.error == "States.Timeout" else f"caught: {state}")

    def gave_up(self, who: str, state: str, tries: list[StateError], seconds: float) -> None:
        """A state of an execution, or of a child of it, failed after its retries."""
        execution = self.executions[who.partition("/")[0]]
        execution.gave_up.append(GaveUp(state, seconds, any(one.injected for one in tries)))
        self.tell(who, f"gives up in {state!r} after {len(tries)} tries in {seconds:.0f} s")


def _with_new_field(caller: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """A document as the next version of Muster writes it."""
    if not isinstance(caller, Invocation) or caller.environment.version is not Version.NEXT:
        return parameters
    if not parameters["Key"].startswith(("control/", "queue/")) or not parameters["Key"].endswith(".json"):
        return parameters
    document = {**json.loads(parameters["Body"]), NEW_FIELD: 1}
    return {**parameters, "Body": json.dumps(document).encode()}
