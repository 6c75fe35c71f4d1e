"""What the runtimes of runs over several places share: the outposts of a stack."""
