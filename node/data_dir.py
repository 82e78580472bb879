"""The data folder of one node: of one cluster, for one node (issue 2, "Bad input").

That one process at a time uses it is the journal's business (`raftgroup/directory_lock.py`).
"""

from __future__ import annotations

from pathlib import Path

from node.folder import FolderError, Marker

MARKER = "node.json"


def claim_data_dir(path: Path, *, cluster: str, node: str) -> None:
    """Make the folder and mark it with cluster and node; nothing is to be done in one that is marked so already.

    Raises FolderError when it can't be written, holds something else, or belongs to another cluster or node.
    """
    marker = Marker(path, MARKER)
    content = marker.read()
    if content is None:
        marker.write({"cluster": cluster, "node": node})
        return
    its_cluster, its_node = content.get("cluster"), content.get("node")
    if its_cluster != cluster:
        raise FolderError(
            f"{path} belongs to cluster {its_cluster!r}, not to {cluster!r}; correct --cluster, or give another folder"
        )
    if its_node != node:
        raise FolderError(f"{path} belongs to node {its_node!r}, not to {node!r}; correct --id, or give another folder")
