"""Muster: one model, N independent SageMaker training jobs, one S3 bucket."""
