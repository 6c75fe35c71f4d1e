"""The parts that every function uses: settings, logger, clock, time budget, threads."""
