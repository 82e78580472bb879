"""The protocols of a node: decoding of requests and encoding of responses, nothing else."""
