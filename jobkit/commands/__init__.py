"""The commands, a module each, and what they share."""
