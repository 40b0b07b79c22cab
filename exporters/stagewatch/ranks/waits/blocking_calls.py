"""The blocking call of a known library that a Python stack is in, and what it waits for.

A row names a function of a library by its file.  Of several calls in a stack, the first one below
the user's own code says most: a data loader, not the queue that it reads.  Functions in C have no
frame: `time.sleep`, `Lock.acquire`, `socket.recv`, `Tensor.item`, `Work.wait`, the stores of
torch.distributed, `Socket.recv` of pyzmq.  For these, the kernel shows the wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache

from stagewatch.core.words import printable
from stagewatch.ranks.stacks import MAX_FRAME, Frame, Stack, Take, users_own


class Whom(str, Enum):
    """What a call waits for."""

    PEERS = "peers"
    """Other members of a process group."""
    PROCESS = "process"
    """Another process: a worker, a server, an actor."""
    CHILD = "child"
    """A process that this one has started."""
    OWN = "own"
    """Another thread of the same process."""
    DEVICE = "device"
    """The GPU, and whatever its work waits for."""
    STORAGE = "storage"
    ANYBODY = "anybody"
    """The next request, or the next event of a loop."""


@dataclass(frozen=True, slots=True)
class BlockingCall:
    """The call that a stack is in."""

    what: str
    """`all_reduce of torch.distributed`, `ray.get`, `queue.get`."""
    whom: Whom
    frame: Frame
    """The frame of the call."""


_ROWS = r"""
peers    torch/distributed/distributed_c10d\.py
         (?!init_process_group|destroy_process_group|_|wrapper)\w+ | {} of torch.distributed
peers    torch/distributed/distributed_c10d\.py  init_process_group | torch.distributed.{}
peers    torch/distributed/(rendezvous|c10d_store)\.py  \w+ | the rendezvous of torch.distributed
peers    torch/distributed/checkpoint/\w+\.py
         save|load|async_save|save_state_dict|load_state_dict | {} of torch.distributed.checkpoint
peers    torch/nn/parallel/distributed\.py
         __init__|forward|_\w*sync\w* | {} of DistributedDataParallel
peers    torch/distributed/(fsdp|tensor|pipelining|_composable|_functional_collectives)\b\S*
         \w+ | a sharded module of torch.distributed
child    torch/utils/data/dataloader\.py  __next__|_next_data|_get_data|__init__ | the data loader
device   torch/(cuda|xpu|npu)/\S+  synchronize|wait_event|wait_stream|query | torch.cuda.{}
device   torch/(autograd/(__init__|graph)|_tensor)\.py
         backward|_engine_run_backward | {} of autograd
storage  torch/(serialization|multiprocessing/reductions)\.py  load|save|_load|_save | torch.{}
process  ray/_private/worker\.py  get|wait|init | ray.{}
process  ray/util/queue\.py  get|put | ray.util.queue {}
process  ray/\S*(object_ref_generator\.py|_raylet\S*)
         __next__|_next_sync | the next item of a Ray task
process  multiprocessing/queues\.py  get|put | multiprocessing.Queue.{}
process  multiprocessing/managers\.py  _callmethod|_create|connect | a multiprocessing manager
child    multiprocessing/pool\.py
         get|wait|next|map|starmap|apply|join|__exit__ | multiprocessing.Pool.{}
anybody  multiprocessing/connection\.py  accept | multiprocessing.Listener.{}
process  multiprocessing/connection\.py
         recv|recv_bytes|recv_bytes_into|send|send_bytes|poll|wait|Client | multiprocessing.{}
process  multiprocessing/(synchronize|shared_memory)\.py
         wait|wait_for|acquire|__enter__ | {} of a multiprocessing lock or event
child    multiprocessing/(process|popen_\w+)\.py  join|wait | multiprocessing.Process.join
child    (concurrent/futures/process)\.py
         _chain_from_iterable_of_lists|shutdown|__exit__ | a process pool
child    subprocess\.py
         run|call|check_call|check_output|wait|communicate|_wait|__exit__ | subprocess.{}
child    joblib/\S+  _retrieve|_get_outputs|__call__ | joblib
own      concurrent/futures/_base\.py
         result|exception|wait|as_completed|result_iterator | {} of a future
