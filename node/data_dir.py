"""The data folder of one node. It belongs to one node of one cluster (issue 2, "Bad input").

The lock that admits one process at a time belongs to the journal (`palisade/base/directory_lock.py`).
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from palisade.node.data_dir_marker import FolderError, Marker
from palisade.topology.initialization import Participant

MARKER = "node.json"


def claim_data_dir(path: Path, *, cluster: str, node: str) -> bool:
    """Create the folder and its marker with the names of cluster and node. Returns False if it has that marker already.

    Raises FolderError if it cannot be written, has other content, or belongs to another cluster or node.
    """
    marker = Marker(path, MARKER)
    content = marker.read()
    if content is None:
        marker.write({"cluster": cluster, "node": node})
        return True
    its_cluster, its_node = content.get("cluster"), content.get("node")
    if its_cluster != cluster:
        raise FolderError(
            f"{path} belongs to cluster {its_cluster!r}, not to {cluster!r}; correct --cluster, or give another folder"
        )
    if its_node != node:
        raise FolderError(f"{path} belongs to node {its_node!r}, not to {node!r}; correct --id, or give another folder")
    return False


def release_data_dir(path: Path) -> None:
    """Undo a claim of this start, after no cluster has admitted the node: the folder is as free as before.

    Called while the folder is locked. A claim requires an empty folder, so this start has created all of its content.
    The marker is removed last: a folder that has content but no marker would be refused.
    """
    with contextlib.suppress(OSError):
        for each in path.iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            elif each.name != MARKER:
                each.unlink()
        (path / MARKER).unlink()
        path.rmdir()


def release_marker(path: Path) -> None:
    """Undo the claim of a node that waited to be initialized: the marker is removed if the folder has nothing else."""
    with contextlib.suppress(OSError):
        if [each.name for each in path.iterdir()] == [MARKER]:
            (path / MARKER).unlink()
            path.rmdir()


def kept_participant(path: Path) -> Participant:
    """The state of the initialization of a cluster at this node. Raises FolderError."""
    content = Marker(path, MARKER).read() or {}
    if content.get("init") is None:
        return Participant()
    try:
        return Participant.from_json(content["init"])
    except (ValueError, KeyError, TypeError):
        raise FolderError(f"{path / MARKER} has an initialization that can't be read; give a new folder") from None


def keep_participant(path: Path, participant: Participant) -> None:
    """On disk when this returns. Raises FolderError."""
    marker = Marker(path, MARKER)
    marker.write({**(marker.read() or {}), "init": participant.to_json()})
