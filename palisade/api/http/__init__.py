"""HTTP: the admin and key-value API (/v1), the JSON paths of etcd v3 (/v3), health, metrics."""
