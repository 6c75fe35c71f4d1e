"""The stack's variants under cdk-nag, for the checks of the template in `make check`."""
