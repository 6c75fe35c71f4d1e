"""MLflow: one MLflow run for each replica, which its reruns and the continuations of the run continue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.contract.spec.metric_sinks import MlflowSink
from muster.options.sinks.replica.writer import Identity, Record
from muster.replica.statistics.metrics import Ending

TAG_RENDEZVOUS = "muster.rendezvous"
TAG_RUN = "muster.run"
TAG_RANK = "muster.rank"
# Log Batch: a request has at most 1,000 metrics.
_METRICS_MAX = 1_000

_STATUS = {Ending.DONE: "FINISHED", Ending.FAILED: "FAILED", Ending.STOPPED: "KILLED"}


class MlflowRun:
    """Writes to a tracking server by MLflow's client, without its global state: the trainer may use MLflow as well."""

    name = "mlflow"

    def __init__(self, settings: MlflowSink, identity: Identity) -> None:
        """Connects with the first record."""
        self._settings = settings
        self._identity = identity
        self._client: Any = None
        self._run_id = ""

    def write(self, records: Sequence[Record]) -> None:
        """Log the records' values as metrics."""
        from mlflow.entities import Metric  # noqa: PLC0415 - the user's package

        if not self._run_id:
            self._connect()
        metrics = [
            Metric(name, value, int(record.at * 1000), record.step)
            for record in records
            for name, value in record.values.items()
        ]
        for begin in range(0, len(metrics), _METRICS_MAX):
            self._client.log_batch(self._run_id, metrics[begin : begin + _METRICS_MAX])

    def close(self, ending: Ending) -> None:
        """Set the status of the MLflow run; a rerun sets it to RUNNING again."""
        self._client.set_terminated(self._run_id, _STATUS[ending])

    def _connect(self) -> None:
        from mlflow import MlflowClient  # noqa: PLC0415 - the user's package

        self._client = MlflowClient(self._settings.tracking_uri)
        experiment = self._experiment()
        identity = self._identity
        tags = {TAG_RENDEZVOUS: identity.rendezvous, TAG_RUN: identity.run, TAG_RANK: str(identity.rank)}
        same = " and ".join(f"tags.`{key}` = '{tags[key]}'" for key in (TAG_RENDEZVOUS, TAG_RANK))
        found = self._client.search_runs([experiment], same, max_results=1, order_by=["attributes.start_time ASC"])
        if found:
            self._run_id = found[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
        else:
            self._run_id = self._client.create_run(experiment, tags=tags, run_name=identity.name).info.run_id

    def _experiment(self) -> str:
        """The experiment's id. All replicas create it at the same time, and one succeeds."""
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 - the user's package

        name = self._settings.experiment
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id)
