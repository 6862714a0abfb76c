"""The workloads that ship with jobkit, and what a workload is."""
