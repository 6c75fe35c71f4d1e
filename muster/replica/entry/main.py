"""Runs a process of a replica: check the input, claim the rank, call the trainer, save its result, report how it ended.

Of several processes, the first one claims the rank and writes what a replica writes once; see `rounds/claims.py`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from muster.contract.errors import MusterError
from muster.contract.exits import ReplicaExit, with_exit_word
from muster.contract.layout import MODEL_FOLDER
from muster.contract.run.last_lines import without_resolved
from muster.contract.run.run_document import RunDocument
from muster.contract.training.source_delivery import DEFAULT_BASE_DIR, ENV_BASE_DIR
from muster.options import offers
from muster.replica.context import Context
from muster.replica.entry.container_environment import Environment, Place, read_environment, read_run_document
from muster.replica.entry.container_tree import Tree, manifest_of
from muster.replica.entry.trainer import EXITED, EndNow, Listeners, Trainer, Watching, call_trainer, load_trainer
from muster.replica.group.board import BoardError
from muster.replica.group.group_process import GroupProcess
from muster.replica.model.departure import Result
from muster.replica.rendezvous import Outside, Rendezvous
from muster.replica.replica_errors import (
    FencedError,
    HistoryGoneError,
    InputError,
    OutOfMemoryError,
    RendezvousError,
    RunEndedError,
    StoppedError,
    TrainerError,
    WatchError,
)
from muster.replica.rounds.prefetch import Prefetch
from muster.replica.rounds.quorum import Quorum
from muster.replica.rounds.round_context import OfferedPlaces, Places, RoundContext, Stops, log
from muster.replica.rounds.suspicions import NO_SUSPICIONS, Suspicions
from muster.replica.statistics.metrics import Ending, Metrics, has_hanging_listeners
from muster.replica.store.open_store import open_store
from muster.replica.store.pace import Pace
from muster.replica.store.read_ahead import ReadAhead, is_reading
from muster.replica.store.transport import Store, StoreDeniedError, StoreUnavailableError

_EXITS: dict[type, ReplicaExit] = {
    InputError: ReplicaExit.BAD_INPUT,
    StoreDeniedError: ReplicaExit.BAD_INPUT,
    HistoryGoneError: ReplicaExit.BAD_INPUT,  # no rerun brings it back
    RendezvousError: ReplicaExit.RENDEZVOUS,
    StoreUnavailableError: ReplicaExit.RENDEZVOUS,
    BoardError: ReplicaExit.RENDEZVOUS,
    FencedError: ReplicaExit.FENCED,
    StoppedError: ReplicaExit.STOPPED,
    OutOfMemoryError: ReplicaExit.OUT_OF_MEMORY,
}


Read = Callable[[Mapping[str, str]], tuple[Environment, RunDocument]]
"""Reads a replica's environment and its run document from the process's variables."""


def _read(variables: Mapping[str, str]) -> tuple[Environment, RunDocument]:
    environment = read_environment(variables)
    return environment, read_run_document(environment)


def main(variables: Mapping[str, str], read: Read = _read, member: GroupProcess | None = None) -> ReplicaExit:
    """Run this process of a replica, by default its only one; returns its exit code.

    The reason of a failure is written to output/failure; a member of a group reports it to its launcher.
    """
    code = _ended(variables, read, member or GroupProcess())
    if has_hanging_listeners() or is_reading():
        # A library may wait for its service when the interpreter ends, or a request for its answer; the job is billed.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _ended(variables: Mapping[str, str], read: Read, member: GroupProcess) -> ReplicaExit:
    logging.basicConfig(level=logging.INFO, format="muster %(levelname)s %(message)s", stream=sys.stderr)
    stops = Stops()
    signal.signal(signal.SIGTERM, lambda *_: stops.terminate())
    member.ready()
    # What is left of the metrics is written after the reason of a failure is reported: a slow sink must not delay it.
    with ExitStack() as at_the_end:

        def end_now(error: WatchError) -> None:
            # The trainer hangs, so nothing that it would have to let through is tried.
            code = _failed(error, variables, member)
            at_the_end.close()
            os._exit(code)

        try:
            _run(*read(variables), _Process(stops, member, at_the_end, end_now))
        except MusterError as error:
            return _failed(error, variables, member)
        except MemoryError as error:
            # Raised by Muster's own code: an error in the trainer is a TrainerError or an OutOfMemoryError by now.
            traceback.print_exc()
            return _failed(OutOfMemoryError(f"The replica failed: {type(error).__name__}"), variables, member)
    member.finish()
    return ReplicaExit.DONE


def _failed(error: MusterError, variables: Mapping[str, str], member: GroupProcess) -> ReplicaExit:
    text = without_resolved(str(error), variables)
    log.error("%s", text)
    code = next((_EXITS[kind] for kind in type(error).__mro__ if kind in _EXITS), ReplicaExit.USER_CODE)
    if isinstance(error, WatchError):
        code = error.exit_code
    if not member.report(code, text):
        reason = text if code is ReplicaExit.USER_CODE else with_exit_word(code, text)
        Tree(Path(variables.get(ENV_BASE_DIR) or DEFAULT_BASE_DIR)).write_failure(reason)
    return code


@dataclass(frozen=True)
class _Process:
    """What the training needs of its process."""

    stops: Stops
    member: GroupProcess
    at_the_end: ExitStack
    end_now: EndNow


def _run(environment: Environment, document: RunDocument, process: _Process) -> None:
    member = process.member
    tree = Tree(environment.base_dir)
    tree.prepare()
    round_context, outside = _round_context(environment, document, process)
    trainer = load_trainer(document.trainer or "", document.kwargs)
    # The first process of a replica reports for all of them.
    offered = offers("replica.listeners", Listeners) if member.group.is_first else ()
    metrics = Metrics([offer.open(document, environment.rank, tree.checkpoints) for offer in offered])
    process.at_the_end.callback(metrics.close)
    rank = document.member(environment.rank)
    rendezvous = Rendezvous.open(round_context, rank, environment.attempt, metrics, outside)
    context = _context(environment, document, rendezvous)
    try:
        result, ended = _train(trainer, context, document, process)
    except StoppedError:
        metrics.ending = Ending.STOPPED
        raise
    if not context.rendezvous.departure.has_left and member.group.is_first:
        message = f"{document.trainer} returned without creating a DiLoCo(context.rendezvous, ...)."
        raise TrainerError(message)
    metrics.ending = Ending.DONE
    if result is None or not member.group.is_first:
        return
    uri = open_store(document.results_uri).uri(MODEL_FOLDER)
    manifest = manifest_of(uri, result, context.metrics.latest(), ended)
    tree.write_manifest(manifest)
    log.info("event=done round=%d checksum=%s model=%s", manifest.round, manifest.checksum[:12], uri)


def _train(trainer: Trainer, context: Context, document: RunDocument, process: _Process) -> tuple[Result | None, str]:
    """What the training has left, once all processes of the replica have returned; None if it joined no run.

    And how the trainer ended, if it neither returned nor left the run itself.
    """
    member = process.member
    try:
        with ExitStack() as watched:
            for offer in offers("replica.watching", Watching):
                watched.enter_context(offer.during(context.rendezvous.rounds, document, process.end_now))
            how = call_trainer(trainer, context, document)
    except RunEndedError as end:
        log.info("event=ended reason=%r", str(end))
        how = f"the run ended with round {end.round}"
    except StoppedError:
        if (training := context.rendezvous.departure.training) is not None:
            # A running exchange is stopped as well; until it ends it may be changing the state.
            with suppress(MusterError):
                training.exchanges.wait()
        member.wait_for_stops()
        raise
    ended = how if how == EXITED and not context.rendezvous.departure.has_left else ""
    result = context.rendezvous.departure.returned(how)
    member.wait_for_returns()
    return result, ended


def _suspicions(environment: Environment, document: RunDocument) -> Suspicions:
    if document.notices_uri is None:
        return NO_SUSPICIONS
    store = _opened(document.notices_uri, environment, document)
    return Suspicions(store, document.run, document.reported_ranks)


def _round_context(environment: Environment, document: RunDocument, process: _Process) -> tuple[RoundContext, Outside]:
    """The rendezvous, where what this process will load is read from now on, while the trainer is imported."""
    member = process.member
    pace = Pace(document.timeout_seconds, process.stops.asked)
    store = _opened(document.rendezvous_uri, environment, document, pace)
    ahead = ReadAhead(store)
    fewest, grace_seconds = document.min_participants, document.grace_seconds
    quorum = Quorum(document.replicas, fewest, grace_seconds, document.quorum, document.start)
    context = RoundContext(
        store,
        document.rendezvous_name,
        quorum,
        document.timeout_seconds,
        process.stops,
        snapshot_rounds=document.snapshot_rounds,
        rounds_before=document.rounds_before,
        trained_by=document.run,
        on_early_finish=document.on_early_finish,
        group=member.group,
        board=member.board,
        suspicions=_suspicions(environment, document),
        ahead=ahead,
        places=None if environment.place is None else _places(environment.place, store, pace),
    )
    prefetch = Prefetch(context, ahead, member.beside)
    prefetch.start()
    process.at_the_end.callback(prefetch.close)
    return context, Outside(
        results=_opened(document.results_uri, environment, document, pace),
        checkpoint_rounds=document.checkpoint_rounds,
        checkpoints=document.checkpoints,
        local_states=environment.local_states,
        joined=prefetch.close,
    )


def _opened(uri: str, environment: Environment, document: RunDocument, pace: Pace | None = None) -> Store:
    """What the document names, in home's region if it lies in the run's bucket, else in this process's own."""
    is_home = urlsplit(uri).netloc == urlsplit(document.rendezvous_uri).netloc
    return open_store(uri, pace, environment.place.home_region if environment.place is not None and is_home else None)


def _places(place: Place, store: Store, pace: Pace) -> Places:
    offer = next(offers("replica.places", OfferedPlaces), None)
    if offer is None:
        raise InputError([f"the run has several places ({place.name}), for which this package of Muster has nothing"])
    return offer.open(place.name, store if place.near_uri is None else open_store(place.near_uri, pace))


def _context(environment: Environment, document: RunDocument, rendezvous: Rendezvous) -> Context:
    tree = Tree(environment.base_dir)
    return Context(
        run=document.run,
        rank=rendezvous.rank,
        world_size=document.replicas,
        attempt=environment.attempt,
        incarnation=rendezvous.seat.claim.incarnation,
        group=rendezvous.context.group,
        rendezvous=rendezvous,
        metrics=rendezvous.statistics.metrics,
        stop=rendezvous.context.stops.trainer,
        input_dir=tree.input_data,
        checkpoint_dir=tree.checkpoints,
        output_dir=tree.output_data,
        model_dir=tree.model,
    )
