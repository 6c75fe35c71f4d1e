"""Which sinks get a replica's metrics, by its run document."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from muster.contract.run.run_document import RunDocument
from muster.options.sinks.replica.writer import Identity, MetricsWriter, Sink
from muster.replica.entry.trainer import Listeners
from muster.replica.replica_errors import InputError


def open_sinks(document: RunDocument, rank: int, folder: Path) -> MetricsWriter:
    """The writer for what the spec's `metrics` asks for; `folder`: where files are written that SageMaker copies.

    Raises:
        InputError: the image lacks packages that it needs; names all of them.
    """
    if problems := [*_missing(document)]:
        raise InputError(problems)
    return MetricsWriter([*_sinks(document, rank, folder)])


OFFER = Listeners(open_sinks)


def _missing(document: RunDocument) -> Iterator[str]:
    wanted = document.metrics
    mlflow, wandb = wanted.mlflow, wanted.wandb
    packages = []
    if mlflow is not None:
        packages.append(("metrics.mlflow", "mlflow", "mlflow-skinny"))
    if mlflow is not None and mlflow.is_managed:
        packages.append(("metrics.mlflow with an ARN", "sagemaker_mlflow", "sagemaker-mlflow"))
    if wandb is not None:
        packages.append(("metrics.wandb", "wandb", "wandb"))
    for field, module, package in packages:
        if find_spec(module) is None:
            yield f"{field} needs the package {package}, which the image lacks: add `pip install {package}` to it"


def _sinks(document: RunDocument, rank: int, folder: Path) -> Iterator[Sink]:
    from muster.options.sinks.replica.mlflow_run import MlflowRun  # noqa: PLC0415 - not without sinks
    from muster.options.sinks.replica.tensorboard import TensorBoard  # noqa: PLC0415
    from muster.options.sinks.replica.wandb_run import WandbRun  # noqa: PLC0415

    wanted = document.metrics
    identity = Identity(document.rendezvous_name, rank, document.rendezvous_uri)
    if wanted.tensorboard:
        yield TensorBoard(folder / "tensorboard")
    if wanted.mlflow is not None:
        yield MlflowRun(wanted.mlflow, identity)
    if wanted.wandb is not None:
        yield WandbRun(wanted.wandb, identity, folder)
