"""The first process of a pod on a cluster: round the program it does what SageMaker does round that of a job."""
