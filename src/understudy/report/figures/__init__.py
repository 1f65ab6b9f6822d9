"""Figures as files, with matplotlib."""
