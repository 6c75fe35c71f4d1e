"""An executor that launches Muster's replicas, behind the protocol of SageMakerExecutor."""
