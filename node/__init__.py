"""The process: wiring, HTTP and stream servers, command line, client."""
