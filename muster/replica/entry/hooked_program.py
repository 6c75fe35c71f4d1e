"""Runs an unmodified Python program in a replica: Muster's callback is added to the Trainer that it makes.

    hook: huggingface
    entrypoint: [python, train.py, --config, config.yaml]
    kwargs: {sync_every: 500}

calls `train` with the program and with these settings of the algorithm.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

from muster.options import offers
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context
from muster.replica.entry.trainer import reported
from muster.replica.replica_errors import AlgorithmError, InputError, TrainerError


@dataclass(frozen=True)
class Library:
    """A library with a Trainer.

    Attributes:
        module: has the class `Trainer`.
        package: what people install.
        add: initialises a Trainer with `make(**keywords)`, and lets it have the callback.
    """

    module: str
    package: str
    add: Callable[[Any, Callable[..., None], dict[str, Any], Context, Algorithm], None]


@dataclass(frozen=True)
class Hooks:
    """Libraries by the names that `hook` has for them; what an option offers at the seam `replica.hooks`."""

    libraries: Mapping[str, Library]


def train(context: Context, *, library: str, program: Sequence[str], algorithm: Mapping[str, Any]) -> None:
    """Run `program` (a script or `-m` and a module, then its arguments), whose Trainer trains with the other replicas.

    Raises:
        InputError: the library or the program is missing, or a setting of the algorithm is invalid.
        OutOfMemoryError, TrainerError: the program failed, or made no Trainer that trained.
        MusterError: what the callback raises.
        SystemExit: the program called sys.exit(0).
    """
    known = {name: one for offer in offers("replica.hooks", Hooks) for name, one in offer.libraries.items()}
    if library not in known:
        raise InputError([f"hook is {library}, for which this package of Muster has nothing: leave it out"])
    hooked, settings = known[library], _algorithm(algorithm)
    name = program[1] if program[0] == "-m" else program[0]
    exited: SystemExit | None = None
    with _hooked(hooked, context, settings) as made, _arguments(program):
        try:
            with reported(name):
                _run(program)
        except SystemExit as end:
            exited = end
    if context.rendezvous.departure.training is None and not context.stop.is_set():
        raise TrainerError(_untrained(name, hooked, made))
    if exited is not None:
        raise exited


def _algorithm(settings: Mapping[str, Any]) -> Algorithm:
    try:
        return Algorithm(**settings)
    except (AlgorithmError, TypeError) as error:
        raise InputError([f"kwargs are the settings of the algorithm: {error}"]) from None


def _untrained(name: str, library: Library, made: Sequence[str]) -> str:
    if made:
        return f"{name} made a {library.module}.Trainer, and ended before it trained."
    return (
        f"{name} ended without making a {library.module}.Trainer, to which Muster's callback would have been added: "
        "name the program that trains, or leave hook out of the spec."
    )


@contextmanager
def _hooked(library: Library, context: Context, algorithm: Algorithm) -> Iterator[list[str]]:
    """Let every Trainer of the library have Muster's callback; the classes of those that were made.

    Not the Trainers: each holds a model and the state of its optimizer.
    """
    try:
        trainer = importlib.import_module(library.module).Trainer
    except ImportError as error:
        remedy = f"name {library.package} in the requirements.txt of source_dir, or install it in the image"
        raise InputError([f"hook needs {library.module}, which cannot be imported: {error}; {remedy}"]) from None
    original, made = trainer.__init__, list[str]()

    # Programs read the signature: LightningCLI makes a command line of it.
    @wraps(original)
    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        library.add(self, partial(original, self, *arguments), keywords, context, algorithm)
        made.append(type(self).__name__)

    trainer.__init__ = init
    try:
        yield made
    finally:
        trainer.__init__ = original


@contextmanager
def _arguments(program: Sequence[str]) -> Iterator[None]:
    """What `python script.py …` sets for the program: its arguments, and where it finds modules."""
    is_module = program[0] == "-m"
    folder = Path.cwd() if is_module else Path(program[0]).resolve().parent
    before = sys.argv, list(sys.path)
    sys.argv = list(program[1:] if is_module else program)
    sys.path.insert(0, os.fspath(folder))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before[0], before[1]


def _run(program: Sequence[str]) -> None:
    if program[0] == "-m":
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        return
    if not Path(program[0]).exists():
        raise InputError([f"there is no file {program[0]} in {Path.cwd()}, which entrypoint names"])
    runpy.run_path(program[0], run_name="__main__")
