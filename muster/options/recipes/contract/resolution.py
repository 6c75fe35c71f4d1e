"""The resolution of a recipe: placeholders, the merge of all sources, interpolations, and the check of every value.

Pure and bounded: it reads nothing but its sources, and what it raises is a RecipeError with all problems at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pydantic import JsonValue

from muster.contract.spec.recipe_reference import Origin
from muster.contract.training.data_and_output import CHECKPOINT_DIR
from muster.options.recipes.contract.document_values import everything_in, leaves, value_at
from muster.options.recipes.contract.expressions.interpolation import MISSING, interpolated, literal
from muster.options.recipes.contract.expressions.placeholders import Filled, Filling, placeholder_names
from muster.options.recipes.contract.merging import Merged, merge
from muster.options.recipes.contract.override_spec import MACHINES, SpecifiedValue, parse_override_spec
from muster.options.recipes.contract.recipe_problems import Problems, field, path_name
from muster.options.recipes.contract.recipe_text import (
    DEPTH_MAX,
    LITERAL,
    NAME_MAX,
    NODES_MAX,
    TEXT_MAX,
    load_recipe_text,
    recipe_yaml,
)
from muster.options.recipes.contract.resolved_recipe import (
    Path,
    ReadDocument,
    RecipeSources,
    ResolvedRecipe,
    SourceText,
)

_SURROGATE = re.compile("[\ud800-\udfff]")
_NUMBER_END = 10**400  # Python writes and reads whole numbers of at most 4,300 digits
# Bytes of YAML: of a value with its indentation, colon, quotes and line, and of a character, which may be an escape.
_NODE_MOST, _CHARACTER_MOST = 2 * DEPTH_MAX + 32, 12
_RESULTS = "base_results_dir"
"""A setting of the public recipes' launcher, to which most of them refer: the folder of results and checkpoints.

Unless it is an input, it is the folder that SageMaker restores when a job is started again, so that a rerun finds what
an attempt has saved.
"""

INFRASTRUCTURE_KEYS = (
    "name",
    "data_s3_path",
    "output_s3_path",
    "mlflow_tracking_uri",
    "mlflow_experiment_name",
    "mlflow_run_name",
)
"""Placeholders of the hub's templates that their override specifications leave out: texts, empty by default."""

# What the hub's recipes decide, and where a user says it instead.
_FIXED = {
    "model_type": "choose another recipe for another type of model",
    "model_name_or_path": "name the model under `model:` of the spec",
    "dataset_catalog": "name the data under `channels:` of the spec",
}


@dataclass(frozen=True)
class ReadRecipe:
    """A recipe whose texts are read, and what they leave open.

    Args:
        recipe: the user's, where it is not the base itself.
        parameters: what the override specification says about each, by name.
        placeholders: the names of those in both documents, in order.
        given: what the rest of the spec says of the placeholders. An input of the user's comes before it.
        of_spec: values that the rest of the spec decides, by paths of the resolved recipe. They replace any other, and
            what refers to one gets it, too.
    """

    sources: RecipeSources
    base: ReadDocument
    recipe: ReadDocument | None
    parameters: Mapping[str, SpecifiedValue]
    placeholders: tuple[str, ...]
    given: Mapping[str, JsonValue]
    of_spec: Mapping[tuple[str, ...], JsonValue]

    def with_value(self, path: tuple[str, ...], value: JsonValue) -> ReadRecipe:
        """The same, with one more value that the rest of the spec decides."""
        return replace(self, of_spec={**self.of_spec, path: value})

    def resolve(self) -> ResolvedRecipe:
        """See `resolve`."""
        return _ResolvingRecipe(self).result()


def read_recipe(sources: RecipeSources) -> ReadRecipe:
    """The texts of these sources, read.

    Raises:
        RecipeError: with every problem at once, such as the line of a text where it is not YAML.
    """
    problems, spec = Problems(), sources.override_spec
    of_hub = sources.hub_model is not None
    parameters = {} if spec is None else parse_override_spec(spec.text, sources.name, problems, is_own=not of_hub)
    for name in INFRASTRUCTURE_KEYS if of_hub else ():
        parameters.setdefault(name, SpecifiedValue(name=name, type="string", default=""))
    texts = ((sources.base, Origin.BASE), (sources.recipe, Origin.FILE))
    read = [_read(text, origin, problems) for text, origin in texts if text is not None]
    if not read:
        problems.state("recipe", "there is none", "name a file, a base or a model of the hub")
    problems.raise_found()
    names = [name for one in read if not one.is_literal for name in placeholder_names(one.values)]
    base, recipe = read[0], read[1] if len(read) > 1 else None
    return ReadRecipe(sources, base, recipe, parameters, tuple(dict.fromkeys(names)), {}, {})


