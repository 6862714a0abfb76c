"""The schedulers: argument lists out, text in. One folder each."""
