"""What a forward pass costs: a rule for each operation, and a trace that applies them."""
