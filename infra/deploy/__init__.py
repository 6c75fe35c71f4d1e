"""The deployment: code archives, the CDK CLI, `muster deploy` and `muster destroy`."""
