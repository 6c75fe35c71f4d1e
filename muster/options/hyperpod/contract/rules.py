"""The rules of specs with replicas on HyperPod clusters."""

from __future__ import annotations

from muster.contract.spec.backend_rules import BackendRules
from muster.options.hyperpod.contract.cluster_places import place_problems, placed
from muster.options.hyperpod.contract.cluster_rules import cluster_problems, launch_name_problems

OFFER = BackendRules(cluster_problems, launch_name_problems, place_problems, placed)
