"""Layers around a transform: kernel, stride, padding, bias."""
