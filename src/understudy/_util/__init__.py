"""What every room uses and none owns: files and locks, quantities, text tables, shipped TOML."""
