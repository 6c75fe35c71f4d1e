"""`python -m muster.own_loop`: starts a replica with the flags and variables of the former entrypoint.

For images and launchers that still use them. Launches through Muster do not need it.

| flag | variable | meaning |
|---|---|---|
| `--rendezvous` | `RENDEZVOUS_URI` | the rendezvous, s3:// or file:// |
| `--world-size` | `WORLD_SIZE` | the number of replicas |
| | `REPLICA_RANK`, `MUSTER_RANK` | this replica's rank |
| `--trainer-module`, `--trainer-fn` | | the trainer, called as `own_loop` says |
| `--trainer-kwargs-json` | | its arguments: JSON, or the s3:// or file:// URI of a JSON document of any size |

An argument of a training job has at most 256 characters: pass longer ones by URI.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from pydantic import JsonValue

from muster.contract.exits import ReplicaExit
from muster.contract.names import REPLICAS_MAX, run_name
from muster.contract.run.replica_variables import ENV_RANK
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.hook import OWN_LOOP, own_loop_kwargs
from muster.contract.training.source_delivery import DEFAULT_BASE_DIR, ENV_BASE_DIR
from muster.replica.entry.container_environment import Environment
from muster.replica.entry.main import main as run_replica
from muster.replica.replica_errors import InputError
from muster.replica.store.open_store import is_store_uri, open_store
from muster.replica.store.transport import ObjectMissingError, StoreDeniedError

_GRACE_SECONDS = 30.0
_TIMEOUT_SECONDS = 3_600.0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError([message])


def _flags(arguments: Sequence[str], variables: Mapping[str, str]) -> argparse.Namespace:
    # Either may be given; the flag takes precedence.
    parser = _Parser(prog="muster.own_loop", add_help=False, allow_abbrev=False)
    parser.add_argument("--rendezvous", default=variables.get("RENDEZVOUS_URI", ""))
    parser.add_argument("--world-size", default=variables.get("WORLD_SIZE", ""))
    parser.add_argument("--trainer-module", default="")
    parser.add_argument("--trainer-fn", default="train")
    parser.add_argument("--trainer-kwargs-json", default="{}")
    return parser.parse_args(list(arguments))


def read_legacy(arguments: Sequence[str], variables: Mapping[str, str]) -> tuple[Environment, RunDocument]:
    """The replica's environment and its run document.

    Raises:
        InputError: lists everything that is missing or wrong.
        StoreUnavailableError: the document with the trainer's arguments cannot be reached.
    """
    flags = _flags(arguments, variables)
    problems: list[str] = []
    if not is_store_uri(flags.rendezvous):
        problems.append(f"--rendezvous is {flags.rendezvous!r}, not an s3:// or file:// URI")
    replicas = _number("--world-size", flags.world_size, 1, REPLICAS_MAX, problems)
    rank = _number(
        "REPLICA_RANK", variables.get("REPLICA_RANK") or variables.get(ENV_RANK, ""), 0, replicas - 1, problems
    )
    if not flags.trainer_module:
        problems.append("--trainer-module is not given (the module of the trainer)")
    base_dir = Path(variables.get(ENV_BASE_DIR) or DEFAULT_BASE_DIR)
    if not base_dir.is_dir():
        problems.append(f"{base_dir} is not a directory ({ENV_BASE_DIR} names the root of SageMaker's folders)")
    kwargs = _kwargs(flags.trainer_kwargs_json, problems)
    if problems:
        raise InputError(problems)
    rendezvous = f"{flags.rendezvous.rstrip('/')}/"
    # Processes with the same rendezvous are one run. There is no second attempt: a restart is another incarnation.
    run = run_name(rendezvous)
    document = RunDocument(
        run=run,
        plan_digest="",
        replicas=replicas,
        trainer=OWN_LOOP,
        kwargs=own_loop_kwargs(f"{flags.trainer_module}:{flags.trainer_fn}", kwargs),
        rendezvous_uri=rendezvous,
        min_participants=replicas,
        grace_seconds=_GRACE_SECONDS,
        timeout_seconds=_TIMEOUT_SECONDS,
    )
    # Two uses of the same rendezvous look the same, so a finish of the first would be taken for one of the second:
    # these replicas report none (`on_early_finish` of the document is not set).
    return Environment("", run, rank, 1, base_dir), document


def _number(name: str, text: str, least: int, most: int, problems: list[str]) -> int:
    if text.isascii() and text.isdigit() and least <= int(text) <= most:
        return int(text)
    # Do not report what depends on the missing number as well.
    problems.append(f"{name} is {text!r}, not a whole number from {least} to {most}")
    return REPLICAS_MAX


def _kwargs(text: str, problems: list[str]) -> dict[str, JsonValue]:
    if is_store_uri(text):
        folder, _, name = text.rpartition("/")
        try:
            text = bytes(open_store(f"{folder}/").read(name).body).decode()
        except (ObjectMissingError, StoreDeniedError, UnicodeDecodeError) as error:
            problems.append(f"--trainer-kwargs-json: {error}")
            return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        problems.append(f"--trainer-kwargs-json is neither JSON nor an s3:// or file:// URI: {error}")
        return {}
    if isinstance(found, dict):
        return found
    problems.append(f"--trainer-kwargs-json is a {type(found).__name__}, not a mapping of names to values")
    return {}


def main() -> ReplicaExit:
    """Run one replica in this process."""
    return run_replica(os.environ, lambda variables: read_legacy(sys.argv[1:], variables))
