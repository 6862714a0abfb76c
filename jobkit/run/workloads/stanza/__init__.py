"""Stanza's tokenizer and named-entity tagger as a workload, and what makes them faster."""
