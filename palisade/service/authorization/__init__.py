"""Which rights a request needs."""
