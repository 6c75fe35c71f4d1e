"""Trainers for Hugging Face and Lightning to start with."""
