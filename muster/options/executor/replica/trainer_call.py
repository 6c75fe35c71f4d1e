"""Calls a trainer that brings its own loop, in the environment of the former entrypoint.

    trainer: muster.own_loop:train
    kwargs: {trainer: "my.module:train", kwargs: {rounds: 40}}

is what `MusterExecutor` launches when it is given a `rendezvous_uri`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, MutableMapping

from muster.options.executor.replica.all_reduce import ObjectStoreAllReduce, OwnRounds
from muster.replica.context import Context
from muster.replica.entry.trainer import load_function, reported
from muster.replica.replica_errors import InputError

ENV_RANK = "REPLICA_RANK"
ENV_WORLD_SIZE = "WORLD_SIZE"
ENV_URI = "RENDEZVOUS_URI"

# Torch's places of a process in its replica. With WORLD_SIZE, the number of replicas, they would make a program wait
# for processes on other machines.
_OF_TORCH = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def train(context: Context, *, trainer: str, kwargs: Mapping[str, object]) -> None:
    """Call `trainer` (`package.module:function`) with `kwargs`, and with what its parameters ask for by name.

    Raises:
        InputError: no such module or function, or arguments that it does not take.
        OutOfMemoryError, TrainerError: the trainer failed.
        MusterError: what the trainer's calls to Muster raise.
    """
    rounds = OwnRounds(context.rendezvous)
    set_environment(os.environ, context, rounds.uri)
    offered: dict[str, object] = {
        "context": context,
        "rank": context.rank,
        "world_size": context.world_size,
        "rendezvous_uri": rounds.uri,
        "allreduce": ObjectStoreAllReduce.of_process(rounds),
    }
    # A module may read the environment when it is imported.
    function = load_function(trainer)
    positional, arguments = arguments_of(trainer, function, kwargs, offered)
    context.rendezvous.departure.leaves_no_model()
    with reported(trainer):
        function(*positional, **arguments)


def set_environment(variables: MutableMapping[str, str], context: Context, uri: str) -> None:
    """Set what the former entrypoint's trainers read."""
    for name in _OF_TORCH:
        variables.pop(name, None)
    variables.update(
        {ENV_RANK: str(context.rank), ENV_WORLD_SIZE: str(context.world_size), ENV_URI: uri},
    )


def arguments_of(
    name: str, function: Callable[..., object], kwargs: Mapping[str, object], offered: Mapping[str, object]
) -> tuple[list[object], dict[str, object]]:
    """The arguments of the trainer: `kwargs`, and those of `offered` that it has parameters for.

    A first parameter of another name that has no value is given the context, as that of every trainer of Muster.

    Raises:
        InputError: it does not take these arguments.
    """
    signature = inspect.signature(function)
    by_name = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    wanted = {item.name for item in signature.parameters.values() if item.kind in by_name}
    arguments = {**{key: value for key, value in offered.items() if key in wanted}, **kwargs}
    first = next(iter(signature.parameters.values()), None)
    is_left = (
        first is not None
        and first.kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
        and first.default is inspect.Parameter.empty
        and first.name not in arguments
    )
    positional = [offered["context"]] if is_left else []
    try:
        signature.bind(*positional, **arguments)
    except TypeError as error:
        message = f"the trainer {name} does not take these arguments: {error}; by name it can have {', '.join(offered)}"
        raise InputError([message]) from None
    return positional, arguments
