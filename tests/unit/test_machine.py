"""What `make` says of a machine that lacks something."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "infra" / "machine.sh"


class Machine:
    """A PATH with a few programs of this machine, and stand-ins that print what they are told to."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.calls = folder / "calls"
        for name in ("sh", "cat", "env", "mktemp", "rm", "sed", "sort", "tail"):
            self.links(name)

    def links(self, name: str) -> None:
        found = shutil.which(name)
        assert found is not None
        (self.bin / name).symlink_to(found)

    def has(self, name: str, script: str = "exit 0") -> None:
        """Put a program on the PATH; its calls are noted."""
        file = self.bin / name
        file.write_text(f'#!/bin/sh\necho "{name} $*" >>"{self.calls}"\n{script}\n', encoding="utf-8")
        file.chmod(0o755)

    def has_all_but_programs(self) -> None:
        for name in ("python3", "node", "npm", "git"):
            self.has(name, "echo 99")

    def look(self, *programs: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.bin), "TMPDIR": str(self.bin.parent)}
        command = [str(self.bin / "sh"), str(SCRIPT), *programs]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_all_that_is_missing_is_named_at_once_with_one_command(machine: Machine) -> None:
    machine.has("python3", "case $2 in *ensurepip*) exit 1;; *print*) echo 3.11.2;; esac")
    machine.has("apt-get")
    machine.has("apt-cache", "echo 'Version: 22.1.0'")
    machine.has("id", "echo 1000")
    outcome = machine.look("chromium", "tmux", "qemu", "cc")
    assert outcome.returncode == 1
    wanted = "python3-venv nodejs npm git chromium tmux qemu-user-static gcc libc6-dev"
    assert outcome.stderr.splitlines()[-1].strip() == f"sudo apt-get install -y {wanted}"
    for found in ("python3 3.11.2", "node: not found", "git: not found", "chromium: not found", "tmux: not found"):
        assert found in outcome.stderr
    assert "apt-get" not in machine.calls.read_text()


def test_as_root_one_call_installs_everything(machine: Machine) -> None:
    machine.has_all_but_programs()
    machine.has("id", "echo 0")
    # It installs what it is asked for: a program of that name.
    installs = f'case $1 in install) for p in chromium tmux; do cp "{machine.bin}/git" "{machine.bin}/$p"; done;; esac'
    machine.has("apt-get", installs)
    machine.links("cp")
    outcome = machine.look("chromium", "tmux")
    assert outcome.returncode == 0, outcome.stderr
    [installed] = [line for line in machine.calls.read_text().splitlines() if " install " in line]
    assert installed.endswith(" chromium tmux")
    assert "DPkg::Lock::Timeout" in installed


def test_what_no_package_cures_is_told_and_nothing_is_installed(machine: Machine) -> None:
    machine.has("python3", "case $2 in *print*) echo 3.9.1;; *) exit 1;; esac")
    machine.has("node", "case $1 in --version) echo v18.2.0;; *) exit 1;; esac")
    machine.has("git")
    machine.has("id", "echo 0")
    machine.has("apt-get")
    machine.has("apt-cache", "echo 'Version: 18.20.4+dfsg-1'")
    outcome = machine.look("tmux")
    assert outcome.returncode == 1
    assert "python3: 3.9.1" in outcome.stderr
    assert "node: v18.2.0" in outcome.stderr
    assert "make PYTHON=" in outcome.stderr
    assert "apt-get install" not in machine.calls.read_text()


def test_an_installation_that_fails_is_shown_with_the_command_to_repeat(machine: Machine) -> None:
    machine.has_all_but_programs()
    machine.has("id", "echo 0")
    machine.has("apt-get", "echo 'E: Unable to fetch some archives'; exit 100")
    outcome = machine.look("tmux")
    assert outcome.returncode == 1
    assert "E: Unable to fetch some archives" in outcome.stderr
    assert outcome.stderr.splitlines()[-1].strip() == "sudo apt-get install -y tmux"


def test_make_looks_before_it_does_anything(tmp_path: Path, machine: Machine) -> None:
    machine.links("make")
    machine.links("bash")
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "infra").mkdir()
    shutil.copy(SCRIPT, tmp_path / "infra")
    environment = {"PATH": str(machine.bin), "TMPDIR": str(tmp_path)}
    command = ["make", "SHELL=bash", "test"]
    outcome = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert "tmux: not found" in outcome.stderr
    assert not (tmp_path / ".venv").exists()
