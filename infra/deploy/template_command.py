"""`muster template`."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

import muster
from muster.client.cli.option_groups import Json, grouped
from muster.client.cli.output import busy, print_either
from muster.infra.deploy.cdk_tools import ASSEMBLY, ASSETS_PREFIX, cdk_environment, require_node
from muster.infra.deploy.command_runner import CommandRunner
from muster.infra.deploy.deploy_answers import TemplateWritten
from muster.infra.settings.settings_file import SETTINGS_FILE, SettingsFile, parse_settings
from muster.infra.settings.stack_settings import LOCAL_IMAGE, Platform, ReplicasTable, StackSettings

TEMPLATE_FILE = "muster.template.json"


@grouped
def template(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the template and the code are written.")],
    *,
    settings: Annotated[
        Path | None, typer.Option("--settings", metavar="FILE", help=f"Settings file; default: ./{SETTINGS_FILE}.")
    ] = None,
    target: Annotated[Platform, typer.Option("--target", help="Where the functions run.")] = Platform.AWS,
    as_json: Json = False,
) -> None:
    """Write the stack as a CloudFormation template with its code, to deploy it without the CDK."""
    file = SettingsFile.read(settings)
    chosen = parse_settings(file.tables, target, file.text, file.name)
    with busy("synthesizing the stack"):
        written = write_template(folder, chosen, target)
    print_either(written, _lines(folder, written), as_json=as_json)


def write_template(folder: Path, settings: StackSettings, target: Platform) -> TemplateWritten:
    """Write the template and the archives that it names to `folder`.

    Raises:
        NodeMissingError: there is no node, or an old one.
        DeployError: the synthesis failed.
    """
    require_node()
    if target is Platform.LOCAL and settings.replicas.image is None:
        replicas = ReplicasTable.model_validate({**settings.tables.get("replicas", {}), "image": LOCAL_IMAGE})
        settings = settings.model_copy(update={"replicas": replicas})
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".synthesis-") as name:
        work = Path(name).absolute()
        environment = cdk_environment(os.environ, target, work, settings, published=True)
        runner = CommandRunner(work, environment, work / "log")
        runner.finish([runner.start("the CDK app", [sys.executable, "-m", "muster.infra.app"])])
        return _collected(work / ASSEMBLY, settings.stack.name, folder)


def _collected(assembly: Path, stack: str, folder: Path) -> TemplateWritten:
    """Copy the template and its assets, under the names that it gives them, out of a cloud assembly."""
    template_name = f"{stack}.template.json"
    manifest = json.loads((assembly / f"{stack}.assets.json").read_text(encoding="utf-8"))
    archives = {}
    for asset in manifest["files"].values():
        if asset["source"]["path"] != template_name:
            [destination] = asset["destinations"].values()
            archives[destination["objectKey"].rpartition("}")[2]] = assembly / asset["source"]["path"]
    beside = {file.name: file for file in assembly.glob("*.template.json") if file.name != template_name}
    for name, source in {TEMPLATE_FILE: assembly / template_name, **archives, **beside}.items():
        shutil.copyfile(source, folder / name)
    return TemplateWritten(
        stack=stack,
        version=muster.__version__,
        template=str(folder / TEMPLATE_FILE),
        archives=tuple(sorted(archives)),
        beside=tuple(sorted(beside)),
    )


def _lines(folder: Path, written: TemplateWritten) -> Iterator[str]:
    yield f"Wrote {written.template}, and beside it the code of the functions: {', '.join(written.archives)}."
    yield ""
    yield "To deploy it, copy the files to a bucket of the stack's region and create the stack:"
    yield ""
    yield f"aws s3 cp --recursive {folder} s3://BUCKET/{ASSETS_PREFIX}"
    yield f"aws cloudformation create-stack --stack-name {written.stack} --capabilities CAPABILITY_IAM \\"
    yield f"  --template-url https://BUCKET.s3.REGION.amazonaws.com/{ASSETS_PREFIX}{TEMPLATE_FILE} \\"
    yield "  --parameters ParameterKey=AssetsBucket,ParameterValue=BUCKET"
    if written.beside:
        yield ""
        yield "Then each place, with credentials for it, and the stack's output BucketName:"
        yield ""
    for name in written.beside:
        yield f"aws cloudformation deploy --stack-name {name.removesuffix('.template.json')} --region REGION \\"
        yield f"  --template-file {folder / name} --capabilities CAPABILITY_NAMED_IAM \\"
        yield "  --parameter-overrides HomeBucket=BUCKET"
