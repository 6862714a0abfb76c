"""What stands on top of the kernel: each folder adds a kind of run or of point, or a command."""
