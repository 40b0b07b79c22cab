"""Small programs, each of which hangs in one call of a library, and what py-spy saw of them.

`python -m tests.ranks.waits.blocking_programs PYTHON NAME...` runs programs by a Python that has
the library, and writes the frames of their first thread into `blocking_calls.json`.  A program is a
user's: its frames are in `/job/train.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

RECORDED = Path(__file__).with_name("blocking_calls.json")

HEAD = """
import os, socket, sys, threading, time
server = socket.create_server(("127.0.0.1", 0), backlog=16)
port = server.getsockname()[1]
url = f"http://127.0.0.1:{port}/"
def fork(work):
    if os.fork() == 0:
        try:
            work()
        finally:
            os._exit(0)
def distributed(rank, work):
    import torch.distributed as dist
    meet = f"tcp://127.0.0.1:{port + 1}"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=2)
    work(dist)
def two_ranks(work):
    fork(lambda: distributed(1, lambda dist: time.sleep(600)))
    distributed(0, work)
"""

PROGRAMS = {
    # The standard library.
    "queue.get": "import queue; queue.Queue().get()",
    "queue.put": "import queue; q = queue.Queue(1); q.put(1); q.put(1)",
    "queue.join": "import queue; q = queue.Queue(); q.put(1); q.join()",
    "Event.wait": "threading.Event().wait()",
    "Condition.wait_for": "c = threading.Condition(); c.acquire(); c.wait_for(lambda: False)",
    "Barrier.wait": "threading.Barrier(2).wait()",
    "Semaphore.acquire": "threading.Semaphore(0).acquire()",
    "Thread.join": "t = threading.Thread(target=time.sleep, args=(600,)); t.start(); t.join()",
    "Future.result": (
        "import concurrent.futures as f; f.ThreadPoolExecutor().submit(time.sleep, 600).result()"
    ),
    "ThreadPoolExecutor": (
        "import concurrent.futures as f\nwith f.ThreadPoolExecutor() as p:\n"
        "    p.submit(time.sleep, 600)"
    ),
    "futures.wait": (
        "import concurrent.futures as f; f.wait([f.ThreadPoolExecutor().submit(time.sleep, 600)])"
    ),
    "Executor.map": (
        "import concurrent.futures as f; list(f.ProcessPoolExecutor(1).map(time.sleep, [600]))"
    ),
    "mp.Queue.get": "import multiprocessing as mp; mp.Queue().get()",
    "mp.SimpleQueue.get": "import multiprocessing as mp; mp.SimpleQueue().get()",
    "mp.Connection.recv": "import multiprocessing as mp; a, b = mp.Pipe(); a.recv()",
    "mp.Connection.poll": "import multiprocessing as mp; a, b = mp.Pipe(); a.poll(None)",
    "mp.connection.wait": ("import multiprocessing.connection as c; a, b = c.Pipe(); c.wait([a])"),
    "mp.Listener.accept": "import multiprocessing.connection as c; c.Listener().accept()",
    "mp.Process.join": (
        "import multiprocessing as mp; p = mp.Process(target=time.sleep, args=(600,));"
        " p.start(); p.join()"
    ),
    "mp.Pool.map": "import multiprocessing as mp; mp.Pool(1).map(time.sleep, [600])",
    "mp.Pool.imap": "import multiprocessing as mp; next(mp.Pool(1).imap(time.sleep, [600]))",
    "mp.Event.wait": "import multiprocessing as mp; mp.Event().wait()",
    "mp.Barrier.wait": "import multiprocessing as mp; mp.Barrier(2).wait()",
    "mp.Manager.Queue.get": "import multiprocessing as mp; mp.Manager().Queue().get()",
    "subprocess.run": "import subprocess; subprocess.run(['sleep', '600'])",
    "subprocess.output": "import subprocess; subprocess.check_output(['sleep', '600'])",
    "subprocess.wait": "import subprocess; subprocess.Popen(['sleep', '600']).wait(600)",
    "urlopen": "import urllib.request; urllib.request.urlopen(url)",
    "http.client": (
        "import http.client; c = http.client.HTTPConnection('127.0.0.1', port);"
        " c.request('GET', '/'); c.getresponse()"
    ),
    "socket.accept": "server.accept()",
    "socketserver": (
        "import socketserver as s;"
        " s.TCPServer(('127.0.0.1', 0), s.BaseRequestHandler).serve_forever()"
    ),
    "xmlrpc": "import xmlrpc.client; xmlrpc.client.ServerProxy(url).ask()",
    "asyncio.run": "import asyncio; asyncio.run(asyncio.sleep(600))",
    "selectors.select": "import selectors; s = selectors.DefaultSelector(); s.select()",
    "read_bytes": (
        "import pathlib, tempfile; p = tempfile.mkdtemp() + '/fifo'; os.mkfifo(p);"
        " pathlib.Path(p).read_bytes()"
    ),
    "shutil.copyfileobj": (
        "import shutil, io; r, w = os.pipe(); shutil.copyfileobj(open(r, 'rb', 0), io.BytesIO())"
    ),
    # Libraries.
    "requests.get": "import requests; requests.get(url)",
    "requests.Session.post": "import requests; requests.Session().post(url, json={})",
    "urllib3": "import urllib3; urllib3.PoolManager().request('GET', url)",
    "httpx.get": "import httpx; httpx.get(url, timeout=None)",
    "httpx.stream": (
        "import httpx\nwith httpx.Client(timeout=None).stream('GET', url) as r:\n    r.read()"
    ),
    "httpx.AsyncClient": (
        "import asyncio, httpx; asyncio.run(httpx.AsyncClient(timeout=None).get(url))"
    ),
    "aiohttp": (
        "import asyncio, aiohttp\nasync def ask():\n    async with aiohttp.ClientSession() as s:\n"
        "        await s.get(url)\nasyncio.run(ask())"
    ),
    "uvloop": "import uvloop, asyncio; uvloop.run(asyncio.sleep(600))",
    "uvicorn": (
        "import uvicorn, fastapi; uvicorn.run(fastapi.FastAPI(), port=port + 2, log_level='error')"
    ),
    "zmq.recv": ("import zmq; s = zmq.Context().socket(zmq.PULL); s.bind('inproc://x'); s.recv()"),
    "zmq.recv_json": (
        "import zmq; s = zmq.Context().socket(zmq.PULL); s.bind('inproc://x'); s.recv_json()"
    ),
    "zmq.recv_pyobj": (
        "import zmq; s = zmq.Context().socket(zmq.PULL); s.bind('inproc://x'); s.recv_pyobj()"
    ),
    "zmq.recv_multipart": (
        "import zmq; s = zmq.Context().socket(zmq.PULL); s.bind('inproc://x'); s.recv_multipart()"
    ),
    "zmq.poll": (
        "import zmq; s = zmq.Context().socket(zmq.PULL); s.bind('inproc://x');"
        " p = zmq.Poller(); p.register(s); p.poll()"
    ),
    "zmq.socket.poll": (
        "import zmq; s = zmq.Context().socket(zmq.PULL); s.bind('inproc://x'); s.poll(600_000)"
    ),
    "grpc.unary": (
        "import grpc; grpc.insecure_channel(f'127.0.0.1:{port}')"
        ".unary_unary('/S/A')(b'', wait_for_ready=True)"
    ),
    "grpc.stream": (
        "import grpc; next(grpc.insecure_channel(f'127.0.0.1:{port}')"
        ".unary_stream('/S/A')(b'', wait_for_ready=True))"
    ),
    "grpc.future": (
        "import grpc; grpc.insecure_channel(f'127.0.0.1:{port}')"
        ".unary_unary('/S/A').future(b'', wait_for_ready=True).result()"
    ),
    "grpc.ready": (
        "import grpc; grpc.channel_ready_future(grpc.insecure_channel(f'127.0.0.1:{port}'))"
        ".result()"
    ),
    "grpc.server": (
        "import grpc; from concurrent import futures;"
        " grpc.server(futures.ThreadPoolExecutor()).wait_for_termination()"
    ),
    "filelock": (
        "import filelock, tempfile; p = tempfile.mkdtemp() + '/lock'\n"
        "fork(lambda: (filelock.FileLock(p).acquire(), time.sleep(600)))\n"
        "time.sleep(1); filelock.FileLock(p).acquire()"
    ),
    "joblib": "import joblib; joblib.Parallel(2)([joblib.delayed(time.sleep)(600)])",
    "openai": (
        "import openai; openai.OpenAI(base_url=url, api_key='x').chat.completions.create("
        "model='m', messages=[{'role': 'user', 'content': 'x'}])"
    ),
    "huggingface_hub": (
        "import huggingface_hub; huggingface_hub.hf_hub_download('a/b', 'c', endpoint=url)"
    ),
    "boto3": (
        "import boto3; boto3.client('s3', endpoint_url=url, region_name='x', aws_access_key_id='x',"
        " aws_secret_access_key='x').get_object(Bucket='b', Key='k')"
    ),
    "fsspec": "import fsspec; fsspec.filesystem('http').cat(url)",
    "gunicorn": (
        "from gunicorn.app.wsgiapp import WSGIApplication;"
        " sys.argv = ['gunicorn', '-b', f'127.0.0.1:{port + 2}', 'http.server:test'];"
        " WSGIApplication().run()"
    ),
    "redis": "import redis; redis.Redis(port=port, protocol=2).get('x')",
    # Ray.
    "ray.get": "import ray; ray.init(); ray.get(ray.remote(lambda: time.sleep(600)).remote())",
    "ray.wait": "import ray; ray.init(); ray.wait([ray.remote(lambda: time.sleep(600)).remote()])",
    "ray.actor": (
        "import ray; ray.init()\nclass A:\n    def ask(self):\n        time.sleep(600)\n"
        "a = ray.remote(A).remote(); ray.get(a.ask.remote())"
    ),
    "ray.util.queue": ("import ray; ray.init(); from ray.util.queue import Queue; Queue().get()"),
    "ray.generator": (
        "import ray; ray.init()\n@ray.remote\ndef f():\n    time.sleep(600)\n    yield 1\n"
        "next(f.remote())"
    ),
    # PyTorch.
    "dist.all_reduce": ("import torch; two_ranks(lambda dist: dist.all_reduce(torch.zeros(1)))"),
    "dist.barrier": "two_ranks(lambda dist: dist.barrier())",
    "dist.broadcast_object_list": "two_ranks(lambda dist: dist.broadcast_object_list([1], 1))",
    "dist.recv": "import torch; two_ranks(lambda dist: dist.recv(torch.zeros(1), 1))",
    "dist.wait": (
        "from torch import zeros; two_ranks(lambda d: d.all_reduce(zeros(1), async_op=True).wait())"
    ),
    "dist.monitored_barrier": "two_ranks(lambda dist: dist.monitored_barrier())",
    "dist.init_process_group": "distributed(0, None)",
    "dist.new_group": (
        "two_ranks(lambda dist: dist.new_group([0, 1], use_local_synchronization=True))"
    ),
    "TCPStore.get": (
        "import torch.distributed as dist; dist.TCPStore('127.0.0.1', port + 1, 1, True).get('x')"
    ),
    "DistributedDataParallel": (
        "import torch; two_ranks(lambda dist: torch.nn.parallel.DistributedDataParallel("
        "torch.nn.Linear(1, 1)))"
    ),
    "dist.checkpoint.save": (
        "import torch.distributed.checkpoint as c, tempfile;"
        " two_ranks(lambda dist: c.save({}, checkpoint_id=tempfile.mkdtemp()))"
    ),
    "fully_shard": (
        "import torch\nfrom torch.distributed.fsdp import fully_shard\n"
        "def work(dist):\n    m = torch.nn.Linear(8, 8)\n    fully_shard(m)\n"
        "    m(torch.zeros(1, 8))\ntwo_ranks(work)"
    ),
    "DataLoader": (
        "import torch\nclass D(torch.utils.data.Dataset):\n    def __len__(self):\n"
        "        return 8\n    def __getitem__(self, i):\n        time.sleep(600)\n"
        "next(iter(torch.utils.data.DataLoader(D(), num_workers=1)))"
    ),
    "DataLoader without workers": (
        "import torch\nclass D(torch.utils.data.Dataset):\n    def __len__(self):\n"
        "        return 8\n    def __getitem__(self, i):\n        time.sleep(600)\n"
        "next(iter(torch.utils.data.DataLoader(D())))"
    ),
    "torch.load": (
        "import torch, tempfile; p = tempfile.mkdtemp() + '/fifo'; os.mkfifo(p); torch.load(p)"
    ),
    "torch.save": (
        "import torch; r, w = os.pipe(); torch.save(torch.zeros(1 << 20), open(w, 'wb', 0))"
    ),
    "backward": (
        "import torch\nclass F(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, x):\n        return x * 1\n    @staticmethod\n"
        "    def backward(ctx, g):\n        time.sleep(600)\n"
        "F.apply(torch.zeros(1, requires_grad=True)).backward()"
    ),
}

_LIBRARY = re.compile(r".*(/lib/python3[^/]*/.*)")


def record(python: str, name: str) -> list[list[object]]:
    """The frames of a program's first thread, the innermost first, once they stay the same."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "train.py")
        body = textwrap.indent(PROGRAMS[name], "    ")
        file.write_text(f"{HEAD}\ndef train():\n{body}\nif __name__ == '__main__':\n    train()\n")
        program = subprocess.Popen(
            [python, str(file)], start_new_session=True, stdout=2, cwd=directory
        )
        try:
            time.sleep(float(os.environ.get("SETTLE", "0")))  # for a library that takes its time
            seen: list[list[list[object]]] = []
            while program.poll() is None and len(seen) < 90:
                time.sleep(1.0)
                with contextlib.suppress(subprocess.CalledProcessError, ValueError):
                    seen.append(_frames(program.pid, str(file)))
                imports = any(
                    "importlib" in str(frame[1]) for frames in seen[-1:] for frame in frames
                )
                if len(seen) >= 4 and not imports and all(one == seen[-1] for one in seen[-4:]):
                    return seen[-1]
            raise ValueError(f"it does not hang: {seen[-1:]}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()


def _frames(pid: int, program: str) -> list[list[object]]:
    dump = ["py-spy", "dump", "--json", "--nonblocking", "--pid", str(pid)]
    out = subprocess.run(dump, check=True, capture_output=True).stdout
    (main,) = (one for one in json.loads(out) if one["thread_name"] == "MainThread")
    return [[one["name"], _place(one["filename"], program), one["line"]] for one in main["frames"]]


def _place(file: str, program: str) -> str:
    """A path as it is everywhere."""
    if file == program:
        return "/job/train.py"
    found = _LIBRARY.fullmatch(file)
    return f"/venv{found[1]}" if found else file


def main() -> None:
    """Record what is named, or everything that was not recorded yet and can be."""
    python, *names = sys.argv[1:]
    told = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for name in names or [name for name in PROGRAMS if name not in told]:
        try:
            told[name] = record(python, name)
        except ValueError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        print(name, *(f"{one[0]}({one[1].rpartition('/')[2]})" for one in told[name]))
    lines = (f"{json.dumps(name)}: {json.dumps(told[name])}" for name in PROGRAMS if name in told)
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
