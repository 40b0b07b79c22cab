"""The mount table as text."""

from __future__ import annotations

from pathlib import Path

from stagewatch.host.mounts import Mount, mount_of, read_mounts

TABLE = r"""22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:50 / /data rw,relatime shared:9 master:2 - nfs4 nas:/data rw,vers=4.2
31 30 0:51 / /data/deep\040er rw - tmpfs tmpfs rw
32 22 0:52 / /data rw - nfs4 nas:/newer rw
truncated 22 0:52
"""


def table(tmp_path: Path) -> list[Mount]:
    path = tmp_path / "mountinfo"
    path.write_text(TABLE)
    return read_mounts(path)


def test_the_deepest_and_latest_mount_counts(tmp_path: Path) -> None:
    mounts = table(tmp_path)
    assert mount_of(Path("/data/deep er/x"), mounts) == Mount(
        "/data/deep er", "tmpfs", "tmpfs", "0:51"
    )
    assert mount_of(Path("/data/x"), mounts) == Mount("/data", "nfs4", "nas:/newer", "0:52")
    assert mount_of(Path("/database"), mounts) == Mount("/", "ext4", "/dev/vda1", "253:0")
