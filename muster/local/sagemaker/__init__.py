"""SageMaker training jobs, the one service that MiniStack lacks: requests, jobs, their processes and events."""
