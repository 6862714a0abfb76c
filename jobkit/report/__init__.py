"""From a run folder to tables, pictures and a recommendation."""
