"""How a user's source code gets into a container that has no image of its own.

The source is one archive, named by the SHA-256 of its tar stream. It is in the input channel `muster-source`, and
Muster's replica package is in `muster-package`; that package is a zip file, named by its SHA-256, that Python runs as
it is. Free of
dependencies: the bootstrap in the container reads this module before anything is installed.
"""

from __future__ import annotations

import re

SOURCE = "source/"
"""Archives of source code are stored under this prefix of the stack's bucket."""
ARCHIVE_SUFFIX = ".tar.gz"
PACKAGES = "packages/"
"""Muster's replica packages are stored under this prefix of the stack's bucket, one for each version that was used."""
PACKAGE_SUFFIX = ".zip"
PACKAGE_FILE = "replica.zip"
"""The package's place in the functions' bundle."""
SOURCE_CHANNEL = "muster-source"
PACKAGE_CHANNEL = "muster-package"
REQUIREMENTS = "requirements.txt"

_SOURCE_KEY = re.compile(rf"{SOURCE}[0-9a-f]{{64}}{re.escape(ARCHIVE_SUFFIX)}")

# Source is code: data belongs in channels. Checked when the source is packed, and again when it is unpacked.
SOURCE_BYTES_MAX = 100 * 1024 * 1024
SOURCE_FILES_MAX = 10_000  # files; and folders
SOURCE_DEPTH_MAX = 100  # parts of a file's path

# An archive must exist for as long as a run that names it may need it: an execution lives at most a year (Step
# Functions). A launch stores an archive again if it is older than REFRESH_DAYS, so this holds for every launch. A plan
# does the same with the replica package.
REFRESH_DAYS = 30
EXPIRY_DAYS = 400

# SageMaker's directory tree in a container. Its own toolkit and the embedded cloud set the variable.
ENV_BASE_DIR = "SAGEMAKER_BASE_DIR"
DEFAULT_BASE_DIR = "/opt/ml"

# A shell, because it must find the package, whose file name is its digest, and the tree.
BOOTSTRAP = (
    *("sh", "-c"),
    f'exec python "${{{ENV_BASE_DIR}:-{DEFAULT_BASE_DIR}}}"/input/data/{PACKAGE_CHANNEL}/*.zip "$@"',
)
BOOTSTRAP_NAME = "muster"
"""What follows `BOOTSTRAP`, before the program: the shell's own name for it."""


def source_key(digest: str) -> str:
    """The key of the archive with this digest in the stack's bucket."""
    return f"{SOURCE}{digest}{ARCHIVE_SUFFIX}"


def is_source_key(key: str) -> bool:
    """Whether a key is that of an archive, as a digest makes it. It becomes a part of policies: nothing else may."""
    return _SOURCE_KEY.fullmatch(key) is not None


def package_key(digest: str) -> str:
    """The key of the replica package with this digest in the stack's bucket."""
    return f"{PACKAGES}{digest}{PACKAGE_SUFFIX}"
