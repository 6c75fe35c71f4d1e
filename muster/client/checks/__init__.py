"""What can be known about a spec before anything starts: its source, its image, its channels. Nothing is run."""
