"""Dense networks: by name, and built in."""
