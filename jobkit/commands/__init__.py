"""The commands, one file each: parse the arguments, call a room, print."""
