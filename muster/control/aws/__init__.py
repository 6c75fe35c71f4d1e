"""Adapters to AWS: one class per service, every call safe to repeat."""
