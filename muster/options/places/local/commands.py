"""`muster local links`: the bytes of S3 that went between places."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import Field

from muster.contract.document import Document
from muster.local.commands.command_answers import JsonOption, ShellStateOption, print_either
from muster.local.commands.shell_cloud import cloud_of_shell
from muster.options.places.local.link_settings import LinkBytes, LinkClient

OFFER = typer.Typer(no_args_is_help=True, add_completion=False)


class LinkList(Document):
    """The links that were used."""

    links: tuple[LinkBytes, ...] = Field(description="the bytes of S3 that went from a place to another")


@OFFER.command()
def links(
    *,
    reset: Annotated[bool, typer.Option(help="Count from zero again afterwards.")] = False,
    as_json: JsonOption = False,
    state: ShellStateOption = None,
) -> None:
    """Print the bytes of S3 that went from each place to another."""
    client = LinkClient(cloud_of_shell(state))
    found = client.bytes()
    if reset:
        client.reset()
    lines = [f"{link.source} -> {link.target}  {link.bytes:,} bytes" for link in found] or ["No bytes."]
    print_either(LinkList(links=tuple(found)), lines, as_json=as_json)
