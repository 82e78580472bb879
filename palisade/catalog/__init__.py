"""What users keep in the meta storage."""
