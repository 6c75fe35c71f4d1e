"""Reading `muster.toml`: every problem at once, with its line, before anything is changed."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from muster.contract.errors import PROBLEMS_SHOWN, Problem, SettingsError, SpecError, StatedProblem
from muster.contract.layout import STACK_FOLDERS, split_s3_uri
from muster.contract.spec.private_values import shown
from muster.contract.spec.spec_problems import problems_of
from muster.contract.spec.spec_reader import parse_spec
from muster.infra.settings.scheduled_runs import schedule_problems
from muster.infra.settings.stack_settings import (
    REARM_SECONDS_MIN,
    SNAP_START,
    Platform,
    StackSettings,
    snap_start_problems,
)
from muster.options import offers

if TYPE_CHECKING:
    from muster.infra.deploy.account import Account

SETTINGS_FILE = "muster.toml"
DEFAULTS_BYTES_MAX = 3_000
"""Lambda: a function's environment has at most 4,096 bytes; a quarter of it is for the other variables."""


# A spec's field -> the setting that is its default.
_OF_SPEC = {
    "image": "image",
    "instance_type": "instance_type",
    "vpc_config": "vpc",
    "volume_kms_key_id": "kms_key_arn",
    "role_arn": "role_arn",
    "tags": "tags",
}
# How like a key of another table an unknown key must be, of at most 1, to be taken for it.
_LIKE = 0.75
_LINE_MAX = 1_000  # a longer line sets no key that a person looks for
_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?")
_PART = r"""(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")


@dataclass(frozen=True)
class SettingsFile:
    """A settings file as it was read, not validated yet."""

    name: str
    text: str
    tables: dict[str, Any]

    @classmethod
    def read(cls, path: Path | None) -> SettingsFile:
        """The file `path`; `muster.toml` of the working directory if None, which need not exist.

        Raises:
            SettingsError: it cannot be read, or is not TOML.
        """
        file = path or Path(SETTINGS_FILE)
        text = "" if path is None and not file.exists() else _read(file)
        return cls(file.name, text, parse_tables(text, file.name))


def _read(path: Path) -> str:
    """The text of a settings file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        problem = StatedProblem("the file", f"it cannot be read: {reason}", "name another with --settings")
    except UnicodeDecodeError:
        problem = StatedProblem("the file", "it is not UTF-8 text", "save it as UTF-8")
    raise SettingsError(str(path), [problem])


