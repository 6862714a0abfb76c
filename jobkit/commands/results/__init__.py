"""Commands for results: collect, recommend, verify."""
