"""The one write and read path of a node, below its protocols: HTTP, the stream and the embedded store call it."""
