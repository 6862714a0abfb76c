"""Shipped workloads whose framework is an optional extra: transformers, sentence-transformers, spaCy."""
