"""`muster recipe`: what a recipe says, what becomes of it, and which ones there are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from muster.client.cli.exit_codes import ExitCode, exit_code
from muster.client.cli.option_groups import AccountOptions, Json, grouped
from muster.client.cli.output import busy, line_width, print_answer, print_lines, print_styled, visible, write_whole
from muster.client.client_errors import RecipeWriteError, os_reason
from muster.contract.errors import MusterError
from muster.options.recipes.client.recipe_options import (
    BaseOptions,
    CatalogOptions,
    FirstSource,
    InputOptions,
    PlaceOptions,
    SecondSource,
    Source,
    Sources,
    ValueOptions,
    assigned,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muster.options.recipes.client.recipe import Recipe
    from muster.options.recipes.client.recipe_places import NamedRecipe
    from muster.options.recipes.client.recipe_tables import Line

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="List, show, resolve, compare and check recipes. Needs no stack, and AWS only for S3 and SageMaker Hub.",
)


def _load(named: NamedRecipe, account: AccountOptions) -> Recipe:
    from muster.options.recipes.client.client_reader import read_sources  # noqa: PLC0415
    from muster.options.recipes.client.recipe import Recipe  # noqa: PLC0415
    from muster.options.recipes.client.recipe_places import with_model  # noqa: PLC0415

    with busy("Reading the recipe"):
        return Recipe(with_model(named, account.session), read_sources(named.request, account.session))


@app.command(name="list")
@grouped
def list_(account: AccountOptions, wanted: CatalogOptions, *, json: Json = False) -> None:
    """List the recipes of a checkout, or of a model in SageMaker Hub."""
    with busy("Reading the recipes"):
        found = wanted.listed(account.session)
    if json:
        print_answer(found)
    else:
        from muster.options.recipes.client.recipe_tables import catalog_lines  # noqa: PLC0415

        _print(catalog_lines(found))


@app.command()
@grouped
def show(base: BaseOptions, account: AccountOptions, source: Source = None, *, json: Json = False) -> None:
    """Show a recipe with its placeholders, and what each of them may be."""
    # The rest of a spec says nothing to the template.
    template = _load(base.wanted(source)._replace(spec=None), account).template()
    if json:
        print_answer(template)
    else:
        from muster.options.recipes.client.recipe_tables import template_lines  # noqa: PLC0415

        _print(template_lines(template, line_width()))


@app.command()
@grouped
def resolve(
    base: BaseOptions,
    values: ValueOptions,
    account: AccountOptions,
    source: Source = None,
    *,
    rank: Annotated[
        int, typer.Option("--rank", min=0, help="Of a spec with a sweep, whose ranks have recipes of their own.")
    ] = 0,
    yaml: Annotated[bool, typer.Option("--yaml", help="Print the YAML that the replicas get.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the YAML that the replicas get to a file.")
    ] = None,
    json: Json = False,
) -> None:
    """Show every value of a recipe with the source that it came from."""
    overrides, inputs = assigned(values.overrides, "--set"), assigned(values.inputs, "--input")
    found = _load(base.wanted(source), account).resolve(overrides, inputs=inputs, rank=rank)
    if out is not None:
        _write(out, found.to_yaml())
    if json:
        from muster.options.recipes.client.recipe_answers import RecipeResolved  # noqa: PLC0415

        print_answer(
            RecipeResolved(
                name=found.name,
                digest=found.digest,
                document=found.document,
                values=tuple(found.explain()),
                sources=tuple(found.sources()),
            )
        )
    elif out is not None:
        typer.echo(f"Written to {out}.")
    elif yaml:
        typer.echo(found.to_yaml(), nl=False)
    else:
        from muster.options.recipes.client.recipe_tables import resolved_lines, summary_lines  # noqa: PLC0415

        _print(resolved_lines(found.explain(), line_width()))
        print_lines([""])
        _print(summary_lines(found.name, found.digest, found.sources()))
        if found.recipes > 1:
            typer.echo(f"This is the recipe of rank {rank}. The others, up to rank {found.recipes - 1}: --rank.")


@app.command()
@grouped
def diff(
    a: FirstSource,
    b: SecondSource,
    base: PlaceOptions,
    inputs: InputOptions,
    account: AccountOptions,
    *,
    json: Json = False,
) -> None:
    """Show how a second recipe differs from a first one, value by value, once both are resolved."""
    given = assigned(inputs.inputs, "--input")
    one, other = (_load(base.named(source), account).resolve(inputs=given) for source in (a, b))
    found = one.differences(other)
    if json:
        from muster.options.recipes.client.recipe_answers import RecipesCompared  # noqa: PLC0415

        print_answer(RecipesCompared(a=one.digest, b=other.digest, differences=tuple(found)))
    else:
        from muster.client.launch.planned_recipe import DIGEST_SHOWN  # noqa: PLC0415
        from muster.options.recipes.client.recipe_tables import difference_lines  # noqa: PLC0415

        names = [f"{name}, digest {recipe.digest[:DIGEST_SHOWN]}" for name, recipe in ((a, one), (b, other))]
        _print(difference_lines(names, found, line_width()))


@app.command()
@grouped
def validate(
    sources: Sources,
    base: PlaceOptions,
    values: ValueOptions,
    account: AccountOptions,
    *,
    json: Json = False,
) -> None:
    """Check that recipes can be resolved. Lists every problem of each, with its path and its source."""
    from muster.client.cli.json_answers import error_detail  # noqa: PLC0415
    from muster.options.recipes.client.recipe_answers import RecipeChecked, RecipesChecked  # noqa: PLC0415

    overrides, inputs = assigned(values.overrides, "--set"), assigned(values.inputs, "--input")
    worst, checked = ExitCode.OK, []
    for source in sources:
        try:
            found = _load(base.named(source), account).resolve(overrides, inputs=inputs)
        except MusterError as error:
            worst = max(worst, exit_code(error))
            checked.append(RecipeChecked(source=source, digest=None, error=error_detail(error)))
        else:
            checked.append(RecipeChecked(source=source, digest=found.digest, values=len(found.explain()), error=None))
    if json:
        print_answer(RecipesChecked(recipes=tuple(checked)))
    else:
        from muster.options.recipes.client.recipe_tables import checked_lines  # noqa: PLC0415

        _print(checked_lines(checked))
    if worst is not ExitCode.OK:
        raise typer.Exit(worst)


def _print(lines: Iterable[Line]) -> None:
    for line in lines:
        print_styled(visible(line.text), line.style)


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise RecipeWriteError(str(path), os_reason(error)) from error
