"""The page: one HTML file with its data, style and script inside."""
