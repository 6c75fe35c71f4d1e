"""What was: the last committed round, and the global states stored from time to time."""

from __future__ import annotations

import numpy as np

from muster.replica import keys
from muster.replica.blocks import Blocks
from muster.replica.codec import HEADER_BYTES, CodecError, Floats, decode_blocks, decode_header, encode
from muster.replica.errors import ParametersError, RendezvousError
from muster.replica.headers import StateHeader
from muster.replica.outer import GlobalState
from muster.replica.packing import Packing
from muster.replica.transport import ObjectExistsError, ObjectMissingError, Store

# A state is as large as two rounds' means: at every tenth round it costs a fifth of one member's traffic.
STATE_EVERY_ROUNDS = 10


def last_committed(store: Store) -> int:
    """The last committed round, 0 if there is none. Commits have no gaps: 2 log2(rounds) looks find it."""
    high = 1
    while store.exists(keys.commit(high)):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if store.exists(keys.commit(middle)) else (low, middle)
    return low


def begin(store: Store, run: str, packing: Packing) -> GlobalState:
    """The state before round 1: whoever came first gave it, all others take it.

    Raises:
        ParametersError: it is of another model.
        RendezvousError: it is damaged.
    """
    state = load_state(store, run, packing, 0)
    if state is None:
        parameters = packing.read()
        store_state(store, run, packing, GlobalState(0, parameters, np.zeros_like(parameters)))
        state = load_state(store, run, packing, 0)
    if state is None:
        message = f"{store.uri(keys.state(0))} was written and is gone."
        raise RendezvousError(message)
    return state


def latest_state(store: Store, run: str, packing: Packing, last_round: int) -> GlobalState:
    """The latest stored state not after `last_round`; raises as `begin`."""
    for round_ in range(last_round - last_round % STATE_EVERY_ROUNDS, 0, -STATE_EVERY_ROUNDS):
        state = load_state(store, run, packing, round_)
        if state is not None:
            return state
    return begin(store, run, packing)


def load_state(store: Store, run: str, packing: Packing, round_: int) -> GlobalState | None:
    """The stored state after `round_`, None where none is stored."""
    key = keys.state(round_)
    try:
        body = store.read(key).body
    except ObjectMissingError:
        return None
    try:
        header = decode_header(key, body, StateHeader)
        blocks = Blocks(header.count * header.arrays)
        flat = decode_blocks(key, body[HEADER_BYTES:], blocks, range(blocks.number))
    except CodecError as error:
        message = f"{store.uri(key)} is damaged: {error}."
        raise RendezvousError(message) from None
    if (header.run, header.layout, header.count) != (run, packing.layout, packing.count):
        message = (
            f"This trainer's parameters ({packing.count:,} elements) differ in names or shapes from those that the run "
            f"began with ({header.count:,} elements). Every replica must build the same model."
        )
        raise ParametersError(message)
    parameters = flat[: header.count].copy()
    momentum = flat[header.count :].copy() if header.arrays == 2 else np.zeros_like(parameters)
    return GlobalState(round_, parameters, momentum)


def store_state(store: Store, run: str, packing: Packing, state: GlobalState) -> None:
    """Store a state for those who come later. All hold the same, so whoever was faster stored it as well.

    Raises:
        ParametersError: it holds NaN, infinity or values that nobody could average.
    """
    arrays = 1 if state.round == 0 else 2
    flat: Floats = np.concatenate([state.parameters, state.momentum]) if arrays == 2 else state.parameters
    header = StateHeader(run=run, round=state.round, count=packing.count, layout=packing.layout, arrays=arrays)
    key = keys.state(state.round)
    try:
        store.create(key, encode(key, flat, lambda _: header))
    except CodecError as error:
        message = f"The parameters after round {state.round} cannot be trained on: {error}."
        raise ParametersError(message) from None
    except ObjectExistsError:
        return
