"""What `watch_collectives` records of calls that come back, over real groups of two processes.

Each test runs a few lines on both ranks (`tests/client/jobs/pair.py`) and looks at what a rank
says of its own record then; the calls are those of PyTorch's own documentation of
`torch.distributed`, its functional collectives and DistributedDataParallel.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stagewatch.core.processes import Children
from tests.client.hooking import needs, start_ranks
from tests.waiting import wait_for

Pair = Callable[..., list[Any]]
"""`pair(code)`: what `say(...)` was given on each rank."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    needs("torch")
    with Children() as children:

        def run(code: str, *, backend: str = "gloo", begins: str = "first") -> list[Any]:
            (tmp_path / "code.py").write_text(textwrap.dedent(code))
            outputs = [tmp_path / f"{rank}.json" for rank in range(2)]
            start_ranks(children, 2, "pair", tmp_path, tmp_path, backend, begins)
            wait_for(
                lambda: all(output.exists() for output in outputs),
                f"both ranks; see the logs in {tmp_path}",
                120,
            )
            return [json.loads(output.read_text()) for output in outputs]

        yield run


def test_each_operation_by_its_name_with_its_elements(pair: Pair) -> None:
    calls = {
        "all_reduce": ("dist.all_reduce(torch.ones(6))", 6),
        "broadcast": ("dist.broadcast(torch.ones(6), 0)", 6),
        "reduce": ("dist.reduce(torch.ones(6), 0)", 6),
        "all_gather": ("dist.all_gather([torch.ones(3), torch.ones(3)], torch.ones(3))", 0),
        "all_gather_into_tensor": (
            "dist.all_gather_into_tensor(torch.ones(8), torch.ones(4))", 4
        ),
        "reduce_scatter_tensor": (
            "dist.reduce_scatter_tensor(torch.ones(4), torch.ones(8))", 4
        ),
        "gather": ("dist.gather(torch.ones(3), [torch.ones(3)] * 2 if not rank else None)", 0),
        "scatter": ("dist.scatter(torch.ones(3), [torch.ones(3)] * 2 if not rank else None)", 0),
        "all_to_all_single": ("dist.all_to_all_single(torch.ones(4), torch.ones(4))", 0),
        "barrier": ("dist.barrier()", 0),
        "monitored_barrier": ("dist.monitored_barrier()", 0),
    }  # fmt: skip
    code = "seen = []\n"
    for call, _ in calls.values():
        code += f"{call}\ngroup = record().groups['world']\n"
        code += "seen.append([group.op, group.elements or 0, group.sequence, group.end_known])\n"
    code += "say(seen, sorted(record().inside))"
    for seen, inside in pair(code):
        expected = [
            [op, elements, number, True]
            for number, (op, (_, elements)) in enumerate(calls.items(), 1)
        ]
        assert seen == expected
        assert inside == []


def test_a_work_is_the_one_that_pytorch_made(pair: Pair) -> None:
    code = """
        value = torch.ones(2)
        work = dist.all_reduce(value, async_op=True)
        launched = record().groups["world"].sequence, sorted(record().inside)
        ok = isinstance(work, dist.Work) and type(work).__module__.startswith("torch")
        work.wait()
        work.wait()
        future = work.get_future()
        future.wait()
        say(launched, ok, work.is_completed(), work.is_success(), value.tolist(),
            future.value()[0].tolist(), record().groups["world"].sequence)
    """
    for rank in pair(code):
        assert rank == [[1, []], True, True, True, [2, 2], [2, 2], 1]


def test_sends_and_receives_name_the_peer(pair: Pair) -> None:
    code = """
        from torch.distributed import isend, irecv  # as a pipeline's module has imported them
        value, other = torch.full((2,), float(rank)), torch.zeros(2)
        peer = 1 - rank
        if rank:
            dist.send(value, dst=0)
            dist.recv(other, src=0)
        else:
            dist.recv(other, src=1)
            dist.send(value, dst=1)
        works = [isend(value, peer), irecv(other, peer)]
        for work in works:
            work.wait()
        pipes = [dist.P2POp(dist.isend, value, peer), dist.P2POp(irecv, other, peer)]
        for work in dist.batch_isend_irecv(pipes):
            work.wait()
        group = record().groups["p2p"]
        say(other.tolist(), group.op, group.peer, group.sequence, record().collectives["world"])
    """
    for rank, said in enumerate(pair(code)):
        assert said == [[1 - rank] * 2, "recv", 1 - rank, 6, 0]


def test_functional_collectives_count_and_are_waited_for(pair: Pair) -> None:
    code = """
        import torch.distributed._functional_collectives as funcol
        world = dist.group.WORLD
        reduced = funcol.all_reduce(torch.ones(4), "sum", world)
        first = record().groups["world"]
        again = (reduced + 1).tolist()
        left = record().groups["world"]
        gathered = funcol.all_gather_tensor(torch.ones(2), 0, world).tolist()
        last = record().groups["world"]
        say(again, gathered, first.op, first.elements, first.sequence, left.entered > first.entered,
            last.op, last.sequence, sorted(record().inside))
    """
    for rank in pair(code):
        assert rank == [
            [3] * 4, [1] * 4, "all_reduce", 4, 1, True, "all_gather_into_tensor", 2, []
        ]  # fmt: skip


