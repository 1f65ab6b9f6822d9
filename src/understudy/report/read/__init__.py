"""Results → groups, ablations, tables: everything that is not drawn."""
