"""A replica's log in the protocol's form: a line that names the job and its log stream, then what it has written."""

from __future__ import annotations

from collections.abc import Sequence

from muster.client.logs.log_lines import LogLine


def log_text(rank: int, job: str, lines: Sequence[LogLine]) -> str:
    """The lines, each job's below a line that names it; `job` is the one that is named while there are none."""
    if not lines:
        return f"[rank {rank}] job={job}: no CloudWatch log stream yet (the job is pending or has not started)."
    text: list[str] = []
    stream = None
    for line in lines:
        if line.stream != stream:
            stream = line.stream
            text.append(f"[rank {rank}] job={line.job} stream={stream}")
        text.append(line.message)
    return "\n".join(text)
