"""Studies: a question each, answered by runs that are kept, tables, sentences and verdicts."""
