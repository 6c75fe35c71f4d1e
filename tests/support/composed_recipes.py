"""Generated checkouts whose recipes are composed of parts, in the shapes of the public recipes."""

import random
from collections.abc import Mapping
from typing import Any

import yaml

ROOT = "hyperpod_recipes/recipes_src/"
RECIPE = "fine-tuning/llama/verl-sft"
PARTS = f"{ROOT}fine-tuning/hydra_config/verl/"
_FORMS = (
    *(
        "${.size}",
        "${..size}",
        "${trainer.devices}",
        "${recipes.run.name}",
        "${limits.high}",
        "${.size}-${trainer.devices}",
    ),
    *("${oc.select:recipes.trainer.devices,3}", "${oc.select:recipes.absent.value,null}", "${oc.select:.absent,'a b'}"),
    *("${multiply:${.size},2}", "${divide_ceil:${recipes.limits.high},${.size}}", "${base_results_dir}/${run.name}"),
)
_MAPPINGS = (
    "${limits}",
    "${recipes.limits}",
    "${oc.select:recipes.limits,{}}",
    "${oc.select:recipes.absent,{}}",
    "${oc.select:recipes.training_config.engine.nested,{}}",
)
_SHARED = {"limits": {"low": 1, "high": 64}, "trainer": {"devices": 8}}


def checkout(seed: int) -> dict[str, str]:
    """The files of a checkout by their paths; RECIPE is composed of most of them."""
    return _Checkout(random.Random(seed)).files()  # noqa: S311


class _Checkout:
    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def files(self) -> dict[str, str]:
        chance, pick = self._draw.random, self._draw.choice
        groups: list[object] = [
            {f"actor@{pick(('actor', 'rollout.actor', '_global_.recipes.training_config.actor'))}": "dp"},
            {f"critic{pick(('', '@critic', '@_here_'))}": "plain"},
            {"data@_here_": ["one", "two"]},
            {"optional absent@x": "none"},
            "limits",
        ]
        self._draw.shuffle(groups)
        top = self._with_self(groups)
        return {
            f"{ROOT}{RECIPE}.yaml": _text(["/hydra_config/verl/top", *pick(([], ["_self_"]))], self._recipe()),
            f"{PARTS}top.yaml": _text(top, {"engine": self._section(), "size": 3}, "recipes.training_config"),
            f"{PARTS}limits.yaml": _text(None, _SHARED, "recipes"),
            f"{PARTS}actor/dp.yaml": _text(self._with_self(["../optim@optim: x", "base"]), self._section()),
            f"{PARTS}actor/base.yaml": _text(None, {**self._section(), "extra": pick(({"a": 1}, *_MAPPINGS))}),
            f"{PARTS}critic/plain.yaml": _text(None, self._section(), pick((None, "recipes.training_config.critic"))),
            f"{PARTS}data/one.yaml": _text(None, {"data": self._section()}),
            f"{PARTS}data/two.yaml": _text(None, {"data": self._section()} if chance() < 0.8 else {}),
            f"{PARTS}optim/x.yaml": _text(None, self._section()),
        }

    def _recipe(self) -> dict[str, Any]:
        pick = self._draw.choice
        over = {name: pick(({"a": 2}, {"high": 5, "new": {"b": [1]}}, "${limits}")) for name in ("extra", "mapping")}
        sections = self._draw.sample(("actor", "critic", "engine", "data"), 3)
        return {
            "run": {"name": "llama", "results_dir": "${base_results_dir}/${.name}"},
            "training_config": {name: over if self._draw.random() < 0.6 else self._section() for name in sections},
        }

    def _section(self) -> dict[str, Any]:
        pick = self._draw.choice
        section = {
            "size": self._draw.randint(1, 9),
            "kind": pick(("dp", "???", None, True)),
            "mapping": pick(({"a": 1, "high": 2}, {"b": {"c": "${limits.high}"}}, *_MAPPINGS)),
            "nested": {"size": 2, "own": pick(_FORMS)},
            "list": pick(([], [1, "${limits.low}"], [{"size": 1}])),
            "own": pick(_FORMS),
        }
        return {name: section[name] for name in section if name == "size" or self._draw.random() < 0.6}

    def _with_self(self, entries: list[Any]) -> list[Any]:
        place = self._draw.randint(0, len(entries) + 1)
        listed = [dict([one.split(": ")]) if isinstance(one, str) and ": " in one else one for one in entries]
        return listed if place > len(entries) else [*listed[:place], "_self_", *listed[place:]]


def _text(defaults: list[Any] | None, content: Mapping[str, Any], package: str | None = None) -> str:
    header = f"# @package {package}\n" if package else ""
    values = {**({} if defaults is None else {"defaults": defaults}), **content}
    return header + (yaml.safe_dump(values, sort_keys=False) if values else "")
