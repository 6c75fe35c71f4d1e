"""A user's program, which pyright checks strictly: it uses the public interface alone."""

from datetime import UTC, datetime, timedelta

import numpy as np

from muster import (
    Algorithm,
    Cancellation,
    ClientError,
    Context,
    Diagnosis,
    DiLoCo,
    DryRun,
    EventKind,
    FailureClass,
    Muster,
    MusterError,
    Result,
    Run,
    RunState,
    RunStatus,
    RunSummary,
    Spec,
    SpecError,
    Verdict,
    __version__,
)


def launch(stack: str) -> Run:
    muster = Muster(stack, profile=None, region="us-east-1")
    spec = Spec.model_validate({"replicas": 4, "trainer": "my.module:train"})
    forecast: DryRun = muster.plan(spec)
    print(forecast.cost.per_hour, forecast.cost.prices.usd_per_hour, [quota.name for quota in forecast.quotas])
    print([request["TrainingJobName"] for request in forecast.requests])
    if forecast.source is not None:
        print(forecast.source.key)
    return muster.launch({"replicas": 4, "trainer": "my.module:train"})


def watch(run: Run) -> Result | None:
    def show(status: RunStatus) -> None:
        for replica in status.replicas:
            print(replica.rank, replica.metrics.get("loss"), replica.state_in(status.state), replica.ends)

    try:
        status = run.wait(timeout=60.0, progress=show)
    except ClientError as error:
        print(error.code)
        return None
    if status.state is RunState.SUCCEEDED:
        return run.result()
    for line in run.logs({0, 1}, since=datetime.now(UTC) - timedelta(hours=1), tail=10):
        print(line.at.isoformat(), line.rank, line.message)
    for entry in run.events():
        if entry.kind is EventKind.REPLICA_ENDED and entry.failure_class is FailureClass.SPOT:
            print(entry.text)
    return None


def manage(muster: Muster) -> None:
    runs: list[RunSummary] = muster.list(RunState.RUNNING, limit=5)
    found: Diagnosis = muster.doctor()
    stopped: Cancellation = muster.run(runs[0].run).cancel()
    print(found.orphans, stopped.stopped, muster.bucket, {muster: runs}, __version__)
    again = muster.run(runs[0].run).rerun()
    print(again.name, again.console_url, len(again.report()), again.live_page().look().verdict, again.spec())


def outcome(result: Result) -> list[str]:
    if result.verdict is not Verdict.SUCCEEDED:
        return [attempt.reason for replica in result.replicas for attempt in replica.attempts]
    return [replica.checkpoint_uri or "" for replica in result.replicas]


def problems(error: MusterError) -> list[str]:
    return [problem.field for problem in error.problems] if isinstance(error, SpecError) else []


def train(context: Context, rounds: int) -> None:
    parameters = {"w": np.zeros(3, dtype=np.float32)}
    diloco = DiLoCo(context.rendezvous, parameters, Algorithm(sync_every=5))
    while diloco.round < rounds:
        parameters["w"] -= 0.1
        diloco.step()
        context.metrics.log(loss=float(parameters["w"].sum()))
    diloco.finish()
