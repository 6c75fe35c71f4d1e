"""What an embedded cloud writes down about itself."""

from __future__ import annotations

from pathlib import Path

from muster.local.state import CloudState

STATE = CloudState(
    endpoint="https://127.0.0.1:4570",
    port=4570,
    pid=1,
    region="eu-central-1",
    account_id="123456789012",
    access_key_id="AKIALOCAL",
    secret_access_key="se'cret $HOME",
    admin_token="token",
    ca_file=Path("/state/ca.pem"),
    bundle_file=Path("/state/bundle.pem"),
)
