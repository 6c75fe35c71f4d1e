"""A recipe in a checkout of the public recipes: where its path begins, and what is in there. Pure."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from muster.options.recipes.contract.hydra_defaults import ConfigFolders, composed
from muster.options.recipes.contract.places import PlaceError
from muster.options.recipes.contract.recipe_catalog import CatalogEntry, RecipeCatalog
from muster.options.recipes.contract.recipe_reader import TEXT_BYTES_MAX, Checkout
from muster.options.recipes.contract.recipe_text import load_recipe_text, recipe_yaml
from muster.options.recipes.contract.resolved_recipe import SourceText

ROOTS = ("recipes_collection/recipes/", "hyperpod_recipes/recipes_src/", "recipes/")
"""The folders in which the public recipes' versions keep their recipes."""
_PARTS = "hydra_config"
"""The folder, in a root's folders, of the files that recipes are composed of."""
_SUFFIXES = (".yaml", ".yml")


def checkout_recipe(checkout: Checkout, folder: str, base: str) -> SourceText:
    """The recipe named `base` in a checkout, with everything that its `defaults:` list names.

    Raises:
        PlaceError: there is no such recipe, or it cannot be composed.
    """
    files = checkout.files()
    path = _found(files, folder, base)
    known = frozenset(files)
    text = checkout.read(path, TEXT_BYTES_MAX)

    def read(wanted: str) -> str | None:
        return checkout.read(wanted, TEXT_BYTES_MAX) if wanted in known else None

    root = _root_of(path)
    category = path[len(root) :].partition("/")[0]
    folders = ConfigFolders((posixpath.dirname(path), root + category), read)
    values = composed(path, text, folders, load_recipe_text)
    place = posixpath.join(folder, path)
    return SourceText(place=place, text=text if values is None else recipe_yaml(values))


def _found(files: Sequence[str], folder: str, base: str) -> str:
    parts = base.split("/")
    if base.startswith("/") or ".." in parts or "\\" in base:
        statement = f"{base!r} is not a path below the checkout"
        raise PlaceError(statement, f"write it as it is below {ROOTS[0]}, such as fine-tuning/llama/…")
    name = posixpath.normpath(base)
    known = frozenset(files)
    for root in (*ROOTS, ""):
        for suffix in ("", *_SUFFIXES):
            if (path := f"{root}{name}{suffix}") in known:
                return path
    names = _names(files, folder)
    near = _nearest(name, names)
    remedy = f"did you mean {near}?" if near else "`muster recipe list` shows the recipes of a checkout"
    statement = f"there is no recipe {base!r} in {folder}"
    raise PlaceError(statement, remedy)


def _root_of(path: str) -> str:
    return next((root for root in ROOTS if path.startswith(root)), "")


def _names(files: Sequence[str], folder: str) -> dict[str, str]:
    """The recipes by their names; of several of one name the one that is found.

    Raises:
        PlaceError: there is none.
    """
    found: dict[str, str] = {}
    for root in ROOTS:
        for path in files:
            if path.startswith(root) and f"/{_PARTS}/" not in path:
                found.setdefault(path[len(root) :].removesuffix(".yaml").removesuffix(".yml"), path)
    if not found:
        statement = f"{folder} has no recipes: there is none of {', '.join(ROOTS)}"
        raise PlaceError(statement, "name the folder of a clone of the public recipes")
    return found


def _nearest(name: str, names: Iterable[str]) -> str | None:
    wanted = name.removesuffix(".yaml").removesuffix(".yml")
    last = posixpath.basename(wanted)
    exact = [one for one in names if posixpath.basename(one) == last]
    near = exact or difflib.get_close_matches(wanted, list(names), n=1, cutoff=0.6)
    if not near:
        by_last = {posixpath.basename(one): one for one in names}
        near = [by_last[one] for one in difflib.get_close_matches(last, list(by_last), n=1, cutoff=0.6)]
    return near[0] if near else None


# What the paths of public recipes say. In `…_seq4k_gpu_sft_lora` as in `verl-dpo-…-5k-tt-fft` the parts are words.
_TECHNIQUES = {
    **{word: word.upper() for word in ("sft", "dpo", "rlvr", "rlaif", "ppo", "cpt", "rft", "grpo")},
    "pretrain": "CPT",
    "eval": "Evaluation",
    "tuning": "SFT",
}
_TYPES: dict[str, Literal["LORA", "FULL"]] = {"lora": "LORA", "peft": "LORA", "fft": "FULL", "full": "FULL"}
_LENGTH = re.compile(r"(?:seq)?([0-9]{1,4}k)")
_KEY = re.compile(r"^(display_name|instance_types)\s*:\s*(.*)$")


def checkout_catalog(checkout: Checkout, folder: str) -> RecipeCatalog:
    """The recipes of a checkout, by name. What they are is read from their paths and their own first keys.

    Raises:
        PlaceError: there is no such folder, or it has no recipes.
    """
    names = _names(checkout.files(), folder)
    entries: list[CatalogEntry] = []
    remarks: list[str] = []
    for name, path in sorted(names.items()):
        try:
            text = checkout.read(path, TEXT_BYTES_MAX)
        except PlaceError as error:
            remarks.append(f"{path} is left out: {error.statement}")
            continue
        entries.append(_entry(name, text))
    return RecipeCatalog(place=folder, recipes=tuple(entries), remarks=tuple(remarks))


def _entry(name: str, text: str) -> CatalogEntry:
    category, _, below = name.partition("/")
    family = below.partition("/")[0] if "/" in below else None
    words = re.split(r"[-_]", posixpath.basename(name).lower())
    said = dict(_said(text))
    lengths = [found[1] for word in words if (found := _LENGTH.fullmatch(word))]
    technique = next((_TECHNIQUES[word] for word in reversed(words) if word in _TECHNIQUES), None)
    return CatalogEntry(
        name=name,
        title=" ".join(said.get("display_name", [])) or None,
        family=None if family is None else re.sub(r"-[0-9_]+$", "", family),
        technique="Evaluation" if category == "evaluation" else technique,
        training_type=next((_TYPES[word] for word in words if word in _TYPES), None),
        sequence_length=lengths[-1].upper() if lengths else None,
        instance_types=tuple(said.get("instance_types", [])),
    )


def _said(text: str) -> Iterable[tuple[str, list[str]]]:
    """The recipe's title and its instance types, which are at its top level. Reading all recipes as YAML takes long."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found = _KEY.match(line)
        if found is None:
            continue
        key, value = found[1], found[2].partition(" #")[0].strip()
        if key == "display_name":
            yield key, [value.strip("'\"")]
        elif value.startswith("["):
            yield key, re.findall(r"ml\.[a-z0-9\-]+\.[a-z0-9]+", value)
        else:
            types: list[str] = []
            for after in lines[number + 1 :]:
                item = re.match(r"\s*-\s+['\"]?(ml\.[a-z0-9\-]+\.[a-z0-9]+)", after)
                if item is None:
                    break
                types.append(item[1])
            yield key, types
