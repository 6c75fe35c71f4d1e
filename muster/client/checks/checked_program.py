"""The part of a spec that says what a replica runs, read also where other fields of the spec are wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.contract.spec.hook import OWN_LOOP

_TRAINER = re.compile(r"([a-zA-Z_]\w*(?:\.[a-zA-Z_]\w*)*):([a-zA-Z_]\w*)")


@dataclass(frozen=True)
class Program:
    """What of it has the right type; the rest is left out, because reading the spec reports it."""

    module: str | None = None
    function: str = ""
    kwargs: Mapping[str, object] = field(default_factory=dict)
    swept: frozenset[str] = frozenset()
    """Those of `kwargs` that a sweep sets; they have the values of rank 0."""
    words: tuple[str, ...] = ()
    """The entrypoint and its arguments."""
    source_dir: str | None = None
    image: str | None = None
    are_alike: bool = False
    """Whether there are several replicas, of which the spec says the same."""
    brings_loop: bool = False
    """Whether the trainer is not called with the context and `kwargs`, but as `muster.own_loop` says."""

    @property
    def trainer(self) -> str:
        """As the spec names it."""
        return f"{self.module}:{self.function}"

    def script(self, root: Path) -> Path | None:
        """The Python file of the source at `root` that the entrypoint names first, if it names one."""
        named = next((word for word in self.words if word.endswith(".py")), None)
        return root / named if named is not None and (root / named).is_file() else None

    @classmethod
    def of(cls, document: Mapping[Any, object]) -> Program:
        """The program of a spec, which may have any mistake."""
        trainer, kwargs = document.get("trainer"), document.get("kwargs")
        brings_loop = trainer == OWN_LOOP
        if brings_loop and isinstance(kwargs, Mapping):
            trainer, kwargs = kwargs.get("trainer"), kwargs.get("kwargs")
        named = _TRAINER.fullmatch(trainer) if isinstance(trainer, str) else None
        swept = {} if brings_loop else _swept(document.get("sweep"))
        words = [*_texts(document.get("entrypoint")), *_texts(document.get("arguments"))]
        return cls(
            module=named[1] if named else None,
            function=named[2] if named else "",
            kwargs={**_named(kwargs), **swept},
            swept=frozenset(swept),
            words=tuple(words) if document.get("entrypoint") else (),
            source_dir=_text(document.get("source_dir")),
            image=_text(document.get("image")),
            are_alike=_are_alike(document) and not brings_loop,
            brings_loop=brings_loop,
        )


def _are_alike(document: Mapping[Any, object]) -> bool:
    replicas = document.get("replicas")
    differ = any(document.get(field) for field in ("overrides", "sweep", "recipe"))
    return isinstance(replicas, int) and replicas > 1 and not differ


def _named(kwargs: object) -> dict[str, object]:
    found = kwargs.items() if isinstance(kwargs, Mapping) else ()
    return {name: value for name, value in found if isinstance(name, str)}


def _swept(sweep: object) -> dict[str, object]:
    """The arguments that a sweep sets, each with its first value; a part of an argument makes it a mapping."""
    found: dict[str, object] = {}
    for name, values in sweep.items() if isinstance(sweep, Mapping) else ():
        field, *path = name.split(".") if isinstance(name, str) else ("",)
        if field == "kwargs" and path and isinstance(values, list) and values:
            found[path[0]] = values[0] if len(path) == 1 else {}
    return found


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
