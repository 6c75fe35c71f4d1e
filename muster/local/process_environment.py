"""Environments in which a process reaches the embedded cloud and nothing else."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from muster.contract.spec.places import ENV_LOCAL_PLACES
from muster.contract.training.clusters import ENV_LOCAL_CLUSTERS
from muster.local.cloud_state import CloudState

# Variables that lead to another endpoint or change the caller.
_MISLEADING = (
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_ACCOUNT_ID",
    "AWS_CREDENTIAL_EXPIRATION",
)
# A service's own endpoint variable overrides AWS_ENDPOINT_URL.
_SERVICE_ENDPOINT_PREFIX = "AWS_ENDPOINT_URL_"
LOOPBACK = ("127.0.0.1", "localhost")
"""How a process names this machine."""


def container_variables(endpoint: str, ca_file: Path) -> dict[str, str]:
    """The variables with which a process finds the cloud's endpoint and trusts it: those of a job's container, too.

    The region is not among them: SageMaker promises none.
    """
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_CA_BUNDLE": str(ca_file),
        "SSL_CERT_FILE": str(ca_file),
        "REQUESTS_CA_BUNDLE": str(ca_file),
        # No file of the user's and no instance metadata.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def endpoint_variables(endpoint: str, region: str, ca_file: Path) -> dict[str, str]:
    """The variables of a process that is no job, for any caller: endpoint, trust store, region."""
    return {
        **container_variables(endpoint, ca_file),
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "NODE_EXTRA_CA_CERTS": str(ca_file),
    }


def client_variables(state: CloudState, base: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a process in the environment `base` reaches the cloud as its root user."""
    # A proxy cannot reach this machine's loopback.
    direct = {name: _with_loopback(base.get(name, "")) for name in ("NO_PROXY", "no_proxy")}
    return {
        **endpoint_variables(state.endpoint, state.region, state.ca_file),
        # These two replace the trust store of other programs in the same shell: keep the public authorities.
        "SSL_CERT_FILE": str(state.bundle_file),
        "REQUESTS_CA_BUNDLE": str(state.bundle_file),
        "AWS_ACCESS_KEY_ID": state.access_key_id,
        "AWS_SECRET_ACCESS_KEY": state.secret_access_key,
        "CDK_DEFAULT_ACCOUNT": state.account_id,
        "CDK_DEFAULT_REGION": state.region,
        **({ENV_LOCAL_CLUSTERS: state.clusters.to_line()} if state.clusters.clusters else {}),
        **({ENV_LOCAL_PLACES: _places(state)} if state.places else {}),
        **direct,
    }


def _places(state: CloudState) -> str:
    """The places as the variable has them."""
    places = state.places.items()
    return json.dumps(
        {name: {**one.model_dump(exclude={"port", "account_id"}), "account": one.account_id} for name, one in places}
    )


def variables_to_unset(environment: Mapping[str, str], state: CloudState) -> list[str]:
    """The variables to unset in `environment`, sorted. Those that always mislead are listed even if not set."""
    kept = client_variables(state, environment)
    overrides = [name for name in environment if name.startswith(_SERVICE_ENDPOINT_PREFIX) and name not in kept]
    return sorted({*_MISLEADING, *overrides})


def client_environment(state: CloudState, base: Mapping[str, str]) -> dict[str, str]:
    """`base` (a process's environment) changed so that a process reaches the cloud and nothing else."""
    removed = set(variables_to_unset(base, state))
    return {
        **{name: value for name, value in base.items() if name not in removed},
        **client_variables(state, base),
    }


def shell_lines(state: CloudState, environment: Mapping[str, str]) -> list[str]:
    """Lines for `eval "$(muster local env)"`."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in client_variables(state, environment).items()]
    return [*(f"unset {name}" for name in variables_to_unset(environment, state)), *exports]


def _with_loopback(hosts: str) -> str:
    named = [host for host in hosts.split(",") if host]
    return ",".join([*named, *(host for host in LOOPBACK if host not in named)])


def bare_environment(home: Path, temporary: Path) -> dict[str, str]:
    """The minimum that a program needs; of the user's environment only the PATH and the language.

    The directory of this interpreter comes first on the PATH, so that `python` is this virtual environment.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {
        "PATH": path,
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HOME": str(home),
        "TMPDIR": str(temporary),
    }
