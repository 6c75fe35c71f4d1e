"""Replicas that train on a GPU, of one process with NCCL and FSDP2 and of two that share the model."""

import pytest

pytest.importorskip("torch", reason="make test installs it")

import torch

from bench.replicas import Training, metrics_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU with CUDA"),
]


@pytest.mark.parametrize("algorithm", [{"sync_every": 4}, {"sync_every": 4, "delay": 2, "codec": "int4"}])
def test_models_on_gpus_have_the_same_bytes_in_all_replicas_and_processes(algorithm: dict[str, object]) -> None:
    training = Training("tests.support.jobs.gpu_trainer:train", {"rounds": 3, "algorithm": algorithm}, (2, 1))
    checksums = [line["parameters"] for line in metrics_of(training.printed()) if "parameters" in line]
    assert len(checksums) == 3
    assert len(set(checksums)) == 1
