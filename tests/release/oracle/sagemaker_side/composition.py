"""What Hydra composes of a checkout, put together and resolved as the public recipes' launcher does it."""

import copy
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from tests.support.composed_recipes import RECIPE, ROOT


def composed(files: Mapping[str, str]) -> Any:
    """The values of RECIPE in the checkout that has these files."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            place = Path(folder, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        recipe = Path(folder, ROOT, f"{RECIPE}.yaml")
        search = f"hydra.searchpath=[file://{Path(folder, ROOT, RECIPE.partition('/')[0])}]"
        with initialize_config_dir(version_base=None, config_dir=str(recipe.parent)):
            found = compose(config_name=recipe.name, overrides=[search])
    parts = found.recipes
    OmegaConf.set_struct(parts, False)
    own = {name: value for name, value in OmegaConf.to_container(found).items() if name != "recipes"}
    values = OmegaConf.to_container(OmegaConf.merge(parts, OmegaConf.create(own)))
    # A launcher has the recipe below `recipes`; its references may say so or not.
    whole = {"base_results_dir": "/opt/ml/checkpoints", "recipes": values, **copy.deepcopy(values)}
    resolved = OmegaConf.to_container(OmegaConf.create(whole), resolve=True)
    return {name: resolved[name] for name in values}
