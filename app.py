"""The CDK app, as the CDK CLI starts it in a clone (see cdk.json)."""

import sys

from muster.infra.app import main

if __name__ == "__main__":
    sys.exit(main())
