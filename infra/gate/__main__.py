"""`python -m muster.infra.gate`: the static gate of `make check`. Findings that no exception accepts fail it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from muster.contract.errors import ConfigurationError
from muster.infra.deploy.template_limits import oversized
from muster.infra.gate.finding import AcceptedPlace, Finding, judge, read_exceptions
from muster.infra.gate.policy_checks import check_policies
from muster.infra.gate.source_checks import find_unused
from muster.infra.gate.synthesis import nag_findings, synthesize, template_file
from muster.infra.gate.template_checks import lint
from muster.infra.gate.tools import ROOT
from muster.infra.gate.variants import PLACES, Resolved
from muster.infra.gate.workflow_checks import check_definitions

EXCEPTIONS = Path(__file__).resolve().with_name("exceptions.toml")


def all_findings(folder: Path) -> list[Finding]:
    """What every check finds in all variants; what they write goes below `folder`.

    A checker is one process for all variants, since it takes seconds to start, and each has a processor of its own.

    Raises:
        GateError: a checker could not run.
    """
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        unused = pool.submit(find_unused, ROOT)
        templates = synthesize(folder)
        resolved = {
            f"{variant}-{place.partition}": (Resolved(template, place), place.partition)
            for variant, template in templates.items()
            for place in PLACES
        }
        running = [
            pool.submit(lint, [template_file(folder, variant) for variant in templates]),
            pool.submit(check_policies, {name: template for name, (template, _) in resolved.items()}, folder),
            pool.submit(check_definitions, resolved, folder),
            unused,
        ]
        found = [finding for variant in templates for finding in nag_findings(folder / variant)]
        found += [
            Finding("muster", "sum-above-limit", f"{variant}/{problem.field}", str(problem))
            for variant, template in templates.items()
            for problem in oversized(template)
        ]
        return found + [finding for check in running for finding in check.result()]


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
