"""The deployment: code archives, the CDK CLI, `python -m infra.deploy`."""
