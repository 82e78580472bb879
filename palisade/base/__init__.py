"""Tools that several packages share: errors, files, locks, checksums, clocks, frames. Imports no other package of
Palisade.
"""
