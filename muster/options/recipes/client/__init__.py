"""Recipes for their users: each value with its source, differences, what a checkout or a hub offers."""
