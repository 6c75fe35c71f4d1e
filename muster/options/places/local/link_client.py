"""The typed client of the links of a running embedded cloud."""

from __future__ import annotations

from muster.local.local_cloud import LocalCloud
from muster.options.places.local.link_settings import LINK_BYTES, LINKS, LinkBytes, LinkSettings


class LinkClient:
    """The links between the places of a cloud, and the bytes of S3 that went over them."""

    def __init__(self, cloud: LocalCloud) -> None:
        self._admin = cloud.admin

    def bytes(self) -> list[LinkBytes]:
        """The bytes of each direction that was used since the last reset, sorted by places."""
        return LINK_BYTES.validate_json(self._admin.ask("GET", "links"))

    def reset(self) -> None:
        """Count from zero again."""
        self._admin.ask("DELETE", "links")

    def set(self, *links: LinkSettings) -> None:
        """Replace the settings of all links; the first that matches holds."""
        self._admin.ask("PUT", "links", LINKS.dump_json(links))
