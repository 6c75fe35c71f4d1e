"""The values of a sweep."""
