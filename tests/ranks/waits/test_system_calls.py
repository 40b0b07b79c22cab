"""The tables of system calls against the kernel's own headers."""

from __future__ import annotations

import pytest

from stagewatch.ranks.waits.system_calls import Role, role_of_channel


@pytest.mark.parametrize(
    ("channel", "role"),
    [
        ("futex_wait_queue", Role.FUTEX),
        ("do_epoll_wait", Role.EPOLL),
        ("ep_poll", Role.EPOLL),
        ("do_poll.constprop.0", Role.POLL),
        ("anon_pipe_read", Role.READ),
        ("pipe_write", Role.WRITE),
        ("unix_stream_read_generic", Role.READ),
        ("hrtimer_nanosleep", Role.SLEEP),
        ("do_wait", Role.WAIT_PID),
        ("inet_csk_accept", Role.ACCEPT),
        ("rpc_wait_bit_killable", Role.OTHER),
        ("", Role.OTHER),
    ],
)
def test_a_kernel_function_says_how_a_thread_waits(channel: str, role: Role) -> None:
    assert role_of_channel(channel) is role
