"""What a run writes down: schema, metric definitions, writers and readers."""
