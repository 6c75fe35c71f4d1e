"""Muster's stack in a CDK app of your own.

    from aws_cdk import App
    from muster.cdk import MusterStack, StackSettings

    app = App()
    MusterStack(app, "Training", settings=StackSettings.model_validate({"notify": {"email": "team@example.com"}}))
    app.synth()

Needs `muster-train[deploy]`, and node on the PATH.
"""

from muster.infra.settings.stack_settings import StackSettings
from muster.infra.stack import MusterStack

__all__ = ["MusterStack", "StackSettings"]
