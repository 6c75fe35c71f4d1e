"""Rounds of real processes over one local S3 server: what `bench/rendezvous.py` measures with."""
