"""The rules of `watch`, as a replica applies them to itself."""
