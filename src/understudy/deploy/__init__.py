"""Out of PyTorch: files for the runtimes that people ship, how quick they are, and which way is quickest."""
