"""What a student learns from its teacher, and how its factors decay; for any training loop."""
