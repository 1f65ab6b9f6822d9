"""How quick stand-ins are beside what they stand for: layers and networks, in every runtime, in one run."""
