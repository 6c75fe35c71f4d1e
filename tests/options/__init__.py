"""Shows that each option can be removed: the core without any passes its tests and the demo."""
