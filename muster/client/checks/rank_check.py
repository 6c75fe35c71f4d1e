"""Whether a trainer tells its replica from the others: without that, all train on the same data."""

from __future__ import annotations

import re
from pathlib import Path

from muster.client.checks.checked_program import Program
from muster.client.checks.package_check import files_of
from muster.client.checks.python_modules import Found, locate

_TELLS_APART = re.compile(r"rank|world_size|ShardedBy", re.IGNORECASE)


def check_rank(program: Program, root: Path) -> list[str]:
    """A remark on a trainer in whose source nothing is named like a rank, where nothing else differs by rank."""
    if program.module is None or not program.are_alike:
        return []
    start = locate(root, program.module)
    if not isinstance(start, Found):
        return []
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in files_of(root, start.path))
    if any(map(_TELLS_APART.search, texts)):
        return []
    remedy = "divide the data by context.rank and context.world_size"
    return [f"{program.trainer} never reads its rank, so all replicas would train on the same data: {remedy}"]
