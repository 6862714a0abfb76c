"""The same points through other submission libraries: each a process of its own."""
