"""What a run folder says: how its tries ended, where every point stands, and what runs again."""
