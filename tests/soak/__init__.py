"""A night in ten minutes: many runs on the embedded cloud under random faults, each of whose verdicts must be true.

`python -m tests.soak` is the way in, also as `make soak`. `night_plan` decides by a seed what befalls each run,
`night` does it, and `judgement` compares what Muster says of a run with what SageMaker has seen.
"""
