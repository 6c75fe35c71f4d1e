"""The process of the service: its HTTP interfaces, its faults and its certificates."""
