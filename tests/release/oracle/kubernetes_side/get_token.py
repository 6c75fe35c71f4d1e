"""Prints the credential that `aws eks get-token` makes, for the caller's key in the environment: CLUSTER REGION."""

import json
import os
import sys

from tests.support.hyperpod.root_api import token

status = {"token": token(*sys.argv[1:], os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])}
document = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": status}
json.dump(document, sys.stdout)
