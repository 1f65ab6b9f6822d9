"""Sweeps over transforms, budgets and ablations, and what can be computed without training."""
