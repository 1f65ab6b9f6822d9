"""Model and budget → plan: what stands in for each layer, and what the network will then cost."""
