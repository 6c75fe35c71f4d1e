"""Writes the parts of the documentation that follow from the code: `python -m docs.generate [--check]`.

docs/spec.md is the spec's model in words, docs/events.md that of the events, docs/commands.md (and its schema) the
command line; docs/failures.md has the default budgets between two marks.
"""

from __future__ import annotations

import json
import re
import sys
import types
import typing
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from docs.commands_reference import commands_reference, commands_schema
from docs.events_reference import events_reference
from muster.contract.document import Document
from muster.contract.spec.run_limits import LimitFields
from muster.contract.spec.spec import DEFAULT_BUDGETS, SPEC_BYTES_MAX, Budget, Spec
from muster.contract.training.access import AccessFields
from muster.contract.training.algorithm_specification import AlgorithmFields
from muster.contract.training.data_and_output import StorageFields
from muster.contract.training.hints import LEFT_OUT
from muster.contract.training.observation import ObservationFields
from muster.contract.training.resources import ResourceFields
from muster.contract.training.source_channels import SourceFields
from muster.contract.training.stopping_condition import TimeFields
from muster.contract.training.values import Says

DOCS = Path(__file__).resolve().parent
BEGIN = "<!-- budgets: made by docs/generate.py -->"
END = "<!-- end of budgets -->"

_HEAD = f"""# The spec

*Made from the models in `muster/contract/spec/spec.py` and `muster/contract/training/` by `python -m docs.generate`;
a test holds that it is up to date.*

A spec is one YAML or JSON document of at most {SPEC_BYTES_MAX:,} bytes. The same document is the input of the Step
Functions execution. Fields that are not listed here are refused, values are never converted (`"4"` is not a number),
and every problem is told at once, before anything is created: by `muster plan` and `muster launch` on your machine,
and again by the first state of the workflow.

The shortest one:

```yaml
replicas: 4
trainer: my_package.training:train
```

A trainer is a Python function in the container's image. It is called once in every replica with a context and with
`kwargs`. An image with a program of its own names it as `entrypoint` instead.

Whatever CreateTrainingJob offers to an independent replica can be set here, under the service's own names in snake
case; each limit of the service is checked before anything is sent.
"""

_RERUNS = """The classes and their defaults are in [failures.md](failures.md). A class that is named here replaces its
default as a whole.
"""

_SOURCE = """A folder is named relative to the spec's file. How it reaches the container:
[running.md](running.md#code-without-an-image).
"""

_INSTANCE = """After an attempt that found no capacity or no quota, the next one takes the next of `instance_type` and
`fallback_instance_types`, and begins again behind the last. `instance_preferences` leaves the choice to SageMaker,
which wants quota for every type in the list.
"""

_STORAGE = """SageMaker puts each job's results into a folder of its own below `s3_output_path`. To a checkpoint
prefix, `{run}/r{rank}` is appended, so that no replica writes over another's. Both need a role that may write there:
the stack's may write into the stack's bucket only.
"""

_ACCESS = """A role of your own must be one that Muster's launcher may pass (`iam:PassRole`); the stack allows its own.
"""

_LEFT_OUT_HEAD = """## What of CreateTrainingJob is not here

A test holds that every other member of the request can be set.
"""

_WORDS: dict[type, str] = {str: "text", int: "whole number", float: "number", bool: "true or false"}
_JSON_VALUES = "mapping of names to JSON values"


# The parts of the spec in the order of the page, each with what is said of it.
_PARTS: tuple[tuple[str, str, type[Document]], ...] = (
    ("The run", "", Spec),
    ("The limits of the run", "", LimitFields),
    ("The container", "", AlgorithmFields),
    ("The source", _SOURCE, SourceFields),
    ("The instance", _INSTANCE, ResourceFields),
    ("Time", "", TimeFields),
    ("Data and results", _STORAGE, StorageFields),
    ("Role and network", _ACCESS, AccessFields),
    ("What watches a replica", "", ObservationFields),
)


def spec_reference() -> str:
    """The text of docs/spec.md."""
    parts = [text for title, words, part in _PARTS for text in _part(title, words, part)]
    nested = [text for model in _sections() for text in _section(model)]
    return "\n".join([_HEAD, *parts, *nested, _left_out()])


def _part(title: str, words: str, part: type[Document]) -> list[str]:
    return [f"## {title}\n", *([words] if words else []), _table(part)]


def _sections() -> list[type[Document]]:
    """Every mapping inside the spec, in the order in which they are met."""
    found: list[type[Document]] = []
    pending: list[type[Document]] = [part for _, _, part in _PARTS]
    while pending:
        met = [model for field in _own_fields(pending.pop(0)).values() for model in _documents(field.annotation)]
        new = [model for model in dict.fromkeys(met) if model not in found]
        found += new
        pending += new
    return found


def _documents(annotation: Any) -> Iterator[type[Document]]:
    if isinstance(annotation, type) and issubclass(annotation, Document):
        yield annotation
    for argument in get_args(annotation):
        yield from _documents(argument)


