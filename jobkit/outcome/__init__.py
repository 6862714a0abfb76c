"""A run folder read back: what was submitted, and how every try ended; reads files, asks no scheduler."""
