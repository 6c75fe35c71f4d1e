"""Structural schemas: what of a document is unknown, wrong or left out, in the words of a kube-apiserver."""
