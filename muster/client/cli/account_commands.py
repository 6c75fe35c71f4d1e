"""The commands that tell of an account: its instances with GPUs, what they cost, and which rights users need."""

from __future__ import annotations

import json as encoder
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from muster.client.cli.json_answers import GpuType, GpuTypes, UserPolicy
from muster.client.cli.option_groups import AccountOptions, Json, StackOptions, grouped
from muster.client.cli.output import busy, print_either
from muster.contract.aws.instance_types import GPU_TYPES
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.text import columns

if TYPE_CHECKING:
    from muster.client.aws.light_session import LightSession
    from muster.contract.aws.prices import PriceTable

_USAGE = "training job usage"
_SPOT = "spot training job usage"
_HEADINGS = ("instance type", "GPUs", "memory", "$/hour", "quota", "spot quota")


@grouped
def gpus(
    account: AccountOptions,
    *,
    deployed: Annotated[
        bool, typer.Option("--account", help="Ask the account: today's prices of the region, and its quotas.")
    ] = False,
    json: Json = False,
) -> None:
    """List the instance types with GPUs: memory, price per hour, and with --account quotas."""
    prices, quotas = SHIPPED_PRICES, dict[str, float]()
    if deployed:
        with busy("Asking for prices and quotas"):
            prices, quotas = _of_account(account.session())
    rows = tuple(
        GpuType(
            instance_type=name,
            gpu=gpu.name,
            count=gpu.count,
            memory_gib=gpu.memory_gib,
            usd_per_hour=prices.usd_per_hour.get(name),
            quota=quotas.get(f"{name} for {_USAGE}"),
            spot_quota=quotas.get(f"{name} for {_SPOT}"),
        )
        for name, gpu in GPU_TYPES.items()
    )
    found = GpuTypes(types=rows, prices=prices.origin())
    print_either(found, _lines(found), as_json=json)


def _of_account(session: LightSession) -> tuple[PriceTable, dict[str, float]]:
    """Today's prices of the session's region, and every quota of SageMaker by its name."""
    from muster.client.aws.price_list import listed_prices  # noqa: PLC0415
    from muster.client.aws.service_quotas import granted_quotas  # noqa: PLC0415
    from muster.client.client_errors import ClientError, RegionError  # noqa: PLC0415

    if not session.region_name:
        raise RegionError
    quotas = granted_quotas(session)
    try:
        prices = listed_prices(session, session.region_name, GPU_TYPES)
    except ClientError as error:
        typer.echo(f"Note: {str(error).rstrip('.')}; the shipped prices are shown.", err=True)
        prices = SHIPPED_PRICES
    return prices, quotas


def _lines(found: GpuTypes) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for one in found.types:
        numbers = (one.usd_per_hour, one.quota, one.spot_quota)
        price, *quotas = ("–" if number is None else f"{number:.2f}" for number in numbers)
        whole = [text.removesuffix(".00") for text in quotas]
        rows.append((one.instance_type, f"{one.count} {one.gpu}", f"{one.memory_gib} GiB", price, *whole))
    if all(row[4:] == ("–", "–") for row in rows[1:]):
        rows = [row[:4] for row in rows]
    yield from columns(rows)
    yield f"Memory is that of one GPU. {found.prices[0].upper()}{found.prices[1:]}."


@grouped
def policy(
    stack: StackOptions,
    *,
    deployer: Annotated[
        bool, typer.Option("--deployer", help="Of who calls `muster deploy`; needs no stack, only credentials.")
    ] = False,
    json: Json = False,
) -> None:
    """Print the IAM policy that a user of the stack needs to start, watch and end runs. Creates nothing."""
    from muster.client.aws.connection import caller_place  # noqa: PLC0415
    from muster.client.aws.user_policy import deployer_policy, user_policy  # noqa: PLC0415

    if deployer:
        with busy("Asking whose credentials these are"):
            found = deployer_policy(caller_place(stack.account().session()))
    else:
        with busy("Reading the stack"):
            found = user_policy(stack.muster()._cloud.stack)
    print_either(UserPolicy(policy=found), encoder.dumps(found, indent=2).splitlines(), as_json=json)
