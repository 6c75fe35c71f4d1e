"""Where a replica's metrics go beside its log: TensorBoard, MLflow, Weights & Biases."""