def test_device_meshes_sharded_models_and_tensors_run_and_are_counted(pair: Pair) -> None:
    code = """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import Shard, distribute_tensor
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        whole = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)]).full_tensor().tolist()
        model = torch.nn.Linear(4, 4)
        fully_shard(model, mesh=mesh)
        model(torch.ones(2, 4)).sum().backward()
        groups = record().groups
        say(whole, {name: [group.size, group.sequence > 2] for name, group in groups.items()},
            sorted(record().inside))
    """
    for whole, groups, inside in pair(code):
        assert whole == [0, 1, 2, 3]
        assert all(size == 2 for size, _ in groups.values())
        assert any(used for _, used in groups.values())
        assert inside == []


def test_each_backward_of_a_data_parallel_model_counts_once(pair: Pair) -> None:
    code = """
        DDP = torch.nn.parallel.DistributedDataParallel
        model, other = DDP(torch.nn.Linear(2, 2)), DDP(torch.nn.Linear(2, 2))
        for _ in range(3):
            (model(torch.ones(1, 2)).sum() + model(torch.ones(1, 2)).sum() * 0).backward()
        other(torch.ones(1, 2)).sum().backward()
        with torch.no_grad():
            model(torch.ones(1, 2))
        with model.no_sync():
            model(torch.ones(1, 2)).sum().backward()
        groups = {name: group for name, group in record().groups.items() if "ddp" in name}
        say({name: group.sequence for name, group in groups.items()}, sorted(record().inside),
            [group.op for group in groups.values()])
    """
    for rank in pair(code):
        assert rank == [{"ddp:world": 6, "ddp:world#2": 1}, [], ["backward", "backward"]]


def test_a_destroyed_group_is_forgotten_and_a_new_one_begins_at_zero(pair: Pair) -> None:
    code = """
        pair = dist.new_group([0, 1], group_desc="tp")
        for _ in range(3):
            dist.all_reduce(torch.ones(1), group=pair)
        dist.barrier()
        before = dict(record().collectives)
        dist.destroy_process_group(pair)
        between = dict(record().collectives)
        dist.destroy_process_group()
        without = dict(record().collectives)
        begin(1)
        again = dict(record().collectives)
        say(sorted(before.values()), sorted(between.items()), without, again)
    """
    for before, between, without, again in pair(code):
        assert before == [1, 1, 3]
        assert between == [["init", 1], ["world", 1]]
        assert without == {"init": 1}
        assert again == {"init": 2, "world": 0}


def test_subgroups_made_at_once_are_members_with_their_size(pair: Pair) -> None:
    code = """
        mine, _ = dist.new_subgroups(1)
        say({name: group.size for name, group in record().groups.items()})
    """
    for (groups,) in pair(code):
        assert sorted(groups.values()) == [1, 2, 2]


@pytest.mark.parametrize("begins", ["late", "watched late"])
def test_a_record_or_a_watch_that_begins_late_shows_the_groups(pair: Pair, begins: str) -> None:
    code = """
        dist.barrier()
        start()
        dist.barrier()
        group = record().groups["world"]
        say(group.sequence, group.size)
    """
    # A watch cannot know what came before it; a record can.
    assert pair(code, begins=begins) == [[2 if begins == "late" else 1, 2]] * 2


def test_calls_that_work_on_a_device_are_not_told_to_end(pair: Pair) -> None:
    """PyTorch's fake backend stands for NCCL: its calls return at once, whatever the peers do."""
    code = """
        value = torch.ones(4, device="meta")
        dist.all_reduce(value)
        first = record().groups["world"]
        bare = first.end_known, sorted(record().inside)
        import stagewatch
        stagewatch.heartbeat()
        marked = sorted(record().inside)
        work = dist.all_reduce(value, async_op=True)
        launched = sorted(record().inside)
        work.wait()
        say(bare, marked, launched, record().groups["world"].end_known, sorted(record().inside))
    """
    for rank in pair(code, backend="fake"):
        assert rank == [[False, ["world"]], [], [], False, ["world"]]


def test_an_exception_in_a_collective_passes_and_is_no_longer_inside(pair: Pair) -> None:
    code = """
        from datetime import timedelta
        try:
            if rank == 0:
                dist.monitored_barrier(timeout=timedelta(seconds=0.5))
        except RuntimeError as error:
            failed = True
        else:
            failed = False
        say(failed, sorted(record().inside))
    """
    assert pair(code) == [[True, []], [False, []]]


def test_the_compiler_makes_the_same_graphs_of_what_waits_for_the_device(pair: Pair) -> None:
    code = """
    import torch._dynamo
    torch._dynamo.config.capture_scalar_outputs = True
    torch._dynamo.config.capture_dynamic_output_shape_ops = True

    def compute(x):
        y = x * x.sum().item() + x.cpu() * float(x.mean())
        return y + x.nonzero().sum() + len(x.int().tolist())

    graphs = torch._dynamo.explain(compute)(torch.ones(3)).graph_count
    say([graphs, torch.ones(1).item(), bool(torch.ones(1)), torch.ones(2).tolist()])
    """
    assert pair(code) == [[[1, 1.0, True, [1.0, 1.0]]]] * 2


def test_uneven_inputs_keep_the_models_counts_equal(pair: Pair) -> None:
    code = """
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        with model.join():
            for _ in range(2 + 2 * rank):
                model(torch.ones(1, 2)).sum().backward()
        collectives = record().collectives
        say(collectives["ddp:world"], collectives["world"])
    """
    first, second = pair(code)
    assert first == second
    assert first[0] == 4
