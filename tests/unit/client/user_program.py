"""A user's program, which `make check` lets pyright check strictly: it uses the public interface alone."""

from datetime import UTC, datetime, timedelta

import numpy as np

import muster


def launch(stack: str) -> muster.Run:
    own = muster.Muster(stack, profile=None, region="us-east-1")
    forecast: muster.DryRun = own.plan(muster.Spec.model_validate({"replicas": 4, "trainer": "my.module:train"}))
    print(forecast.cost.per_hour, forecast.cost.prices.usd_per_hour, [quota.name for quota in forecast.quotas])
    return own.launch({"replicas": 4, "trainer": "my.module:train"})


def show(status: muster.RunStatus) -> None:
    for replica in status.replicas:
        print(replica.rank, replica.metrics.get("loss"), replica.state_in(status.state), replica.ends)


def watch(run: muster.Run) -> muster.Result | None:
    try:
        if run.wait(timeout=60.0, progress=show).state is muster.RunState.SUCCEEDED:
            return run.result()
    except muster.ClientError as error:
        print(error.code)
    for line in run.logs({0, 1}, since=datetime.now(UTC) - timedelta(hours=1), tail=10):
        print(line.at.isoformat(), line.rank, line.message)
    print(
        [
            e.text
            for e in run.events()
            if e.kind is muster.EventKind.RUN_ENDED or e.failure_class is muster.FailureClass.SPOT
        ]
    )
    return None


def manage(own: muster.Muster) -> None:
    runs: list[muster.RunSummary] = own.list(muster.RunState.RUNNING, limit=5)
    run = own.run(runs[0].run)
    print(run.cancel().stopped, own.bucket, {own: run.start_continuation().live_page().look().verdict})


def outcome(result: muster.Result) -> list[str]:
    if result.verdict is not muster.Verdict.SUCCEEDED:
        return [attempt.reason for replica in result.replicas for attempt in replica.attempts]
    return [replica.checkpoint_uri or "" for replica in result.replicas]


def problems(error: muster.MusterError) -> list[str]:
    return [problem.field for problem in error.problems] if isinstance(error, muster.SpecError) else []


def train(context: muster.Context, rounds: int) -> None:
    parameters = {"w": np.zeros(3, dtype=np.float32)}
    diloco = muster.DiLoCo(context.rendezvous, parameters, muster.Algorithm(sync_every=5))
    while diloco.round < rounds:
        diloco.step()
        context.metrics.log(loss=float(parameters["w"].sum()))
    diloco.finish()