def _read(source: SourceText, origin: Origin, problems: Problems) -> ReadDocument:
    name, values = f"recipe ({origin.value}: {source.place})", dict[str, JsonValue]()
    try:
        values = load_recipe_text(source.text)
    except ValueError as error:
        problems.state(name, str(error), "correct the YAML")
    if _is_composed(values):
        remedy = "give it as `base`, with the folder of the public recipes as `checkout`"
        problems.state(name, "its `defaults` are other files, which are not here", remedy)
    return ReadDocument(source, origin, values)


def resolve(sources: RecipeSources) -> ResolvedRecipe:
    """The recipe of these sources, without placeholders and interpolations.

    Raises:
        RecipeError: with every problem at once, each with the path and the source of the value.
    """
    return read_recipe(sources).resolve()


class _ResolvingRecipe:
    """One resolution."""

    def __init__(self, read: ReadRecipe) -> None:
        self._read, self._sources, self._parameters = read, read.sources, read.parameters
        self._inputs = {**read.given, **read.sources.inputs}
        self._problems = Problems()

    def result(self) -> ResolvedRecipe:
        base, recipe = self._read.base, self._read.recipe
        sources = self._sources
        given = {"overrides": sources.overrides, "values": sources.values, "inputs": self._inputs}
        for name, values in given.items():
            _check_bounds(f"recipe.{name}", values, self._problems)
        # What cannot be read hides the rest: its values would all be unknown.
        self._problems.raise_found()
        filled = Filled(base, self._filling, self._problems)
        merged = self._merged(filled, base.origin)
        unfilled = filled.unfilled
        if recipe is not None:
            filled = Filled(recipe, self._filling, self._problems)
            merge(merged, filled.document, Origin.FILE, self._problems)
            unfilled = [*unfilled, *filled.unfilled]
        merge(merged, sources.overrides, Origin.OVERRIDE, self._problems)
        merge(merged, sources.values, Origin.VALUE, self._problems)
        of_spec = {".".join(path): literal(value) for path, value in self._read.of_spec.items()}
        merge(merged, of_spec, Origin.SPEC, self._problems)
        self._report_unfilled(unfilled, merged)
        found = interpolated(merged.document, {_RESULTS: CHECKPOINT_DIR, **self._inputs})
        document = found.document
        if not self._read.of_spec:
            # Else they were checked without it; it may have replaced what refers to one.
            self._check_inputs(sources.inputs, found.used)
        for fault in found.faults:
            self._problems.state(field(fault.path, merged.origin_at(fault.path)), fault.found, fault.remedy)
        faulty = {fault.path for fault in found.faults}
        origins = self._checked(document, merged, faulty)
        known = {path for path, _ in everything_in(document)}
        is_long = len(known) * _NODE_MOST + len(repr(document)) * _CHARACTER_MOST > TEXT_MAX
        if is_long and not self._problems.found and len(recipe_yaml(document).encode()) > TEXT_MAX - len(LITERAL):
            # It could not be read again.
            self._problems.state("recipe", f"more than {TEXT_MAX:,} bytes when it is resolved", "keep data in S3")
        self._validate(document, merged, faulty)
        self._problems.raise_found()
        named = {name: tuple(paths) for name, paths in merged.named.items() if paths[0] in known}
        return ResolvedRecipe(document, origins, named)

    # Placeholders.

    def _filling(self, name: str) -> Filling | None:
        """The value of a placeholder: directly set, overridden by its name, an input, or the default."""
        sources = self._sources
        fixed = sources.hub_model is not None and name in _FIXED
        for values, origin in ((sources.values, Origin.VALUE), (sources.overrides, Origin.OVERRIDE)):
            if not fixed and name in values and not isinstance(values[name], dict):
                return Filling(values[name], origin)
        if name in self._inputs:
            return Filling(self._inputs[name], Origin.INPUT if name in sources.inputs else Origin.SPEC)
        if name in self._parameters:
            return Filling(self._parameters[name].default, Origin.DEFAULT)
        return None

    def _report_unfilled(self, unfilled: list[tuple[Path, str, Origin]], merged: Merged) -> None:
        """Placeholders without a value, each once, unless a stronger source has set what they are in."""
        known = [*self._parameters, *self._inputs]
        reported: set[str] = set()
        for path, name, origin in unfilled:
            if name in reported or merged.origin_at(path) is not origin:
                continue
            reported.add(name)
            near = self._problems.nearest(name, known)
            remedy = f"did you mean {{{{{near}}}}}?" if near else f"set {name} under `inputs`"
            plain = rf"for plain text, write \{{{{{name}}}}}"
            self._problems.state(field(path, origin), f"{{{{{name}}}}} has no value", f"{remedy}; {plain}")

    def _merged(self, filled: Filled, origin: Origin) -> Merged:
        decided = _FIXED if self._sources.hub_model is not None else {}
        first: dict[object, list[Path]] = {}  # where a key is for the first time
        for path, _ in everything_in(filled.document) if self._parameters or decided else ():
            first.setdefault(path[-1] if path else None, [path])
        named = {name: first[name] for name in self._parameters if name in first} | filled.whole
        embedded = frozenset(filled.names - set(named))
        fixed = {path: remedy for name, remedy in decided.items() for path in named.get(name, first.get(name, []))}
        return Merged(filled.document, origin, filled.origins, named, embedded, fixed)

    def _check_inputs(self, inputs: dict[str, JsonValue], used: frozenset[str]) -> None:
        """An input that nothing refers to is refused: it would change nothing."""
        names = used.union(self._read.placeholders)
        for name in sorted(inputs):
            if name not in names:
                near = self._problems.nearest(name, names)
                remedy = f"did you mean {near}?" if near else "set it under `overrides`"
                self._problems.state(
                    f"recipe.inputs.{path_name([name])}", f"there is no placeholder {{{{{name}}}}}", remedy
                )

    # The check of the result.

    def _checked(self, document: dict[str, JsonValue], merged: Merged, faulty: set[Path]) -> dict[Path, Origin]:
        """The source of every leaf. What JSON or YAML cannot hold is a problem, and added to `faulty`."""
        origins: dict[Path, Origin] = {}
        problems = self._problems
        for path, value in leaves(document):
            origin = origins[path] = merged.origin_at(path)
            for item in _scalars(value):
                if isinstance(item, float) and not math.isfinite(item):
                    faulty.add(path)
                    problems.wrong(path, origin, item, "JSON cannot represent this number; write a finite one")
                elif isinstance(item, str) and _SURROGATE.search(item):
                    problems.state(field(path, origin), "it contains a lone surrogate", "use valid Unicode")
        return origins

    def _validate(self, document: dict[str, JsonValue], merged: Merged, faulty: set[Path]) -> None:
        checked = [one for name, one in self._parameters.items() if name not in MACHINES]
        for parameter, path in ((one, path) for one in checked for path in merged.named.get(one.name, ())):
            value = value_at(document, *path)
            # What the spec decides was checked there.
            if path in faulty or path in self._read.of_spec:
                continue
            if value is None or value == MISSING:
                if parameter.required:
                    remedy = f"it is required: set {parameter.name} under `values`, or under `inputs`"
                    self._problems.state(field(path, None), "missing", remedy)
            elif (mistake := parameter.mistake(value)) is not None:
                allowed, remedy = mistake
                self._problems.wrong(path, merged.origin_at(path), value, remedy, allowed)
        self._relate(document, merged)

    def _relate(self, document: dict[str, JsonValue], merged: Merged) -> None:
        """Rules between several parameters."""

        def number(name: str) -> float | None:
            paths = merged.named.get(name)
            value = value_at(document, *paths[0]) if paths else None
            return value if isinstance(value, int | float) and not isinstance(value, bool) else None

        given = self._sources.sequence_length
        length = ("the recipe's sequence length", number("sequence_length") if given is None else given)
        for names, (limit, most) in (
            (("save_steps",), ("max_steps", number("max_steps"))),
            (("max_prompt_length", "max_response_length"), length),
            (("dataset_max_len",), length),
        ):
            numbers = [one for name in names if (one := number(name)) is not None]
            if most is not None and len(numbers) == len(names) and sum(numbers) > most:
                path = merged.named[names[0]][0]
                words = f"{' + '.join(names)} is" if len(names) > 1 else "found"
                allowed = f"allowed: at most {limit}, {most:,}"
                self._problems.state(field(path, merged.origin_at(path)), f"{words} {sum(numbers):,}", allowed)


