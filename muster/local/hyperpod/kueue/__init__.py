"""Kueue: jobs of a queue wait until their team's quota has room for all of their pods."""
