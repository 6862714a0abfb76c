"""The schedulers: one module each, argv out and text in."""
