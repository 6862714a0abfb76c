"""From a spec to points and a job script that could be submitted now; writes only the cache."""
