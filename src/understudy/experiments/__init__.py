"""Experiments: a grid of runs, trained on one machine or many, and their results."""
