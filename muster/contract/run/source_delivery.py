"""How a user's source code reaches a container without an image of its own. Free of dependencies, as the bootstrap is.

The source is one archive, named by the SHA-256 of its tar stream. It lies in the input channel `muster-source`, and
Muster's replica package in `muster-package`; that package is a zip file that Python runs as it is.
"""

from __future__ import annotations

SOURCE = "source/"
"""Archives of source code lie under this prefix of the stack's bucket."""
ARCHIVE_SUFFIX = ".tar.gz"
SOURCE_CHANNEL = "muster-source"
PACKAGE_CHANNEL = "muster-package"
REQUIREMENTS = "requirements.txt"

# Source is code: data belongs into channels. Held when it is packed, and again when it is unpacked.
SOURCE_BYTES_MAX = 100 * 1024 * 1024
SOURCE_FILES_MAX = 10_000

# An archive stays for as long as a run that names it may want it: an execution lives at most a year (Step Functions).
# One that is older than REFRESH_DAYS at a launch is stored anew, so that this holds for every launch.
REFRESH_DAYS = 30
EXPIRY_DAYS = 400

# The shell finds the package, whose name is its digest, and where the tree lies.
BOOTSTRAP = (
    *("sh", "-c"),
    f'exec python "${{SAGEMAKER_BASE_DIR:-/opt/ml}}"/input/data/{PACKAGE_CHANNEL}/*.zip "$@"',
    "muster",
)


def source_key(digest: str) -> str:
    """Where the archive with this digest lies in the stack's bucket."""
    return f"{SOURCE}{digest}{ARCHIVE_SUFFIX}"
