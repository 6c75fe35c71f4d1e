"""`python -m muster.infra.gate`: the static gate of `make check`. Findings that no exception accepts fail it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from muster.contract.errors import ConfigurationError
from muster.infra.gate.finding import AcceptedPlace, Finding, judge, read_exceptions
from muster.infra.gate.policy_checks import check_policies
from muster.infra.gate.source_checks import find_unused
from muster.infra.gate.synthesis import nag_findings, synthesize, template_file
from muster.infra.gate.template_checks import lint
from muster.infra.gate.tools import ROOT
from muster.infra.gate.variants import PLACES, VARIANTS, Resolved
from muster.infra.gate.workflow_checks import check_definition

EXCEPTIONS = Path(__file__).resolve().with_name("exceptions.toml")

_Check = Callable[[], list[Finding]]


def checks(folder: Path) -> list[_Check]:
    """Every check; what they write goes below `folder`."""
    return [partial(find_unused, ROOT), *(partial(_check_variant, variant, folder / variant) for variant in VARIANTS)]


def _check_variant(variant: str, folder: Path) -> list[Finding]:
    template = synthesize(variant, folder)
    found = [*nag_findings(folder), *lint(template_file(folder))]
    everywhere = {place.partition: Resolved(template, place) for place in PLACES}
    found += check_policies(everywhere, folder / "policies")
    for partition, resolved in everywhere.items():
        found += check_definition(resolved, partition, folder)
    return found


def all_findings(folder: Path) -> list[Finding]:
    """What every check finds. As many run at once as there are processors.

    Raises:
        GateError: a checker could not run.
    """
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        running = [pool.submit(check) for check in checks(folder)]
        return [finding for check in running for finding in check.result()]


def report(still_open: Iterable[Finding], unused: Iterable[AcceptedPlace], exceptions: Path) -> list[str]:
    """The lines that the gate prints; none if it holds."""
    lines = [str(finding) for finding in still_open]
    if lines:
        lines.append(
            f"{len(lines)} findings. Mend them; what is right as it is gets a row with a reason in {exceptions}."
        )
    stale = [f"{exceptions}: {place} matches nothing any more: remove it" for place in unused]
    return [*lines, *stale]


def main() -> int:
    """Run every check: 0 if nothing is open, otherwise 1."""
    try:
        accepted = read_exceptions(EXCEPTIONS)
        with tempfile.TemporaryDirectory(prefix="muster-gate-") as folder:
            found = all_findings(Path(folder))
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 1
    lines = report(*judge(found, accepted), EXCEPTIONS.relative_to(ROOT))
    print("\n".join(lines) or f"The static gate holds: {len(set(found))} findings are accepted with a reason.")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
