"""Lets one more user read a file."""

from __future__ import annotations

import os
import struct
from pathlib import Path

_NOBODY = 0xFFFFFFFF


def let_read(path: Path, uid: int, *, group: bool = False) -> None:
    """Give this user an entry in the file's ACL; the owner may still write, the group may read if
    `group`, and nobody else may.  Raises `OSError`, also where the file system has no ACLs.

    See acl(5) and the kernel's include/uapi/linux/posix_acl_xattr.h."""
    owner, user, group_of_file, mask, others = 0x01, 0x02, 0x04, 0x10, 0x20
    entries = (
        (owner, 6, _NOBODY),
        (user, 4, uid),
        (group_of_file, 4 if group else 0, _NOBODY),
        (mask, 4, _NOBODY),
        (others, 0, _NOBODY),
    )
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(path, "system.posix_acl_access", acl)
