"""The data of a page, from its HTML file."""

import base64
import gzip
import json
import re
from typing import Any


def data_in(page: str) -> dict[str, Any]:
    """The data of a page, an HTML file."""
    [block] = re.findall(r'id="data">(.*?)</script>', page)
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(block)))
    return data
