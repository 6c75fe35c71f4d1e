"""What every function shares: settings, logger, clock, time budget, threads."""
