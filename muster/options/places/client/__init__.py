"""What a plan says of places, and the logs of jobs there."""
