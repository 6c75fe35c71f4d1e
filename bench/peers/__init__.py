"""What Muster is measured against: other S3 clients, and torchft's own DiLoCo; each in processes of its own."""
