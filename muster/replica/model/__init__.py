"""The model that a run leaves: its weights as safetensors, the trainer's files beside them, which replica writes."""
