"""torchft's front ends over a run's rendezvous."""
