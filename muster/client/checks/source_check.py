"""What can be found out about a spec from its text and its source folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.client.checks.check_findings import CheckFindings
from muster.client.checks.checked_program import Program
from muster.client.checks.package_check import check_packages, files_of
from muster.client.checks.python_modules import locate
from muster.client.checks.script_check import check_script
from muster.client.checks.trainer_check import check_trainer
from muster.client.launch.source_archive import folder_problem
from muster.contract.errors import Problem, SpecError, StatedProblem
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec

# The grammar of image names (distribution/reference): a registry has a dot, a port, or is localhost.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REGISTRY = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:[0-9]))(?::[0-9]+)?"
_NAME = re.compile(
    rf"(?:(?P<registry>{_REGISTRY})/)?(?P<path>{_PART}(?:/{_PART})*)"
    r"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?P<digest>@[A-Za-z][A-Za-z0-9]*:[0-9a-fA-F]{32,})?"
)
# Placeholders of a dry run, and images of the embedded cloud.
_OWN = ("<", "muster-local/")
_EXAMPLE = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
_TELLS_APART = re.compile(r"rank|world_size|ShardedBy", re.IGNORECASE)


def check_source(document: Mapping[Any, object]) -> CheckFindings:
    """Problems of the source folder, the trainer, the script and the image; the rest of the spec may be wrong."""
    program = Program.of(document)
    found = CheckFindings() if program.image is None else _check_image(program.image)
    if program.module is not None and program.module.endswith(".py"):
        meant = f"{program.module.removesuffix('.py')}:{program.function}"
        statement = f"found {program.trainer!r}, which names a file"
        return CheckFindings((StatedProblem("trainer", statement, f"name the module: {meant}"),)) + found
    if program.source_dir is None or program.source_dir.startswith("s3://"):
        return found
    root = Path(program.source_dir)
    missing = folder_problem(root)
    if missing is not None:
        return CheckFindings((missing,)) + found
    if program.module is not None:
        found = check_trainer(program, root) + found
    if program.words:
        found = check_script(program, root) + found
    return found + CheckFindings(remarks=(*check_packages(program, root), *_check_rank(program, root)))


def check_spec(spec: Spec) -> CheckFindings:
    """The same for a spec that has been read."""
    return check_source(spec.model_dump(mode="json", exclude_unset=True))


def read_checked(value: object) -> Spec:
    """A spec from a parsed document, whose source has not been checked yet.

    Raises:
        SpecError: the spec has problems; those of its source are listed with them.
    """
    try:
        return parse_spec(value)
    except SpecError as error:
        others = check_source(value).problems if isinstance(value, Mapping) else ()
        if error.more or not others:
            raise
        raise SpecError([*others, *error.problems]) from None


def _check_rank(program: Program, root: Path) -> list[str]:
    """A remark on a trainer in whose source nothing is named like a rank, where nothing else differs by rank."""
    if program.module is None or not program.are_alike:
        return []
    start = locate(root, program.module)
    if not isinstance(start, Path):
        return []
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in files_of(root, start))
    if any(map(_TELLS_APART.search, texts)):
        return []
    remedy = "divide the data by context.rank and context.world_size"
    return [f"{program.trainer} never reads its rank, so all replicas would train on the same data: {remedy}"]


def _check_image(image: str) -> CheckFindings:
    """What is wrong with the name, or left to chance by it."""
    if image.startswith(_OWN):
        return CheckFindings()
    found = _NAME.fullmatch(image)
    if found is None:
        allowed = "registry/repository:tag, with a repository in lower case"
        remedy = f"write it as {_EXAMPLE}/training:1"
        return CheckFindings((Problem("image", repr(image), remedy, allowed),))
    remarks = []
    if not found["registry"]:
        remarks.append(
            f"the image {image} names no registry, and SageMaker pulls from Amazon ECR: write {_EXAMPLE}/{image}"
        )
    if not found["tag"] and not found["digest"]:
        remarks.append(
            f"the image {image} has no tag, so it is `latest`, which may change between attempts: name a tag"
        )
    return CheckFindings(remarks=tuple(remarks))
