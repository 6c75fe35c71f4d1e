"""Muster as it is installed: from the wheel, into an environment of its own, in a folder without a clone."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest

import muster
from muster.contract.exits import ReplicaExit
from muster.infra.release.artifacts import (
    build_distributions,
    build_wheel,
    contents,
    differences,
    install_wheel,
    make_environment,
    user_environment,
)
from muster.options.verify.client.check_outcomes import CheckOutcome, Verification
from muster.replica.kernel.library import MACHINES, SOURCE, library_name, source_digest
from tests.support.dockerfile import instructions
from tests.support.source_patch import ROOT, copied_tree
from tests.support.waiting import wait_until

TRAINER = """
import numpy as np
from muster import Algorithm, Context, DiLoCo

def train(context: Context, *, rounds: int) -> None:
    values = {"weights": np.zeros(4, np.float32)}
    outer = DiLoCo(context.rendezvous, values, Algorithm(sync_every=1))
    while outer.round < rounds and not context.stop.is_set():
        values["weights"] += 1
        outer.step(samples=1)
    outer.finish()
"""
SPEC = {
    "replicas": 2,
    "trainer": "counting:train",
    "kwargs": {"rounds": 2},
    "source_dir": "code",
    "instance_type": "ml.m5.large",
}
PUBLISHED = "Published"
_INSTALLED = "import importlib.metadata as m; print(*(found.name for found in m.distributions()))"
CLONES = ("muster/infra/gate/", "muster/infra/release/", "muster/infra/machine.sh")
"""Parts that work on a clone."""


class Installation:
    """An environment of its own with the wheel in it, used in a folder outside the clone."""

    def __init__(self, folder: Path, wheel: Path, extra: str) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.environment = user_environment(folder / "cache")
        self._python = make_environment(folder / "environment")
        install_wheel(self._python, wheel, extra, ["--constraint", str(ROOT / "requirements.txt")])

    @property
    def packages(self) -> Path:
        """The folder of the installed packages."""
        [found] = (self._python.parents[1] / "lib").glob("python*/site-packages")
        return found

    def run(
        self, *arguments: str, environment: Mapping[str, str] | None = None, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """The command `muster` of the environment, which ends with the exit code `code`."""
        command = [str(self._python.with_name("muster")), *arguments]
        shell = self.environment if environment is None else dict(environment)
        done = subprocess.run(command, cwd=self.folder, env=shell, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """The sdist, the wheel that is built from it, and the wheel that is built from the tree."""
    folder = tmp_path_factory.mktemp("distributions")
    with copied_tree() as tree:
        direct = build_wheel(tree, folder / "direct")
    with copied_tree() as tree:
        return *build_distributions(tree, folder / "released"), direct


@pytest.fixture(scope="module")
def installed(distributions: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(tmp_path_factory.mktemp("installed"), distributions[1], "deploy")


@pytest.fixture
def cloud(installed: Installation) -> Iterator[dict[str, str]]:
    """The environment of a shell that uses an embedded cloud, which the installed command has started."""
    installed.run("local", "up", "--port", "0")
    try:
        listed = json.loads(installed.run("local", "env", "--json").stdout)
        yield {
            **{name: value for name, value in installed.environment.items() if name not in listed["unset"]},
            **listed["set"],
        }
    finally:
        installed.run("local", "down")


def test_the_wheel_is_the_same_from_the_sdist_and_holds_one_package(distributions: tuple[Path, Path, Path]) -> None:
    sdist, released, direct = distributions
    assert differences(sdist, released) == []
    assert differences(released, direct) == []
    files = contents(released).keys()
    # Another package `infra` or `lambdas` may be installed beside it.
    assert {name.partition("/")[0] for name in files} == {"muster", f"muster_train-{muster.__version__}.dist-info"}
    # Each file that git holds below the package is in it, but for what works on a clone.
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    linked = ("infra/", "lambdas/", "statemachine/")
    held = {f"muster/{name}" if name.startswith(linked) else name for name in listed}
    ours = {name for name in held if name.startswith("muster/") and not (ROOT / name).is_dir()}
    ours = {name for name in ours if not name.startswith(CLONES)}
    libraries = {f"muster/replica/kernel/{library_name(machine)}" for machine in MACHINES}
    assert ours | libraries == {n for n in files if n.startswith("muster/")}
    assert {"CHANGELOG.md", "SECURITY.md", "README.md", "LICENSE"} <= contents(sdist).keys()


def test_the_wheel_carries_the_kernel_of_every_machine(
    distributions: tuple[Path, Path, Path], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    files, folder = contents(distributions[1]), "muster/replica/kernel/"
    assert set(MACHINES) == {"x86_64", "aarch64"}
    for machine, processor in (("x86_64", "X86-64"), ("aarch64", "AArch64")):
        with subtests.test(machine):
            library = tmp_path / library_name(machine)
            library.write_bytes(files[f"{folder}{library.name}"])
            command = ["readelf", "--wide", "--file-header", "--dynamic", "--dyn-syms", library]
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert re.search(rf"Machine: .*{processor}$", found, re.MULTILINE)
            symbols = re.findall(r"^ *\d+: \w+ +\d+ .* (UND|\d+) (\S+)$", found, re.MULTILINE)
            functions = {"muster_encode", "muster_decode", "muster_put", "muster_nesterov"}
            assert {name for place, name in symbols if place != "UND"} == functions | {"muster_kernel_source"}
            # Of every libc, or none.
            assert "(NEEDED)" not in found
            assert {name for place, name in symbols if place == "UND"} <= {"memcpy", "memset", "memmove"}
            assert source_digest(files[f"{folder}{SOURCE}"]).encode() in library.read_bytes()


_PIP = """#!/bin/sh
# pip as far as the Dockerfiles use it, by uv, which has downloaded the same packages before.
shift
options=$(echo "$@" | sed s/--no-cache-dir//)
cd {root} && exec {python} -m muster.infra.packages install --quiet --python {target} $options
"""


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_the_commands_of_a_dockerfile_make_an_image_in_which_a_replica_starts(
    distributions: tuple[Path, Path, Path], tmp_path: Path, name: str
) -> None:
    python = make_environment(tmp_path / "image")
    pip = python.with_name("pip")
    pip.write_text(_PIP.format(root=ROOT, python=sys.executable, target=python), encoding="utf-8")
    pip.chmod(0o755)
    copied = tmp_path / "copied"
    copied.mkdir()
    shutil.copy(distributions[1], copied)
    shutil.copy(ROOT / "requirements.txt", copied)
    image = {**user_environment(tmp_path / "cache"), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    found = instructions(ROOT / "docker" / f"{name}.Dockerfile")
    [place] = [value.split()[-1].rstrip("/") for verb, value in found if verb == "COPY"]
    for command in [value.replace(place, str(copied)) for verb, value in found if verb == "RUN"]:
        subprocess.run(["sh", "-c", command], cwd=tmp_path, env=image, check=True)
    assert not copied.exists()
    # Nothing of the command line and the SDK; the replica says what it misses outside of a job.
    listed = subprocess.run([python, "-c", _INSTALLED], env=image, capture_output=True, text=True, check=True).stdout
    assert {"muster-train", "numpy", "obstore", "pydantic", "xxhash"} <= set(listed.split())
    assert not {"boto3", "typer", "rich"} & set(listed.split())
    environment = {**image, "SAGEMAKER_BASE_DIR": str(tmp_path / "ml")}
    command = [python, "-m", "muster.replica"]
    started = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert started.returncode == ReplicaExit.BAD_INPUT, started.stderr
    assert "Traceback" not in started.stderr


def test_without_an_extra_it_is_the_client(distributions: tuple[Path, Path, Path], tmp_path: Path) -> None:
    client = Installation(tmp_path, distributions[1], "")
    client.run("init", ".", "--from", "counting:train")
    assert "4 training jobs" in client.run("plan", "run.yaml").stdout
    for command, extra in ((("local", "up"), "local"), (("deploy", "--yes"), "deploy")):
        refused = client.run(*command, code=3)
        assert refused.stderr.endswith(f"which is not installed: run pip install 'muster-train[{extra}]'.\n")
        assert len(refused.stderr.splitlines()) == 1


def test_a_stack_is_deployed_verified_and_published_without_a_clone(
    installed: Installation, cloud: dict[str, str]
) -> None:
    assert installed.run("--version").stdout == f"muster {muster.__version__}\n"
    before = {path for path in (installed.packages / "muster").rglob("*") if "__pycache__" not in path.parts}
    (installed.folder / "muster.toml").write_text('[replicas]\ntags = {team = "research"}\n', encoding="utf-8")

    deployed = json.loads(installed.run("deploy", "--target", "local", "--json", "--yes", environment=cloud).stdout)
    assert deployed["outputs"]["Version"] == muster.__version__
    assert {"key": "replicas.tags", "deployed": None, "new": {"team": "research"}} in deployed["settings"]
    # Built below the user's cache and the working folder, never beside the package.
    after = {path for path in (installed.packages / "muster").rglob("*") if "__pycache__" not in path.parts}
    assert after == before
    assert {path.name for path in installed.folder.iterdir()} == {".muster", "muster.toml"}

    # Its run of two replicas would take as long as all else here; the published stack has a run.
    found = Verification.model_validate_json(installed.run("verify", "--no-run", "--json", environment=cloud).stdout)
    assert [check for check in found.checks if check.outcome is CheckOutcome.FAILED] == []

    _deploy_published(installed, cloud)
    assert _trained(installed, cloud, PUBLISHED)["verdict"] == "succeeded"


def _deploy_published(installed: Installation, cloud: dict[str, str]) -> None:
    """Deploy the published template with CloudFormation's and S3's interfaces alone."""
    (installed.folder / "published.toml").write_text(f'[stack]\nname = "{PUBLISHED}"\n', encoding="utf-8")
    arguments = ("template", "published", "--settings", "published.toml", "--target", "local", "--json")
    written = json.loads(installed.run(*arguments, environment=cloud).stdout)
    folder = installed.folder / "published"
    names = [Path(written["template"]).name, *written["archives"]]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    template = json.loads((folder / names[0]).read_text(encoding="utf-8"))
    assert "cdk-hnb659fds" not in json.dumps(template)  # nothing of the CDK's bootstrap

    session = boto3.Session(cloud["AWS_ACCESS_KEY_ID"], cloud["AWS_SECRET_ACCESS_KEY"], region_name=cloud["AWS_REGION"])
    options: dict[str, Any] = {"endpoint_url": cloud["AWS_ENDPOINT_URL"], "verify": cloud["AWS_CA_BUNDLE"]}
    s3, cloudformation = session.client("s3", **options), session.client("cloudformation", **options)
    s3.create_bucket(Bucket="releases")
    for name in names:
        s3.upload_file(str(folder / name), "releases", f"muster/{written['version']}/{name}")
    cloudformation.create_stack(
        StackName=PUBLISHED,
        TemplateURL=f"{cloud['AWS_ENDPOINT_URL']}/releases/muster/{written['version']}/{names[0]}",
        Parameters=[{"ParameterKey": "AssetsBucket", "ParameterValue": "releases"}],
        Capabilities=["CAPABILITY_IAM"],
    )

    def status() -> str:
        return str(cloudformation.describe_stacks(StackName=PUBLISHED)["Stacks"][0]["StackStatus"])

    wait_until("the stack is created", lambda: not status().endswith("IN_PROGRESS"))
    assert status() == "CREATE_COMPLETE"


def _trained(installed: Installation, cloud: dict[str, str], stack: str) -> dict[str, Any]:
    """The result of a run with a trainer of the working folder."""
    (installed.folder / "code").mkdir()
    (installed.folder / "code" / "counting.py").write_text(TRAINER, encoding="utf-8")
    (installed.folder / "run.json").write_text(json.dumps(SPEC), encoding="utf-8")
    installed.run("launch", "run.json", "--name", "first", "--stack", stack, "--watch", environment=cloud)
    result: dict[str, Any] = json.loads(
        installed.run("result", "first", "--stack", stack, "--json", environment=cloud).stdout
    )
    return result
