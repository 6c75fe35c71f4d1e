"""Callbacks for the loops of frameworks."""