def _is_composed(document: dict[str, JsonValue]) -> bool:
    """Whether a recipe is only a part of itself: Hydra composes it with the files in its list of defaults."""
    defaults = document.get("defaults")
    return isinstance(defaults, list) and any(
        isinstance(one, str) and one.startswith(("/", "_self_")) for one in defaults
    )


def _scalars(value: JsonValue) -> Iterator[JsonValue]:
    """The value itself, or every scalar and key in it."""
    for _, one in everything_in(value):
        yield from one if isinstance(one, dict) else () if isinstance(one, list) else (one,)


def _check_bounds(name: str, document: JsonValue, problems: Problems) -> None:
    """State what makes a document too large or deep to be resolved. Not recursive: its depth is the user's."""
    for nodes, (path, value) in enumerate(everything_in(document)):
        if len(path) > DEPTH_MAX:
            found = f"more than {DEPTH_MAX} levels of nesting", "flatten it"
        elif nodes >= NODES_MAX:
            found = f"more than {NODES_MAX:,} values", "keep data in S3"
        elif path and isinstance(key := path[-1], str) and (len(key) > NAME_MAX or _SURROGATE.search(key)):
            found = f"a name of {len(key):,} characters", f"allowed: {NAME_MAX} characters of Unicode"
        elif isinstance(value, int) and abs(value) >= _NUMBER_END:
            found = "a whole number of more than 400 digits", "write it in quotes"
        else:
            continue
        problems.state(name, *found)
        return
