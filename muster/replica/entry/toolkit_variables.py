"""The variables that SageMaker's training toolkit sets for a program, from the folders of the job.

The toolkit is the entrypoint of AWS's images, and Muster's own entrypoint takes its place. Free of dependencies: the
bootstrap in the container reads this module before anything is installed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from muster.contract.training.source_delivery import PACKAGE_CHANNEL, SOURCE_CHANNEL

_OWN = (PACKAGE_CHANNEL, SOURCE_CHANNEL)


def toolkit_variables(base: Path) -> dict[str, str]:
    """SM_CHANNEL_* and the others by which a script finds its folders; `base` is /opt/ml."""
    data, config = base / "input" / "data", base / "input" / "config"
    folders = sorted(data.iterdir()) if data.is_dir() else []
    channels = {path.name: str(path) for path in folders if path.is_dir() and path.name not in _OWN}
    resources = _document(config / "resourceconfig.json")
    hosts = resources.get("hosts", ["algo-1"])
    return {
        "SM_MODEL_DIR": str(base / "model"),
        "SM_OUTPUT_DIR": str(base / "output"),
        "SM_OUTPUT_DATA_DIR": str(base / "output" / "data"),
        "SM_INPUT_DIR": str(base / "input"),
        "SM_INPUT_CONFIG_DIR": str(config),
        "SM_CHANNELS": json.dumps([*channels]),
        "SM_HPS": json.dumps(_document(config / "hyperparameters.json")),
        "SM_HOSTS": json.dumps(hosts),
        "SM_CURRENT_HOST": str(resources.get("current_host", "algo-1")),
        **{f"SM_CHANNEL_{name.upper()}": folder for name, folder in channels.items()},
    }


def _document(path: Path) -> Mapping[str, object]:
    """The JSON mapping in a file; an empty one where there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
