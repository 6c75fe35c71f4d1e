"""`hook`: an unmodified Python program whose library's Trainer gets Muster's callback, so that it trains in a run.

`kwargs` are then the settings of the algorithm: how often the replicas exchange, and how. Beside it the trainer for
programs with a loop of their own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import JsonValue

from muster.contract.errors import Problem, StatedProblem
from muster.contract.spec.algorithm_settings import SETTINGS, allowed_instead

Hook = Literal["huggingface", "lightning"]

HOOKED = "muster.replica.entry.hooked_program:train"
"""The trainer that runs such a program in a replica."""

OWN_LOOP = "muster.own_loop:train"
"""The trainer that calls a trainer with a loop of its own, as the former entrypoint did."""


def own_loop_kwargs(trainer: str, kwargs: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The keyword arguments of `OWN_LOOP`, for the trainer `package.module:function` and its own arguments."""
    return {"trainer": trainer, "kwargs": dict(kwargs)}


_PYTHON = re.compile(r"(.*/)?python(3(\.[0-9]+)?)?")
_ALLOWED = "[python, script.py, …] or [python, -m, package.module, …]"


def hooked_program(entrypoint: Sequence[str], arguments: Sequence[str]) -> list[str] | None:
    """What Python runs: a script or `-m` and a module, then its arguments. None for any other program."""
    words = [*entrypoint, *arguments]
    if _PYTHON.fullmatch(words[0]) is None:
        return None
    rest = words[2:] if words[1:2] == ["-u"] else words[1:]
    target = rest[1:2] if rest[:1] == ["-m"] else rest[:1]
    return None if not target or target[0].startswith("-") else rest


def hooked_kwargs(hook: Hook, program: Sequence[str], algorithm: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The keyword arguments of `HOOKED`."""
    settings, codec = dict(algorithm), algorithm.get("codec")
    if isinstance(codec, Mapping):
        settings |= {"codec": codec["near"], "far_codec": codec["far"]}
    return {"library": hook, "program": list(program), "algorithm": settings}


def hook_problems(
    trainer: str | None, entrypoint: Sequence[str] | None, arguments: Sequence[str], kwargs: Mapping[str, JsonValue]
) -> Iterator[Problem]:
    """Problems of a spec with `hook`."""
    if trainer is not None:
        remedy = "leave hook out: add DiLoCoCallback to the Trainer in the trainer's own code"
        yield StatedProblem("hook", "set together with trainer", remedy)
        return
    if entrypoint is None:
        yield StatedProblem("hook", "set without entrypoint", "name the program", f"entrypoint: {_ALLOWED}")
    elif hooked_program(entrypoint, arguments) is None:
        remedy = "name the script itself: Muster starts the processes of a replica (processes)"
        yield Problem("entrypoint", " ".join(entrypoint), remedy, f"with hook {_ALLOWED}")
    yield from _setting_problems(kwargs)


def _setting_problems(kwargs: Mapping[str, JsonValue]) -> Iterator[Problem]:
    if "sync_every" not in kwargs:
        remedy = "write how many optimizer steps are between two exchanges, such as sync_every: 500"
        yield StatedProblem("kwargs.sync_every", "not set, and hook needs it", remedy)
    for name, value in kwargs.items():
        if name == "codec" and isinstance(value, Mapping):
            yield from _codec_problems(value)
        elif name not in SETTINGS:
            near = difflib.get_close_matches(name, SETTINGS, 1)
            remedy = f"did you mean {near[0]}?" if near else f"use settings of the algorithm: {', '.join(SETTINGS)}"
            yield StatedProblem(f"kwargs.{name}", "not a setting of the algorithm, which kwargs are with hook", remedy)
        elif (allowed := allowed_instead(name, value)) is not None:
            yield Problem(f"kwargs.{name}", repr(value), "correct it", allowed)


def _codec_problems(codec: Mapping[str, JsonValue]) -> Iterator[Problem]:
    """Problems of a codec for each of both ways: within a place (near), and from one place to another (far)."""
    if codec.keys() != {"near", "far"} or not all(isinstance(value, str) for value in codec.values()):
        yield Problem("kwargs.codec", repr(dict(codec)), "correct it", "{near: …, far: …}, or one codec for both")
