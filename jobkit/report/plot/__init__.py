"""Memory against load and speed against batch size, as pictures."""
