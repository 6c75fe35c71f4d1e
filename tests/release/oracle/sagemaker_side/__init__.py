"""The SageMaker SDK's side of the comparison. Runs in the SDK's own environment, build/sagemaker."""
