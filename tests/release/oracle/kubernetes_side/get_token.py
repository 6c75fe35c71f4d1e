"""What `aws eks get-token` does: prints an ExecCredential for the cluster and region that are given."""

import json
import os
import sys

from tests.release.oracle.kubernetes_side.scenarios import Cluster

name, region = sys.argv[1:]
key = (os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
token = Cluster(name, region, "", "", "", key).token()
document = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": {"token": token}}
sys.stdout.write(json.dumps(document))
