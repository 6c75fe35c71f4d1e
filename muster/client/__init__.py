"""The client: the SDK's classes, which are imported from `muster`, and the command `muster`."""
