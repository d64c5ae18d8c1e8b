"""What a load can be run against: a server by its URL, or a model in this process."""
