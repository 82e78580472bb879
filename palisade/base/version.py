"""The version of the distribution and of its wire protocol."""

VERSION = "0.1.0"