def parse_tables(text: str, name: str = SETTINGS_FILE) -> dict[str, Any]:
    """The document of a settings file, not validated yet.

    Raises:
        SettingsError: it is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem = StatedProblem("the file", f"it is not TOML: {str(error)[:200]}", "correct this place")
        raise SettingsError(name, [problem]) from None


def parse_settings(
    document: Mapping[str, Any], target: Platform, text: str = "", name: str = SETTINGS_FILE
) -> StackSettings:
    """The settings that `document` gives; `text` and `name` are those of the file, for the lines of an error.

    Raises:
        SettingsError: with every problem at once.
    """
    problems: list[Problem] = []
    try:
        settings = StackSettings.model_validate(document)
    except ValidationError as error:
        problems = [_with_nearest(problem) for problem in problems_of(error, StackSettings)]
        faulty = {tuple(map(str, item["loc"][:2])) for item in error.errors(include_url=False)}
        settings = StackSettings.model_validate(_without(document, faulty))
    problems += _between_keys(settings, target)
    if problems:
        raise SettingsError(name, problems, [line_of(text, problem.field) for problem in problems[:PROBLEMS_SHOWN]])
    return settings


def _with_nearest(problem: Problem) -> Problem:
    """The problem; for an unknown key that no key of its own table resembles, with the nearest key of another table."""
    if problem.found != "unknown field" or problem.remedy.startswith("did you mean"):
        return problem
    name = problem.field.rpartition(".")[2]
    keys = {key: f"{table}.{key}" for table, model in fixed_tables().items() for key in model.model_fields}
    near = difflib.get_close_matches(name, keys, n=1, cutoff=_LIKE)
    return replace(problem, remedy=f"did you mean {keys[near[0]]}?") if near else problem


@dataclass(frozen=True)
class SettingsOffer:
    """What an option says of its tables, before anything is changed (the seam `infra.settings`)."""

    problems: Callable[[StackSettings], Iterable[Problem]]
    """What holds between several keys, each of which is right by itself."""
    local_tables: Callable[[Mapping[str, str]], Mapping[str, Any]]
    """The tables of a stack on the embedded cloud, from the environment of a shell that uses it."""
    preflight: Callable[[Account, StackSettings], Iterable[Problem]]
    """What would make a deployment to the account fail."""


def settings_offers() -> list[SettingsOffer]:
    """What all options say."""
    return [*offers("infra.settings", SettingsOffer)]


def fixed_tables() -> dict[str, type[BaseModel]]:
    """The model of every table whose keys are fixed."""
    return {
        name: field.annotation
        for name, field in StackSettings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }


def _without(document: Mapping[str, Any], faulty: set[tuple[str, ...]]) -> dict[str, Any]:
    """The document without its faulty keys, which must not hide the problems of others."""
    tables = {table: keys for table, keys in document.items() if (table,) not in faulty and isinstance(keys, Mapping)}
    return {
        table: {key: value for key, value in keys.items() if (table, key) not in faulty}
        for table, keys in tables.items()
    }


def _between_keys(settings: StackSettings, target: Platform) -> Iterator[Problem]:
    """What holds between several keys, each of which is right by itself."""
    least = REARM_SECONDS_MIN[target]
    if settings.runs.rearm_seconds < least:
        allowed = f"at least {least:,} on AWS: a long run would exceed 25,000 history events"
        yield Problem("runs.rearm_seconds", str(settings.runs.rearm_seconds), "raise it", allowed)
    if settings.runs.snap_start and target is Platform.LOCAL:
        remedy = "leave it out for the embedded cloud"
        yield Problem(SNAP_START, "true", remedy, "false on the embedded cloud, which takes no snapshots of functions")
    yield from snap_start_problems(settings, settings.stack.region)
    bucket = settings.bucket
    if bucket.existing is not None:
        for key in ("name", "access_logs_bucket", "access_logs_prefix"):
            if getattr(bucket, key) is not None:
                remedy = "leave it out" if key == "name" else "leave it out, and set it on the bucket itself"
                yield StatedProblem(f"bucket.{key}", "set together with bucket.existing", remedy)
    elif bucket.access_logs_prefix is not None and bucket.access_logs_bucket is None:
        yield StatedProblem("bucket.access_logs_prefix", "set without bucket.access_logs_bucket", "set both")
    for key in settings.stack.tags:
        if key.casefold().startswith("aws:"):
            yield StatedProblem(f"stack.tags.{key}", "this key is reserved", "choose a key that does not begin so")
    yield from _access_problems(settings)
    yield from _default_problems(settings)
    for name, schedule in sorted(settings.schedules.items()):
        yield from schedule_problems(name, schedule)
    for offer in settings_offers():
        yield from offer.problems(settings)


def _access_problems(settings: StackSettings) -> Iterator[Problem]:
    """What the replica role may read."""
    replicas, own = settings.replicas, settings.bucket.existing or settings.bucket.name
    for key in ("data", "data_kms_key_arns", "secrets", "secrets_kms_key_arns", "policy_arns"):
        if replicas.role_arn is not None and getattr(replicas, key):
            remedy = "leave it out, and allow it in that role's own policies"
            yield StatedProblem(f"replicas.{key}", "set together with replicas.role_arn", remedy)
    for key in ("data", "secrets"):
        if getattr(replicas, f"{key}_kms_key_arns") and not getattr(replicas, key):
            yield StatedProblem(f"replicas.{key}_kms_key_arns", f"set without replicas.{key}", "set both")
    yield from own_data_problems(settings, own)


def own_data_problems(settings: StackSettings, own: str | None) -> Iterator[Problem]:
    """Prefixes that would open what Muster writes in the stack's own bucket `own`, or all of it."""
    for field, uris in (("replicas.data", settings.replicas.data), ("recipes.sources", settings.recipes.sources)):
        for index, uri in enumerate(uris):
            bucket, key = split_s3_uri(uri)
            top = key.partition("/")[0]
            if bucket == own and top in {"", *STACK_FOLDERS}:
                allowed = f"not in the stack's own bucket: its root, {', '.join(f'{name}/' for name in STACK_FOLDERS)}"
                yield Problem(f"{field}.{index}", repr(uri), "use another prefix", allowed)


def _default_problems(settings: StackSettings) -> Iterator[Problem]:
    """Defaults that no spec could have either."""
    replicas = settings.replicas
    given = {
        "image": replicas.image,
        "vpc_config": None if replicas.vpc is None else replicas.vpc.model_dump(mode="json"),
        "role_arn": replicas.role_arn,
        "tags": replicas.tags or None,
        "volume_kms_key_id": settings.defaults.kms_key_id,
    }
    fields = {field: value for field, value in given.items() if value is not None}
    # An instance type with local disks takes no key. As defaults both are valid: they apply to different replicas.
    for part in (fields, {} if replicas.instance_type is None else {"instance_type": replicas.instance_type}):
        try:
            parse_spec({"replicas": 1, "entrypoint": ["-"], **part})
        except SpecError as error:
            for problem in error.problems:
                top, dot, rest = problem.field.partition(".")
                place = f"replicas.{_OF_SPEC[top]}{dot}{rest}"
                yield type(problem)(place, problem.found, problem.remedy, problem.allowed)
    size = len(settings.defaults.to_json())
    if size > DEFAULTS_BYTES_MAX:
        allowed = f"at most {DEFAULTS_BYTES_MAX:,} bytes with all defaults, a limit of Lambda"
        remedy = "use fewer or shorter tags, prefixes and secrets"
        yield Problem("replicas.tags", f"{shown(replicas.tags)}, {size:,} bytes", remedy, allowed)


def line_of(text: str, field: str) -> int | None:
    """The line on which `field` (table.key) is set, or else the nearest table above it; None where there is none."""
    places: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > _LINE_MAX:
            continue
        if (header := _HEADER.fullmatch(line)) is not None:
            table = _plain(header[1])
            places.setdefault(table, number)
        elif (key := _KEY.match(line)) is not None:
            name = ".".join(filter(None, [table, _plain(key[1])]))
            while name:  # a.b.c = 1 also sets a.b
                places.setdefault(name, number)
                name = name.rpartition(".")[0]
    parts = field.split(".")
    wanted = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((places[place] for place in wanted if place in places), None)


def _plain(key: str) -> str:
    return re.sub(r"""\s*\.\s*""", ".", key).replace('"', "").replace("'", "")
