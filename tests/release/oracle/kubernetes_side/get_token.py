"""What `aws eks get-token` does: prints an ExecCredential for the cluster and region that are given."""

from __future__ import annotations

import json
import os
import sys

from tests.release.oracle.kubernetes_side.scenarios import Cluster

name, region = sys.argv[1:]
keys = (os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"], None)
token = Cluster(name, region, "", "", "", {"root": keys}).token("root")
document = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": {"token": token}}
sys.stdout.write(json.dumps(document))
