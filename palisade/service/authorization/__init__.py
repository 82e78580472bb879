"""Authentication of callers and the permissions that requests need."""
