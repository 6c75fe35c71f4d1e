"""Elastic runs: seats that are opened, parked and closed while the model trains."""
