"""What mypy is told not to read is nothing that is used."""

import ast
import tomllib

from tests.support.source_patch import ROOT


def test_each_service_of_the_cdk_that_is_used_is_read() -> None:
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]["overrides"]
    read = {name for one in overrides if one.get("follow_imports") == "normal" for name in one["module"]}
    used = {
        f"aws_cdk.{alias.name}"
        for path in (ROOT / "infra").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "aws_cdk"
        for alias in node.names
        if alias.name.startswith("aws_")
    }
    assert used <= read
    assert len(used) > 5
