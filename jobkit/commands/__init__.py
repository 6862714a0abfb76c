"""The commands: one file each, to parse, call and print."""
