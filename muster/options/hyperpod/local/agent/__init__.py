"""`hyperpodrun` of the embedded image: the HTTP protocol of hyperpod-elastic-agent 1.1.3, without PyTorch.

It runs in the containers of pods, so it imports nothing of the service.
"""
