"""What functions import and register in a process of their own, as Lambda starts them."""

import subprocess
import sys

from bench.cold_import import ENVIRONMENT as COLD
from tests.support.handlers import ENVIRONMENT
from tests.support.source_patch import ROOT

NOT_WITHOUT_CLUSTERS = {
    *(f"muster.options.hyperpod.contract.{name}" for name in ("rules", "job_schema", "job_state")),
    *(
        f"muster.options.hyperpod.control.{name}"
        for name in ("api", "cluster_apis", "cluster_clients", "cluster_jobs", "heeding")
    ),
}


# Prints what only some runs need of what each function brings: a cluster, or a recipe.
IMPORTS = f"""
import importlib, sys
for name in ("plan", "attempt", "react", "stop", "settle", "sweep", "timer", "start"):
    importlib.import_module("muster.lambdas." + name)
    for found in sorted(sys.modules):
        if found in {NOT_WITHOUT_CLUSTERS!r}:
            print(name, found)
        recipes = found.startswith("muster.options.recipes.contract.")
        if found == "yaml" or recipes and not found.endswith("recipe_reference"):
            print(name, found)
"""


def test_a_function_imports_nothing_for_clusters_and_recipes_before_a_run_has_one() -> None:
    environment = {**ENVIRONMENT, "MUSTER_BUCKET": "bucket", "MUSTER_JOB_PREFIX": "muster", "MUSTER_BUS": "bus"}
    environment |= {"AWS_DEFAULT_REGION": "us-east-1", "POWERTOOLS_SERVICE_NAME": "x", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", IMPORTS]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


SNAPSHOT = """
import os, random, sys, types
hooks = []
runtime = sys.modules["snapshot_restore_py"] = types.ModuleType("snapshot_restore_py")
runtime.register_after_restore = hooks.append
import muster.lambdas.{name}
print(random.seed in hooks, sum(getattr(hook, "__name__", "") == "drop_connections" for hook in hooks))
"""


def test_the_functions_with_snapshots_register_both() -> None:
    for name in ("attempt", "react"):
        environment = {**COLD, "AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start"}
        command = [sys.executable, "-c", SNAPSHOT.format(name=name)]
        outcome = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert outcome.stdout.split() == ["True", "1"], (name, outcome.stderr)
