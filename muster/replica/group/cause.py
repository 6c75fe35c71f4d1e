"""Why a replica's processes ended: the first of many reasons. Pure.

When one process fails, the others fail because of it soon after: a collective operation loses its peer, SIGTERM
stops them. What counts is what came first.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from muster.contract.exits import ReplicaExit, with_exit_word
from muster.replica.group.group_folder import Report

# A process that a signal has killed, or that os._exit has ended, says nothing, while a peer that loses it may complain
# at once. torch's launcher notes the time of an end in whole seconds.
CLOSE_SECONDS = 2.0


@dataclass(frozen=True)
class End:
    """The end of a process: when (seconds since 1970), and its exit code (negative: minus the signal)."""

    at: float
    code: int

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended it, and not the one with which a group is ended."""
        return self.code < 0 and self.code != -signal.SIGTERM


@dataclass(frozen=True)
class Cause:
    """Why a group failed, and the exit code that says so."""

    code: int
    text: str

    @property
    def reason(self) -> str:
        """The text for output/failure."""
        known = ReplicaExit(self.code) if self.code in set(ReplicaExit) else None
        if known is None or known in {ReplicaExit.USER_CODE, ReplicaExit.KILLED}:
            return self.text
        return with_exit_word(known, self.text)


def first_cause(ends: Mapping[str, End], reports: Mapping[str, Report], finished: Collection[str]) -> Cause | None:
    """The first failure among the processes of an instance, by their names; None if there is none.

    `ends` holds the processes that have ended, `reports` what processes that failed have said. A process that ends with
    exit code 0 has failed, too, unless it has said that it is done, as those of `finished` have.
    """
    failed = {name: end for name, end in ends.items() if end.code != 0 or name not in finished}
    times = [*(end.at for end in failed.values()), *(report.at for report in reports.values())]
    if not times:
        return None
    first = min(times)
    silent = {
        name: end
        for name, end in failed.items()
        if (end.was_killed or end.code == 0) and name not in reports and end.at <= first + CLOSE_SECONDS
    }
    if silent:
        name = min(silent, key=lambda item: silent[item].at)
        return _silent(name, silent[name])
    if reports:
        name = min(reports, key=lambda item: reports[item].at)
        return Cause(reports[name].code, f"{name}: {reports[name].text}")
    name = min(failed, key=lambda item: failed[item].at)
    code = failed[name].code
    if code < 0:
        return Cause(128 - code, f"{name} was ended by {_signal_name(-code)}")
    return Cause(code, f"{name} ended with exit code {code} and gave no reason")


def _silent(name: str, end: End) -> Cause:
    """Why a process ended that could not or did not say it."""
    if end.code == 0:
        text = f"{name} ended with exit code 0 before the trainer returned: let it return, and do not call os._exit"
        return Cause(ReplicaExit.USER_CODE, text)
    return Cause(128 - end.code, f"{name} was killed by {_signal_name(-end.code)}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
