"""What every room stands on: errors, files, locks, checksums, clocks, frames. It imports nothing else of Palisade."""
