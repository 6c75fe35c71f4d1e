"""The user's function: found by name, checked against its arguments, called; and what options add meanwhile."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from muster.contract.errors import MusterError
from muster.contract.run.failure_place import Frame, user_place
from muster.contract.run.last_lines import without_resolved
from muster.contract.run.run_document import RunDocument
from muster.replica.context import Context
from muster.replica.replica_errors import InputError, OutOfMemoryError, StoppedError, TrainerError, WatchError
from muster.replica.rounds.round import Rounds
from muster.replica.statistics.metrics import Listener

Trainer = Callable[..., object]

EXITED = "its trainer called sys.exit(0)"
"""How a trainer has ended that did not return."""


@dataclass(frozen=True)
class Listeners:
    """Who gets what the trainer logs, in a replica's first process: the seam `replica.listeners`."""

    open: Callable[[RunDocument, int, Path], Listener]
    """For a rank; SageMaker copies files of the folder. Raises InputError where the image lacks packages."""


EndNow = Callable[[WatchError], None]
"""Ends this process and its replica's attempt, from any thread."""


@dataclass(frozen=True)
class Watching:
    """Who looks at a training as long as its trainer is called: the seam `replica.watching`."""

    during: Callable[[Rounds, RunDocument, EndNow], AbstractContextManager[None]]


def load_trainer(name: str, kwargs: Mapping[str, object]) -> Trainer:
    """Import `package.module:function` and check that it can be called as `function(context, **kwargs)`.

    Raises:
        InputError: as `load_function`, or arguments that it does not take.
    """
    function = load_function(name)
    try:
        inspect.signature(function).bind(object(), **kwargs)
    except TypeError as error:
        raise InputError([f"the trainer {name} does not take these arguments: {error}"]) from None
    return function


def load_function(name: str) -> Trainer:
    """Import `package.module:function`.

    Raises:
        InputError: no such module or function, or a module that fails to import.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InputError([f"the trainer {name} cannot be imported: {_described(error)}"]) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError([f"the trainer {name} cannot be imported: {module_name} has no function {function_name}"])
    return function  # type: ignore[no-any-return]


def call_trainer(trainer: Trainer, context: Context, document: RunDocument) -> str:
    """Call the trainer, and return how it ended, in words.

    Its own errors are logged with a traceback. The failure's reason is the place in the user's code and the last line.
    `sys.exit(0)` is one of them if the trainer has said that more rounds follow, and has not left the run.

    Raises:
        StoppedError: the replica was asked to stop.
        OutOfMemoryError, TrainerError: the trainer failed.
        MusterError: what the trainer's calls to Muster raise.
    """
    how = "its trainer returned"
    try:
        with reported(document.trainer or ""):
            trainer(context, **document.kwargs)
    except SystemExit:
        how = EXITED
    rendezvous = context.rendezvous
    if rendezvous.context.stops.asked.is_set():
        raise StoppedError
    if how == EXITED and not rendezvous.departure.has_left and (left := rendezvous.rounds_left):
        message = (
            f"{document.trainer} called sys.exit(0) {left:,} rounds before the end that it expects (context.expect): "
            "to end early, call finish(), or return."
        )
        raise TrainerError(message)
    return how


@contextmanager
def reported(name: str) -> Iterator[None]:
    """Log what the trainer `name` raises with a traceback, and name the trainer and the error in the reason.

    Raises:
        OutOfMemoryError, TrainerError: the trainer failed.
        MusterError: what the trainer's calls to Muster raise.
        SystemExit: it called sys.exit(0).
    """
    try:
        yield
    except MusterError:
        raise
    except SystemExit as error:
        # As the interpreter does: 0.0 is no 0, and a list is no code.
        if error.code is None or (isinstance(error.code, int) and error.code == 0):
            raise
        message = f"{name} exited: {error.code}"
        raise TrainerError(message) from None
    except Exception as error:
        # The log of a failed attempt is kept with the run.
        sys.stderr.write(without_resolved(traceback.format_exc(), os.environ))
        message = f"{name} failed: {_described(error)}"
        raise (OutOfMemoryError if _is_out_of_memory(error) else TrainerError)(message) from None


def _described(error: BaseException) -> str:
    """An error of the user's code: `training.py:41: ValueError: no data`."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        frames = [Frame(error.filename, error.lineno or 0)]
    else:
        frames = [Frame(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    place = user_place(frames, str(Path.cwd()))
    last = traceback.format_exception_only(error)[-1].strip()
    return last if place is None else f"{place}: {last}"


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether the machine or a GPU is out of memory. PyTorch's error is recognised by name: PyTorch is not imported."""
    kinds = type(error).__mro__
    of_torch = any(kind.__name__ == "OutOfMemoryError" and kind.__module__.split(".")[0] == "torch" for kind in kinds)
    cause = error.__cause__
    return of_torch or isinstance(error, MemoryError) or (cause is not None and _is_out_of_memory(cause))
