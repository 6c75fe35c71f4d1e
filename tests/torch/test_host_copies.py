"""Tensors on a GPU: what is read from them and written to them, while other work is queued there."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="make test installs it")

import torch

from muster.options.torchft.replica.torchft_exchange import Work
from muster.replica.free_memory import pages
from muster.replica.frontends.tensor_packing import TensorPacking
from muster.replica.wire.binary_format import Floats

# Long enough for a copy to come too early, if it does not wait.
BUSY_CYCLES = 200_000_000

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU with CUDA"),
]

both = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
locked_or_not = pytest.mark.parametrize("locks", [False, True])


def packed(dtype: Any) -> tuple[Any, TensorPacking]:
    """A model on the GPU, with a matrix that lies there transposed."""
    model = torch.nn.Sequential(torch.nn.Linear(700, 900), torch.nn.BatchNorm1d(900), torch.nn.Linear(900, 300))
    model = model.to("cuda", dtype)
    model[2].weight.data = model[2].weight.data.t().contiguous().t()
    return model, TensorPacking(model)


def memory(packing: TensorPacking, locks: bool) -> Floats:
    room = pages(4 * packing.count).view(np.float32)
    if locks:
        packing.lock(room)
    return room


@both
@locked_or_not
def test_a_copy_from_the_gpu_waits_for_what_is_queued_before_it(dtype: Any, locks: bool) -> None:
    model, packing = packed(dtype)
    before, room = packing.read(), memory(packing, locks)
    torch.cuda._sleep(BUSY_CYCLES)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    after = packing.read(room=room)
    expected = np.concatenate([p.detach().float().cpu().numpy().reshape(-1) for p in model.parameters()])
    np.testing.assert_array_equal(after[: expected.size], expected)
    assert not np.array_equal(before, after)


@both
@locked_or_not
def test_what_is_queued_after_a_copy_to_the_gpu_sees_it(dtype: Any, locks: bool) -> None:
    model, packing = packed(dtype)
    other, flat = torch.cuda.Stream(), memory(packing, locks)
    for number in range(1, 4):
        with torch.cuda.stream(other):
            torch.cuda._sleep(BUSY_CYCLES)
        # The buffer is overwritten at once: the copies must not depend on it.
        flat[:] = float(number)
        packing.write(flat)
        flat[:] = -1.0
        sums = [float(parameter.detach().sum(dtype=torch.float64)) for parameter in model.parameters()]
        assert sums == [float(number * parameter.numel()) for parameter in model.parameters()]


def test_what_torchft_gives_is_copied_as_it_is_then() -> None:
    tensor = torch.zeros(900, 700, device="cuda", dtype=torch.bfloat16)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(BUSY_CYCLES)
        tensor += 1
        work = Work(tensor, lambda: None)
        tensor += 1
        assert (work.take() == 1).all()


def test_reading_again_does_not_change_what_was_read() -> None:
    model, packing = packed(torch.float32)
    first = packing.read()
    kept = first.copy()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    second = packing.read()
    np.testing.assert_array_equal(first, kept)
    assert not second[: model[0].weight.numel()].any()


def test_memory_that_another_library_has_locked_is_copied_all_the_same() -> None:
    model, packing = packed(torch.float32)
    room = pages(4 * packing.count).view(np.float32)
    packing.lock(room)
    TensorPacking(model).lock(room)  # CUDA refuses it
    np.testing.assert_array_equal(packing.read(room=room), TensorPacking(model).read())
    torch.cuda.synchronize()


def test_locked_memory_may_come_and_go() -> None:
    _, packing = packed(torch.float32)
    expected = packing.read()
    for _ in range(20):
        np.testing.assert_array_equal(packing.read(room=memory(packing, locks=True)), expected)
