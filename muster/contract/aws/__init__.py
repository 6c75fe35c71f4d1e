"""SageMaker's statuses, failures and prices, and the names of metrics and consoles."""
