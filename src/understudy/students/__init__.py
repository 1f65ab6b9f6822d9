"""Plan → student, and back: substitution, files, weights under other names, cost."""
