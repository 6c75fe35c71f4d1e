"""Recipes: the files of a training that others have written, resolved to a spec."""
