"""The pipelined msgpack stream: many requests outstanding on one connection, answers in any order."""
