"""Python packages, installed by uv with the settings that pip has on this machine.

`python -m muster.infra.packages install -r requirements.txt` is `uv pip install -r requirements.txt`; every command of
`uv pip` works. uv reads neither pip.conf nor PIP_* variables, so a machine behind a company's index would need a second
set of settings: here pip's are translated. A UV_* variable that is set wins over them.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from uv import find_uv_bin

# pip's setting, the option of `uv pip` that means the same, and the variable that overrides it. Lists are split.
_OPTIONS = (
    ("index-url", "--default-index", "UV_DEFAULT_INDEX"),
    ("extra-index-url", "--index", "UV_INDEX"),
    ("find-links", "--find-links", "UV_FIND_LINKS"),
    ("trusted-host", "--allow-insecure-host", "UV_INSECURE_HOST"),
    ("keyring-provider", "--keyring-provider", "UV_KEYRING_PROVIDER"),
)
# pip's setting, and the variable in which uv looks for the same.
_VARIABLES = (
    ("cert", "SSL_CERT_FILE"),
    ("client-cert", "SSL_CLIENT_CERT"),
    ("proxy", "ALL_PROXY"),
    ("timeout", "UV_HTTP_TIMEOUT"),
    ("default-timeout", "UV_HTTP_TIMEOUT"),
)
# The parts of pip's configuration that count for an installation; a later one overrides an earlier one.
_SECTIONS = ("global", "install", ":env:")
_TRUE = ("1", "true", "yes", "on", "y", "t")


def pip_settings(listing: str) -> dict[str, str]:
    """pip's settings by their option names, from what `pip config list` prints."""
    found: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in listing.splitlines():
        name, separator, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if separator and section in found:
            found[section][key] = str(ast.literal_eval(value))
    return {key: value for section in _SECTIONS for key, value in found[section].items()}


def uv_options(settings: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """pip's `settings` as options of `uv pip`, without those that `environment` sets for uv itself."""
    options = [
        part
        for setting, option, variable in _OPTIONS
        if variable not in environment
        for value in settings.get(setting, "").split()
        for part in (option, value)
    ]
    if settings.get("no-index", "").lower() in _TRUE:
        options.append("--no-index")
    if "UV_INDEX_STRATEGY" not in environment:
        # As pip: the best version of all indexes, not of the first that has the package.
        options += ["--index-strategy", "unsafe-best-match"]
    return options


def uv_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """The variables that give uv the connection settings of pip."""
    return {variable: settings[setting] for setting, variable in _VARIABLES if setting in settings}


def uv_pip(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command `uv pip ARGUMENTS` and the environment to run it in: this interpreter's, unless ARGUMENTS say where.

    Raises:
        subprocess.CalledProcessError: pip cannot read its own settings.
    """
    settings = pip_settings(_pip_listing())
    command, *rest = arguments
    environment = {**os.environ, **uv_variables(settings), "VIRTUAL_ENV": sys.prefix}
    return [find_uv_bin(), "pip", command, *uv_options(settings, os.environ), *rest], environment


def _pip_listing() -> str:
    """What `pip config list` prints: this interpreter's pip, or else the machine's. Without any pip there is nothing.

    An environment that uv has made has no pip, but the index that pip is to use is still the machine's.
    """
    own = find_spec("pip") is not None
    program = shutil.which("pip") or shutil.which("pip3")
    if not own and program is None:
        return ""
    command = [sys.executable, "-m", "pip"] if own else [str(program)]
    return subprocess.run([*command, "config", "list"], capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Become uv."""
    command, environment = uv_pip(sys.argv[1:])
    os.execve(command[0], command, environment)  # noqa: S606 - the program that this one stands in for


if __name__ == "__main__":
    main()
