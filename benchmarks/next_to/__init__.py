"""What jobkit and other programs do, each claim with a command that checks it: docs/next-to-others.md."""
