"""An execution that has the name of an older run. Step Functions frees a name 90 days after the end of its execution.

The new execution has the same ARN, and it is refused because the run's documents are still there. Until then, and
afterwards, only the times show that the documents are not its own.
"""

from __future__ import annotations

from datetime import datetime, timedelta

# Much longer than the clocks of two services differ, and much shorter than the 90 days.
_CLOCKS_DIFFER = timedelta(days=1)


def is_of_earlier_execution(written_at: datetime, started_at: datetime) -> bool:
    """Whether what was written at `written_at` is of another execution than the one that started at `started_at`."""
    return written_at < started_at - _CLOCKS_DIFFER
