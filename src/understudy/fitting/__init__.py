"""Trained network in, small network that still works out: calibration, data-aware fit, correction."""
