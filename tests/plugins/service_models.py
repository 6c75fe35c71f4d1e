"""AWS's service models, read once a worker: every session of botocore would parse them again and hold 30 MB."""

from functools import cache

import botocore.session

from muster.client.aws.light_session import ServiceModels

botocore.session.create_loader = cache(ServiceModels)
