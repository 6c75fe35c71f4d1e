"""The context keys of the CDK app."""