def _section(model: type[Document]) -> list[str]:
    first = (model.__doc__ or "").splitlines()[0]
    return [f"## {_title(model)}\n", _RERUNS if model is Budget else f"{first}\n", _table(model)]


def _title(model: type[Document]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", model.__name__).capitalize().replace("Vpc", "VPC")


def _left_out() -> str:
    rows = [f"| `{member}` | {reason} |" for member, reason in LEFT_OUT.items()]
    return "\n".join([_LEFT_OUT_HEAD, "| member | why |", "|---|---|", *rows]) + "\n"


def budget_table() -> str:
    """The table of the default budgets."""
    rows = ["| class | reruns per replica | first wait | longest wait |", "|---|---|---|---|"]
    for failure_class, budget in DEFAULT_BUDGETS.items():
        waits = (budget.delay_seconds, budget.max_delay_seconds) if budget.delay_seconds else (0, 0)
        cells = (f"{wait:,} s" if budget.max_reruns else "–" for wait in waits)
        rows.append(f"| `{failure_class}` | {budget.max_reruns} | {' | '.join(cells)} |")
    return "\n".join(rows)


def with_budgets(text: str) -> str:
    """`text` with the table between its marks made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{budget_table()}\n{END}{after}"


def _table(model: type[Document]) -> str:
    rows = ["| field | value | default | meaning |", "|---|---|---|---|"]
    for name, field in _own_fields(model).items():
        cells = (f"`{name}`", _value(field), _default(field), field.description or "")
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _own_fields(model: type[Document]) -> dict[str, FieldInfo]:
    """The fields that a part of the spec adds to what it is made of."""
    inherited = {name for base in model.__bases__ for name in getattr(base, "model_fields", {})}
    return {name: field for name, field in model.model_fields.items() if name not in inherited}


def _value(field: FieldInfo) -> str:
    return ", ".join([_type(field.annotation), *_limits(field.metadata)])


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in {typing.Union, types.UnionType}:
        return _type(next(argument for argument in arguments if argument is not types.NoneType))
    if origin is typing.Annotated:
        return ", ".join([_type(arguments[0]), *_limits(arguments[1:])])
    if origin is typing.Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if origin is dict:
        return _mapping(*arguments)
    return f"list of ({_type(arguments[0])})" if origin is list else _plain(annotation)


def _plain(annotation: type) -> str:
    if issubclass(annotation, StrEnum):
        return " or ".join(f"`{member}`" for member in annotation)
    return _link(annotation) if issubclass(annotation, Document) else _WORDS[annotation]


def _link(model: type[Document]) -> str:
    title = _title(model)
    return f"[{title[:1].lower() + title[1:]}](#{title.lower().replace(' ', '-')})"


def _mapping(key: Any, value: Any) -> str:
    if isinstance(key, type) and issubclass(key, StrEnum):
        return f"mapping of failure classes to ({_type(value)})"
    if isinstance(value, type) and issubclass(value, Document):
        return f"mapping of ranks to ({_type(value)})"
    if get_origin(value) is not typing.Annotated:
        return _JSON_VALUES
    return f"mapping of ({_type(key)}) to ({_type(value)})"


def _limits(metadata: typing.Iterable[Any]) -> Iterator[str]:
    metadata = list(metadata)
    # Words where the model has them, the bare pattern otherwise.
    spoken = any(isinstance(item, Says) and item.allowed for item in metadata)
    for item in metadata:
        match item:
            case FieldInfo():
                yield from _limits(item.metadata)
            case annotated_types.Ge():
                yield f"at least {item.ge:,}"
            case annotated_types.Gt():
                yield f"more than {item.gt:,}"
            case annotated_types.Le():
                yield f"at most {item.le:,}"
            case annotated_types.MinLen():
                yield f"at least {item.min_length:,} long"
            case annotated_types.MaxLen():
                yield f"at most {item.max_length:,} long"
            case Says() if item.allowed:
                yield item.allowed
            case _ if not spoken and (pattern := getattr(item, "pattern", None)) is not None:
                yield f"`{pattern}`"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    default = field.get_default(call_default_factory=True)
    if default is None or default in ({}, []) or isinstance(default, Document):
        return "–"
    return f"`{json.dumps(default)}`"


def pages() -> dict[Path, str]:
    """Every page that follows from the code, as it should be."""
    failures = DOCS / "failures.md"
    return {
        DOCS / "spec.md": spec_reference(),
        DOCS / "events.md": events_reference(),
        DOCS / "commands.md": commands_reference(),
        DOCS / "commands.schema.json": commands_schema(),
        failures: with_budgets(failures.read_text(encoding="utf-8")),
    }


def main(arguments: list[str]) -> int:
    """Write what has changed; with --check only say so, with 1 when something has."""
    made = pages()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(DOCS.parent)} is out of date: run `python -m docs.generate`.", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(made[path], encoding="utf-8")
        print(f"wrote {path.relative_to(DOCS.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
