"""The arguments and options of `muster recipe`, and what Tab completes in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from muster.client.client_errors import OptionError, UsageError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from muster.client.aws.light_session import AnySession
    from muster.options.recipes.client.catalog import RecipeCatalog
    from muster.options.recipes.client.recipe_places import NamedRecipe
    from muster.options.recipes.client.recipe_values import RecipeTemplate

_COMMAND_WORDS = 3  # muster recipe resolve


def _sources(context: typer.Context, incomplete: str) -> list[str]:
    """The recipes of the checkout that the command line names; without one the shell completes files."""
    checkout = context.params.get("checkout")
    if not checkout:
        return []
    from muster.contract.errors import MusterError  # noqa: PLC0415
    from muster.options.recipes.client.catalog import checkout_recipes  # noqa: PLC0415

    try:
        return [one.name for one in checkout_recipes(_no_session, checkout).recipes if one.name.startswith(incomplete)]
    except MusterError:
        return []


def _paths(context: typer.Context, incomplete: str) -> list[str]:
    """The paths of the recipe that the command line names."""
    known = _known(context)
    return [] if known is None else [f"{path}=" for path in known.paths if path.startswith(incomplete)]


def _placeholders(context: typer.Context, incomplete: str) -> list[str]:
    known = _known(context)
    return [] if known is None else [f"{name}=" for name in known.placeholders if name.startswith(incomplete)]


def _known(context: typer.Context) -> RecipeTemplate | None:
    """The template that the command line names; None where AWS would have to be asked, or nothing can be read."""
    from muster.contract.errors import MusterError  # noqa: PLC0415
    from muster.options.recipes.client.client_reader import read_sources  # noqa: PLC0415
    from muster.options.recipes.client.recipe_values import template_of  # noqa: PLC0415

    options = context.params
    places = PlaceOptions(checkout=options.get("checkout"), override_spec=options.get("override_spec"))
    source = _typed_source()
    if source is None:
        return None
    try:
        return template_of(read_sources(places.named(source).request, _no_session))
    except MusterError:
        return None


def _typed_source() -> str | None:
    """The recipe on the command line. While an option waits for its value, the arguments are not parsed yet."""
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""  # bash; the other shells
    words = typed.split()[_COMMAND_WORDS:]
    following = zip(["", *words], words, strict=False)
    return next((word for before, word in following if not before.startswith("-") and not word.startswith("-")), None)


def _no_session() -> NoReturn:
    """Tab is no reason to ask AWS, which may take seconds."""
    message = "the recipe is not on this machine"
    raise UsageError(message)


_HELP = "A file, an s3:// URI, a spec whose recipe is meant, or with --checkout a path in it."
Source = Annotated[str | None, typer.Argument(metavar="SOURCE", help=_HELP, autocompletion=_sources)]
Sources = Annotated[list[str], typer.Argument(metavar="SOURCE...", help=_HELP, autocompletion=_sources)]
FirstSource = Annotated[str, typer.Argument(metavar="A", help=_HELP, autocompletion=_sources)]
SecondSource = Annotated[str, typer.Argument(metavar="B", help="Another one.", autocompletion=_sources)]
Checkout = Annotated[str | None, typer.Option("--checkout", metavar="FOLDER", help="A checkout of the public recipes.")]
HubModel = Annotated[
    str | None, typer.Option("--hub-model", metavar="MODEL", help="A model in SageMaker Hub, instead of SOURCE.")
]
Hub = Annotated[
    str | None, typer.Option("--hub", help="With --hub-model: a private hub, asked before SageMakerPublicHub.")
]


@dataclass(frozen=True)
class CatalogOptions:
    """Where recipes are, and which of them are listed: those that meet every condition."""

    checkout: Checkout = None
    hub_model: HubModel = None
    hub: Hub = None
    model: Annotated[
        str | None,
        typer.Option("--model", help="Only recipes with this in their name; only letters and digits count."),
    ] = None
    technique: Annotated[
        str | None, typer.Option("--technique", help="Only recipes of this technique: SFT, DPO, RLVR, Evaluation, ...")
    ] = None
    training_type: Annotated[str | None, typer.Option("--training-type", help="Only LORA, or only FULL recipes.")] = (
        None
    )
    sequence_length: Annotated[
        str | None, typer.Option("--sequence-length", help="Only recipes for so many tokens, such as 8K.")
    ] = None

    def listed(self, session: Callable[[], AnySession]) -> RecipeCatalog:
        """The recipes there that meet every condition.

        Raises:
            UsageError: no place is named, or two are.
            RecipePlaceError, ClientError: as `checkout_recipes` and `hub_recipes`.
        """
        from muster.options.recipes.client.catalog import admits, checkout_recipes, hub_recipes  # noqa: PLC0415

        if self.checkout is not None and self.hub_model is None:
            found = checkout_recipes(session, self.checkout)
        elif self.hub_model is not None and self.checkout is None:
            found = hub_recipes(session, self.hub_model, self.hub)
        else:
            message = (
                "name a checkout of the public recipes with --checkout, or a model in SageMaker Hub with --hub-model"
            )
            raise UsageError(message)
        wanted = self.model, self.technique, self.training_type, self.sequence_length
        return found.model_copy(update={"recipes": tuple(one for one in found.recipes if admits(one, *wanted))})


@dataclass(frozen=True)
class PlaceOptions:
    """How a SOURCE is meant."""

    checkout: Checkout = None
    override_spec: Annotated[
        str | None,
        typer.Option("--override-spec", metavar="FILE", help="The override specification of SOURCE, in JSON."),
    ] = None

    def named(self, source: str) -> NamedRecipe:
        """What this source means.

        Raises:
            RecipeFileError: the file cannot be read.
        """
        from muster.options.recipes.client.recipe_places import NamedRecipe, named_recipe  # noqa: PLC0415

        if self.checkout is None:
            named = named_recipe(source)
        else:
            named = NamedRecipe({"checkout": self.checkout, "base": source})
        if self.override_spec is not None:
            named.request["override_spec"] = self.override_spec
        return named


@dataclass(frozen=True)
class BaseOptions(PlaceOptions):
    """The same, or a model in a hub; and the user's recipe on top of it."""

    hub_model: HubModel = None
    technique: Annotated[
        str | None, typer.Option("--technique", help="With --hub-model: SFT, DPO, RLVR, Evaluation, ...")
    ] = None
    training_type: Annotated[str | None, typer.Option("--training-type", help="With --hub-model: LORA or FULL.")] = None
    sequence_length: Annotated[
        str | None, typer.Option("--sequence-length", help="With --hub-model: in tokens, such as 8K.")
    ] = None
    hub: Hub = None
    hub_recipe: Annotated[
        str | None,
        typer.Option("--hub-recipe", metavar="NAME", help="With --hub-model: a part of the recipe's name."),
    ] = None
    recipe: Annotated[
        str | None, typer.Option("--recipe", metavar="FILE", help="Your recipe, which replaces values of the base.")
    ] = None

    def wanted(self, source: str | None) -> NamedRecipe:
        """What the source, or the model in a hub, means.

        Raises:
            UsageError: nothing is named, or two recipes are.
            RecipeFileError: the file cannot be read.
        """
        from muster.options.recipes.client.recipe_places import NamedRecipe  # noqa: PLC0415

        of_model = {
            "technique": self.technique,
            "training_type": None if self.training_type is None else self.training_type.upper(),
            "sequence_length": self.sequence_length,
            "name": self.hub_recipe,
            "hub": self.hub,
        }
        given = {name: value for name, value in of_model.items() if value is not None}
        if (source is None) == (self.hub_model is None):
            found = "no recipe is named" if source is None else "two recipes are named"
            message = f"{found}: give SOURCE, or --hub-model with --technique"
            raise UsageError(message)
        if source is None:
            named = NamedRecipe({"hub": {"model": self.hub_model, **given}})
        elif given:
            option = next(iter(given)).replace("name", "hub-recipe").replace("_", "-")
            message = f"--{option} needs --hub-model"
            raise UsageError(message)
        else:
            named = self.named(source)
        if self.recipe is not None:
            if not named.request.keys() & {"base", "hub"}:
                # The only recipe of a spec is the one to start from, as soon as another one replaces values of it.
                named.request["base"] = named.request.pop("file", None)
            named.request["file"] = self.recipe
        return named


