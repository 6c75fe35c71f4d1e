"""Metrics where people look: read back with the readers of TensorBoard and W&B, and from a server of MLflow."""

import json
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from muster.contract.spec.metric_sinks import MlflowSink, WandbSink
from muster.options.sinks.replica.mlflow_run import TAG_RANK, TAG_RUN, MlflowRun
from muster.options.sinks.replica.tensorboard import TensorBoard
from muster.options.sinks.replica.wandb_run import WandbRun
from muster.options.sinks.replica.writer import Identity, Record, Sink
from muster.replica.statistics.metrics import Ending
from tests.support.waiting import wait_until

RENDEZVOUS = "s3://bucket/rendezvous/digits/"


def identity(rank: int) -> Identity:
    return Identity("digits", rank, RENDEZVOUS)


def process(sink: Sink, steps: range, loss: float, ending: Ending) -> None:
    """What one process of a replica writes."""
    for step in steps:
        sink.write([Record(step, 1_790_000_000.0 + step, {"loss": loss + step, "eval/loss": 0.5})])
    sink.close(ending)


def test_tensorboard_shows_one_series_over_a_rerun_that_trains_some_steps_again(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

    process(TensorBoard(tmp_path), range(1, 5), 100, Ending.FAILED)
    process(TensorBoard(tmp_path), range(3, 7), 200, Ending.DONE)
    found = EventAccumulator(str(tmp_path)).Reload()
    assert found.Tags()["scalars"] == ["loss", "eval/loss"]
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [
        *((1, 101.0), (2, 102.0)),
        *((3, 203.0), (4, 204.0), (5, 205.0), (6, 206.0)),
    ]
    assert found.Scalars("loss")[0].wall_time == 1_790_000_001.0


@pytest.fixture
def tracking_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """MLflow's server over SQLite, in a thread: a process of its own would take ten seconds longer to start."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    from mlflow import server  # noqa: PLC0415
    from werkzeug.serving import make_server  # noqa: PLC0415

    monkeypatch.setenv(server.BACKEND_STORE_URI_ENV_VAR, f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv(server.ARTIFACT_ROOT_ENV_VAR, str(tmp_path / "artifacts"))
    served = make_server("127.0.0.1", 0, server.app, threaded=True)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}"
    served.shutdown()
    thread.join()
    served.server_close()


def test_mlflow_has_one_run_for_each_replica_which_reruns_continue(tracking_uri: str) -> None:
    from mlflow import MlflowClient  # noqa: PLC0415

    settings = MlflowSink(tracking_uri=tracking_uri, experiment="digits")
    client = MlflowClient(tracking_uri)
    # The first request creates the tables.
    assert client.get_experiment_by_name("digits") is None
    # All replicas of a run begin at the same time, and none finds the experiment.
    with ThreadPoolExecutor() as pool:
        started = [
            pool.submit(process, MlflowRun(settings, identity(rank)), range(1, 4), rank, Ending.STOPPED)
            for rank in range(3)
        ]
    for replica in started:
        replica.result()
    experiment = client.get_experiment_by_name("digits")
    assert experiment is not None

    def runs() -> dict[str, Any]:
        found = client.search_runs([experiment.experiment_id])
        assert len(found) == 3
        return {run.data.tags[TAG_RANK]: run for run in found}

    first = runs()
    assert {run.info.status for run in first.values()} == {"KILLED"}
    named = {(run.info.run_name, run.data.tags[TAG_RUN]) for run in first.values()}
    assert named == {(f"digits-r{rank}", "digits") for rank in range(3)}
    process(MlflowRun(settings, identity(1)), range(4, 6), 1, Ending.DONE)
    again = runs()
    assert all(again[rank].info.run_id == run.info.run_id for rank, run in first.items())
    assert [again[rank].info.status for rank in "012"] == ["KILLED", "FINISHED", "KILLED"]
    history = client.get_metric_history(again["1"].info.run_id, "loss")
    assert [(metric.step, metric.value) for metric in history] == [(step, 1.0 + step) for step in range(1, 6)]
    assert history[0].timestamp == 1_790_000_001_000


def test_wandb_writes_offline_runs_that_have_one_id_for_each_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    settings = WandbSink(project="digits")
    for steps, ending in ((range(1, 4), Ending.STOPPED), (range(3, 6), Ending.DONE)):
        process(WandbRun(settings, identity(1), tmp_path), steps, 1, ending)
    folders = sorted((tmp_path / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    # W&B writes the files in a process of its own, which may be behind.
    wait_until("what W&B writes", lambda: all({"id", "exit"} <= wandb_records(folder).keys() for folder in folders))
    first, second = (wandb_records(folder) for folder in folders)
    for found in (first, second):
        assert (found["id"], found["group"], found["project"]) == (identity(1).unique_name, "digits", "digits")
    assert first["loss"] == {1: 2.0, 2: 3.0, 3: 4.0}
    assert second["loss"] == {3: 4.0, 4: 5.0, 5: 6.0}
    assert (first["exit"], second["exit"]) == (1, 0)


def wandb_records(folder: Path) -> dict[str, Any]:
    """What the file of an offline run holds: who wrote it, and the loss by step."""
    from wandb.proto import wandb_internal_pb2  # noqa: PLC0415

    [path] = folder.glob("*.wandb")
    found: dict[str, Any] = {"loss": {}}
    for body in log_records(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(body)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found |= {"id": record.run.run_id, "group": record.run.run_group, "project": record.run.project}
        elif kind == "exit":
            found["exit"] = record.exit.exit_code
        elif kind == "history":
            items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            found["loss"][items["step"]] = items["loss"]
    return found


def log_records(body: bytes) -> Iterator[bytes]:
    """The records of W&B's file, which has LevelDB's log format below a header of seven bytes.

    A record has a header of seven bytes, too, with its length in two of them; below 32 KiB none is divided.
    """
    assert len(body) < 32_768
    place = 7
    while place + 7 <= len(body):
        (length,) = struct.unpack_from("<H", body, place + 4)
        content = body[place + 7 : place + 7 + length]
        if len(content) < length:
            return  # it is being written
        yield content
        place += 7 + length
