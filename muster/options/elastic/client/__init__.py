"""The client's part of elastic runs: how they are scaled."""
