"""The HTTP server: OpenAI routes, health and metrics."""