own      concurrent/futures/thread\.py  shutdown|__exit__ | the end of a thread pool
own      queue\.py  get|put|join | queue.{}
own      threading\.py  join|_wait_for_tstate_lock | the end of a thread
own      threading\.py  wait|wait_for|acquire|__enter__ | {} of a lock or event
process  requests/(api|sessions)\.py
         get|post|put|patch|delete|head|request|send | requests.{}
process  httpx/_(api|client)\.py
         get|post|put|patch|delete|head|request|stream|send | httpx.{}
process  urllib3/\S+  request|urlopen | urllib3 {}
process  huggingface_hub/\S+  \w+ | a request of huggingface_hub
process  openai/\S+  request|create|wrapper | a request of openai
process  (urllib/request|http/client|xmlrpc/client)\.py
         urlopen|open|getresponse|request|connect|__call__|_read_status | an HTTP request
process  redis/\S+  execute_command|read_response|connect | redis
process  (botocore|fsspec)/\S+  \w+ | a request to object storage
process  grpc/_channel\.py
         __call__|_blocking|result|_next|__next__|exception | a call of gRPC
process  grpc/_utilities\.py  result|_block | a channel of gRPC
anybody  grpc/_server\.py  wait_for_termination|wait | a gRPC server
process  zmq/sugar/\w+\.py  recv\w*|send\w*|poll | zmq.{}
process  filelock/\S+  acquire|__enter__ | a lock of a file
anybody  (uvicorn|gunicorn)/\S+  run|serve | a web server
anybody  (socketserver|http/server)\.py  serve_forever|handle_request | a server
anybody  (asyncio/(runners|base_events)|uvloop/\w+)\.py
         run|run_forever|run_until_complete | an event loop
anybody  selectors\.py  select | several descriptors
anybody  socket\.py  accept | the next connection
process  (socket|ssl)\.py
         readinto|read|recv|recv_into|send|sendall|create_connection|connect|do_handshake
         | {} of a socket
storage  (shutil|pathlib|tempfile|gzip|zipfile|tarfile)\b\S*
         copy\w*|read\w*|write\w*|open|move|rmtree|extract\w*|readinto | {} of a file
"""


@dataclass(frozen=True, slots=True)
class _Row:
    whom: Whom
    file: re.Pattern[str]
    function: re.Pattern[str]
    what: str


@cache  # and not when it is imported: most commands take no stack
def _rows() -> list[_Row]:
    rows = []
    for text in re.split(r"\n(?=\w)", _ROWS.strip()):
        where, _, what = text.rpartition(" | ")
        whom, file, function = where.split()
        rows.append(_Row(Whom(whom), re.compile(file), re.compile(function), what.strip()))
    return rows


def blocking_call(frames: Iterable[Frame]) -> BlockingCall | None:
    """The known blocking call that the user's own code is in; `None` if there is none.

    `frames`: those of a thread, the innermost first."""
    frames = tuple(frames)
    own = users_own(frames)
    below = frames[: frames.index(own)] if own in frames else frames
    found = [call for frame in reversed(below) if (call := _known(frame))]
    # What looks like a lock of threads may be built on one of processes.
    return next((call for call in found if call.whom is not Whom.OWN), found[0] if found else None)


def with_call(found: Stack, looks: Iterable[Take]) -> Stack:
    """The common stack of some looks, with the blocking call if all looks saw the same."""
    calls = {blocking_call(look.threads[0][1]) for look in looks if look.threads}
    told = {(call.what, call.whom.value) if call else ("", "") for call in calls}
    if len(told) != 1:
        return found
    [(what, whom)] = told
    return replace(found, call=printable(what, MAX_FRAME), whom=whom)


def _known(frame: Frame) -> BlockingCall | None:
    for row in _rows():
        if _matches(row, frame):
            return BlockingCall(row.what.format(_name(frame)), row.whom, frame)
    return None


def _matches(row: _Row, frame: Frame) -> bool:
    found = row.file.fullmatch(frame.module.lstrip("/")) and row.function.fullmatch(_name(frame))
    return found is not None


def _name(frame: Frame) -> str:
    """The name of a function without its class, which py-spy adds from Python 3.11 on."""
    return frame.function.rpartition(".")[2]
