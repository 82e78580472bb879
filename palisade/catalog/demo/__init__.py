"""The demo catalog: realistic metadata, from a public data set, for trying out a cluster."""