@dataclass(frozen=True)
class InputOptions:
    """Values of placeholders."""

    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=VALUE",
            help="The value of a placeholder, in YAML. Can be repeated.",
            autocompletion=_placeholders,
        ),
    ] = None


@dataclass(frozen=True)
class ValueOptions(InputOptions):
    """The same, and values that replace those of the recipe."""

    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="An override, by its path or a name that occurs once; the value is YAML. Can be repeated.",
            autocompletion=_paths,
        ),
    ] = None


def assigned(written: Sequence[str] | None, option: str) -> dict[str, JsonValue]:
    """The values of an option that can be repeated, by their names.

    Raises:
        OptionError: one is not of the form NAME=VALUE, or its value is not YAML.
    """
    from muster.options.recipes.contract.recipe_text import load_recipe_text  # noqa: PLC0415

    found: dict[str, JsonValue] = {}
    for text in written or ():
        name, equals, value = text.partition("=")
        if not name.strip() or not equals:
            raise OptionError(text, "write a name, = and a value, such as training_config.lr=0.0001", option)
        try:
            # As it would be read in a recipe.
            found[name.strip()] = load_recipe_text(f"value: {value}")["value"]
        except ValueError:
            raise OptionError(text, "the value is not YAML on one line; write text in quotes", option) from None
    return found
