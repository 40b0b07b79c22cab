"""The table of blocking calls, on what py-spy saw of real libraries in `blocking_programs`."""

from __future__ import annotations

import json

import pytest

from stagewatch.ranks.stacks import Frame
from stagewatch.ranks.waits.blocking_calls import _TABLE, Whom, _matches, blocking_call
from tests.ranks.waits.blocking_programs import PROGRAMS, RECORDED

SEEN = {
    name: [Frame(*frame) for frame in frames]
    for name, frames in json.loads(RECORDED.read_text()).items()
}

PEERS, PROCESS, CHILD, OWN = Whom.PEERS, Whom.PROCESS, Whom.CHILD, Whom.OWN
DEVICE, STORAGE, ANYBODY = Whom.DEVICE, Whom.STORAGE, Whom.ANYBODY

TOLD = {
    "queue.get": ("queue.get", OWN),
    "queue.put": ("queue.put", OWN),
    "queue.join": ("queue.join", OWN),
    "Event.wait": ("wait of a lock or event", OWN),
    "Condition.wait_for": ("wait_for of a lock or event", OWN),
    "Barrier.wait": ("wait of a lock or event", OWN),
    "Semaphore.acquire": ("acquire of a lock or event", OWN),
    "Thread.join": ("the end of a thread", OWN),
    "Future.result": ("result of a future", OWN),
    "ThreadPoolExecutor": ("the end of a thread pool", OWN),
    "futures.wait": ("wait of a future", OWN),
    "Executor.map": ("a process pool", CHILD),
    "mp.Queue.get": ("multiprocessing.Queue.get", PROCESS),
    "mp.SimpleQueue.get": ("multiprocessing.Queue.get", PROCESS),
    "mp.Connection.recv": ("multiprocessing.recv", PROCESS),
    "mp.Connection.poll": ("multiprocessing.poll", PROCESS),
    "mp.connection.wait": ("multiprocessing.wait", PROCESS),
    "mp.Listener.accept": ("multiprocessing.Listener.accept", ANYBODY),
    "mp.Process.join": ("multiprocessing.Process.join", CHILD),
    "mp.Pool.map": ("multiprocessing.Pool.map", CHILD),
    "mp.Pool.imap": ("multiprocessing.Pool.next", CHILD),
    "mp.Event.wait": ("wait of a multiprocessing lock or event", PROCESS),
    "mp.Barrier.wait": ("wait_for of a multiprocessing lock or event", PROCESS),
    "mp.Manager.Queue.get": ("a multiprocessing manager", PROCESS),
    "subprocess.run": ("subprocess.run", CHILD),
    "subprocess.output": ("subprocess.check_output", CHILD),
    "subprocess.wait": ("subprocess.wait", CHILD),
    "urlopen": ("an HTTP request", PROCESS),
    "http.client": ("an HTTP request", PROCESS),
    "socket.accept": ("the next connection", ANYBODY),
    "socketserver": ("a server", ANYBODY),
    "xmlrpc": ("an HTTP request", PROCESS),
    "asyncio.run": ("an event loop", ANYBODY),
    "selectors.select": ("several descriptors", ANYBODY),
    "read_bytes": ("read_bytes of a file", STORAGE),
    "shutil.copyfileobj": ("copyfileobj of a file", STORAGE),
    "requests.get": ("requests.get", PROCESS),
    "requests.Session.post": ("requests.post", PROCESS),
    "urllib3": ("urllib3 request", PROCESS),
    "httpx.get": ("httpx.get", PROCESS),
    "httpx.stream": ("httpx.stream", PROCESS),
    "httpx.AsyncClient": ("an event loop", ANYBODY),
    "aiohttp": ("an event loop", ANYBODY),
    "uvloop": ("an event loop", ANYBODY),
    "uvicorn": ("a web server", ANYBODY),
    "zmq.recv": None,
    "zmq.recv_json": ("zmq.recv_json", PROCESS),
    "zmq.recv_pyobj": ("zmq.recv_pyobj", PROCESS),
    "zmq.recv_multipart": ("zmq.recv_multipart", PROCESS),
    "zmq.poll": ("zmq.poll", PROCESS),
    "zmq.socket.poll": ("zmq.poll", PROCESS),
    "grpc.unary": ("a call of gRPC", PROCESS),
    "grpc.stream": ("a call of gRPC", PROCESS),
    "grpc.future": ("a call of gRPC", PROCESS),
    "grpc.ready": ("a channel of gRPC", PROCESS),
    "grpc.server": ("a gRPC server", ANYBODY),
    "filelock": ("a lock of a file", PROCESS),
    "joblib": ("joblib", CHILD),
    "openai": ("a request of openai", PROCESS),
    "huggingface_hub": ("a request of huggingface_hub", PROCESS),
    "boto3": ("a request to object storage", PROCESS),
    "fsspec": ("a request to object storage", PROCESS),
    "gunicorn": ("a web server", ANYBODY),
    "redis": ("redis", PROCESS),
    "ray.get": ("ray.get", PROCESS),
    "ray.wait": ("ray.wait", PROCESS),
    "ray.actor": ("ray.get", PROCESS),
    "ray.util.queue": ("ray.util.queue get", PROCESS),
    "ray.generator": ("the next item of a Ray task", PROCESS),
    "dist.all_reduce": ("all_reduce of torch.distributed", PEERS),
    "dist.barrier": ("barrier of torch.distributed", PEERS),
    "dist.broadcast_object_list": ("broadcast_object_list of torch.distributed", PEERS),
    "dist.recv": ("recv of torch.distributed", PEERS),
    "dist.wait": None,
    "dist.monitored_barrier": ("monitored_barrier of torch.distributed", PEERS),
    "dist.init_process_group": ("torch.distributed.init_process_group", PEERS),
    "dist.new_group": ("new_group of torch.distributed", PEERS),
    "TCPStore.get": None,
    "DistributedDataParallel": ("__init__ of DistributedDataParallel", PEERS),
    "dist.checkpoint.save": ("save of torch.distributed.checkpoint", PEERS),
    "fully_shard": ("a sharded module of torch.distributed", PEERS),
    "DataLoader": ("the data loader", CHILD),
    "DataLoader without workers": None,
    "torch.load": ("torch.load", STORAGE),
    "torch.save": ("torch.save", STORAGE),
    "backward": None,
}

WITHOUT_A_GPU = "torch.cuda.{}"
"""The row that these programs cannot show."""


def test_every_program_was_recorded_and_is_told() -> None:
    assert SEEN.keys() == PROGRAMS.keys() == TOLD.keys()


@pytest.mark.parametrize("name", SEEN)
def test_the_call_that_the_users_code_is_in_is_named(name: str) -> None:
    found = blocking_call(SEEN[name])
    assert (found and (found.what, found.whom)) == TOLD[name]


def test_every_row_is_of_a_library_that_was_recorded() -> None:
    used = {
        row.what
        for frames in SEEN.values()
        for row in _TABLE
        if any(_matches(row, frame) for frame in frames)
    }
    assert {row.what for row in _TABLE} - used == {WITHOUT_A_GPU}


def test_code_of_the_users_own_that_a_library_calls_is_in_no_call() -> None:
    frames = [
        Frame("__getitem__", "/job/data.py", 3),
        Frame("fetch", "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", 50),
        Frame("_next_data", "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 9),
        Frame("train", "/job/train.py", 7),
    ]
    assert blocking_call(frames) is None
