"""The lines that replicas write, read from CloudWatch Logs."""
