"""Measures what Muster costs. `python -m bench` runs everything, `python -m bench manifest` one benchmark.

A benchmark is a module of this package with a function `run() -> list[Row]`.
"""
