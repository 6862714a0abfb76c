"""What past jobs requested and did not use, whoever submitted them, and what the next should request."""
