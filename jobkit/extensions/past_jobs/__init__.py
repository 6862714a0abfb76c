"""What past jobs requested and did not use, whoever submitted them: `jobkit waste JOBID`."""
