"""The access table of docs/security.md: `python -m tests.infra.access_table` writes it from the template.

A change of who may do what therefore shows in a diff of the page, and a test fails until it does.
"""

import json
import re
import tempfile
from pathlib import Path

from tests.support.template import ROOT, Statement, Template, app_environment, run_app

PAGE = ROOT / "docs" / "security.md"
BEGIN = "<!-- access: made by tests/infra/access_table.py -->"
END = "<!-- end of access -->"


def access_table(template: Template) -> str:
    """Every statement of every role, one row each."""
    rows = sorted(_row(statement) for statement in template.statements)
    head = "| role | may | on | if |\n|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def with_table(page: str, table: str) -> str:
    """`page` with `table` between the marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}{END}{after}"


def _row(statement: Statement) -> str:
    conditions = [
        f"{key} {operator} {', '.join(map(_short, [wanted] if isinstance(wanted, str) else wanted))}"
        for operator, block in sorted(statement.condition.items())
        for key, wanted in sorted(block.items())
    ]
    actions = statement.actions if statement.effect == "Allow" else [f"not {action}" for action in statement.actions]
    cells = (statement.role, _lines(actions), _lines(map(_short, statement.resources)), _lines(conditions))
    return f"| {' | '.join(cells)} |"


def _short(arn: str) -> str:
    """An ARN without what all of them have in common, and without the digest of an asset."""
    arn = re.sub(r"[0-9a-f]{64}\.zip", "PACKAGE.zip", arn)
    return arn.removeprefix("arn:aws:").replace("REGION:ACCOUNT:", "").replace("s3:::BUCKET", "s3:bucket")


def _lines(values: object) -> str:
    return "<br>".join(f"`{value}`" for value in sorted(values))  # type: ignore[call-overload]


def main() -> None:
    """Write the table into the page."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_app(app_environment({}, Path(folder)))
        if outcome.returncode != 0:
            raise SystemExit(outcome.stderr)
        template = Template(json.loads((Path(folder) / "Muster.template.json").read_text(encoding="utf-8")))
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), access_table(template)), encoding="utf-8")


if __name__ == "__main__":
    main()
