"""The catalog: databases, tables, devices, permissions and TTL rules that users keep in the metadata store."""
