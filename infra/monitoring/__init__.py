"""CloudWatch: alarms, dashboard, and links to the consoles."""
