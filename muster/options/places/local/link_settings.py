"""The links between places as a client of a running cloud sees them: their settings, and the bytes that went over."""

from __future__ import annotations

from fnmatch import fnmatchcase

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from muster.local.local_cloud import LocalCloud


class LinkSettings(BaseModel):
    """The link from a place to another one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = "*"
    """Name of a place, or a glob; so is `target`."""
    target: str = "*"
    latency_seconds: float = Field(default=0, ge=0)
    """How much longer a call over the link and its answer take: a round trip."""
    bytes_per_second: float | None = Field(default=None, gt=0)
    """What all bodies of requests and answers on the link share."""

    def leads(self, source: str, target: str) -> bool:
        """Whether it is the link from a place to another."""
        return fnmatchcase(source, self.source) and fnmatchcase(target, self.target)


class LinkBytes(BaseModel):
    """Bytes of S3 that went from a place to another: the bodies of requests and answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    target: str
    bytes: int


LINK_BYTES: TypeAdapter[list[LinkBytes]] = TypeAdapter(list[LinkBytes])
LINKS: TypeAdapter[tuple[LinkSettings, ...]] = TypeAdapter(tuple[LinkSettings, ...])


class LinkClient:
    """The links of a running embedded cloud."""

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
