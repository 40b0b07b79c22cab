"""Random shapes with a known right answer: `python -m tests.hangbench draw --seed N --count K`.

A job is drawn first: its topology, its programme, how it waits and reports.  Then it is drawn what
happens to it.  The answer is known by construction: who is told to hang, to end or to deviate as a
minority of a group is at fault, and whoever has no way on but through them waits.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = dict[str, Any]
GITHUB, ARXIV = "https://github.com/", "https://arxiv.org/abs/"
TOPOLOGIES = {
    "data": "data parallel",
    "tensor": "tensor and data parallel",
    "pipeline": "a pipeline",
    "pipelines": "pipelines of several replicas",
    "queue": "trainers and rollouts with a queue between them",
    "sync": "trainers and rollouts with a common group",
    "experts": "expert parallel",
}
FAR = ("tcp", "http", "zmq", "asyncio", "lock_file", "rendezvous")
"""What a queue between nodes may go over."""
NEAR = (*FAR, "pipe", "mp_queue", "unix", "semaphore")
STAGES = ("rollout", "reward", "logprob", "advantage", "train")
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
TORCH_OPS = ("all_reduce", "all_gather")
"""What gloo has, and where nobody gets out before all are in."""
HOWS = {
    "loop": ("compute", "InternLM/InternBootcamp/issues/15"),
    "compute": ("compute", "InternLM/InternBootcamp/issues/15"),
    "allocate": ("compute", "mosaicml/composer/pull/1236"),
    "futex": ("lock", "pytorch/pytorch/pull/182948"),
    "deadlock": ("lock", "pytorch/pytorch/issues/1355"),
    "event": ("lock", "radixark/miles/pull/1763"),
    "sleep": ("compute", "pytorch/torchtitan/pull/1342"),
    "poll": ("compute", "pytorch/torchtitan/pull/1342"),
    "fastpoll": ("compute", "pytorch/torchtitan/pull/1342"),
    "pipe": ("io", "allenai/open-instruct/pull/1454"),
    "connect": ("io", "allenai/open-instruct/pull/1454"),
    "dstate": ("io", "nfs-ganesha/nfs-ganesha/issues/1327"),
    "dead_thread": ("lock", "pytorch/pytorch/issues/21554"),
    "child": ("process", "MasterVito/SvS/issues/3"),
}
"""Kind of each way to hang, and an incident of the class that it is drawn from."""
BUSY = {"loop": 1.0, "compute": 1.0, "allocate": 1.0, "fastpoll": 0.3}
"""Cores that it takes."""
ENDS: dict[str, tuple[Line, str]] = {
    "stop": ({"do": "signal", "name": "STOP"}, ARXIV + "2509.16293"),
    "kill": ({"do": "signal", "name": "KILL"}, GITHUB + "pytorch/pytorch/issues/146371"),
    "segfault": ({"do": "signal", "name": "SEGV"}, GITHUB + "vllm-project/vllm/issues/53157"),
    "exit": ({"do": "exit", "status": 0}, GITHUB + "Bluefog-Lib/bluefog/issues/32"),
    "abrupt": ({"do": "exit", "status": 1, "abrupt": True}, GITHUB + "ai2cm/ace/pull/1068"),
    "raise": ({"do": "raise"}, GITHUB + "NVIDIA-NeMo/Megatron-Bridge/pull/5283"),
}
PATIENT = ("init", "checkpoint", "eval")
"""Stages in which patience is rightly longer than a shape is watched."""
MISMATCHES = {
    "skip": ("leave out a collective", "allenai/allennlp/pull/4693"),
    "op": ("call another collective", "alan-turing-institute/autocast/pull/386"),
    "elements": ("bring another size", "deepspeedai/DeepSpeed/issues/7044"),
    "extra": ("call a barrier that the others do not", "karpathy/nanochat/issues/360"),
}
FAULTS = (
    *("hang",) * 12,
    *ENDS,
    *MISMATCHES,
    *("init", "init", "finish", "node", "node", "mount", "mount", "child"),
    *("lost", "lost", "livelock", "livelock", "end"),
)
TORCH_FAULTS = ("hang", "hang", "hang", "init", "stop", "child", "mount", "livelock", "end")
"""Where a process of gloo dies, its peers die of that, and in a mismatch some of them."""
PAUSES = {
    "eval": ("eval", "meta-llama/llama-cookbook/issues/65"),
    "save": ("checkpoint", "Physical-Intelligence/openpi/issues/624"),
    "compile": ("compile", "karpathy/nanochat/pull/722"),
    "child": ("pause", "mosaicml/llm-foundry/pull/733"),
    "threads": ("pause", "pytorch/pytorch/issues/108971"),
    "batch": ("data", "huggingface/accelerate/issues/314"),
    "read": ("data", "huggingface/transformers/issues/11284"),
}
OTHER_HEALTHY = {
    "loading": ("pause", "huggingface/trl/issues/2923"),
    "suspend": ("suspend", "intelligent-machine-learning/dlrover/pull/1730"),
    "agent": ("service", "NVIDIA/dcgm-exporter/issues/59"),
    "up": ("elastic", "kubeflow/trainer/issues/1509"),
    "down": ("elastic", "pytorch/pytorch/issues/91943"),
    "replaced": ("elastic", "meta-pytorch/torchft/issues/329"),
    "ends": ("end", "wandb/wandb/issues/4441"),
    "last_save": ("end", "ByteDance-Seed/VeOmni/pull/1162"),
    "tail": ("variance", "verl-project/verl/issues/1696"),
    "spread": ("variance", "pytorch/torchtitan/pull/1287"),
}
ELASTIC = ("up", "down", "replaced")
HEALTHY = (*PAUSES, *PAUSES, *OTHER_HEALTHY)


class _Unsuitable(Exception):
    """What is to happen cannot happen to this job, or not with one right answer."""


@dataclass
class Story:
    """What happens to a job, and the right answer."""

    what: str
    kind: str
    source: str
    expect: dict[str, Any] = field(default_factory=dict)


def draw(seed: int) -> str:
    """The text of the file of one shape, the same one for the same seed."""
    rng = random.Random(f"drawn {seed}")
    healthy, torch = rng.random() < 1 / 3, rng.random() < 0.2
    events = TORCH_FAULTS if torch else FAULTS
    if healthy:
        events = tuple(event for event in HEALTHY if not (torch and event in ELASTIC))
    event = rng.choice(events)
    while True:
        job = _Job(rng, event, torch)
        try:
            story = job.healthy() if healthy else job.fault()
        except _Unsuitable:
            continue
        return job.text(seed, healthy, story)


def write(seed: int, count: int, into: Path) -> list[Path]:
    """Write so many shapes, of this seed and of those after it."""
    into.mkdir(parents=True, exist_ok=True)
    files = [into / f"drawn_{one:04}.toml" for one in range(seed, seed + count)]
    for one, file in enumerate(files, seed):
        file.write_text(draw(one))
    return files


def _inline(line: Line) -> str:
    """An entry of a programme, as TOML."""
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in line.items()) + " }"


def _named(ranks: list[int], verb: str) -> str:
    """Who does what."""
    if len(ranks) == 1:
        return f"rank {ranks[0]} {verb}s"
    return f"ranks {', '.join(map(str, ranks))} {verb}"


class _Job:
    """A job without a fault; `step` and its like are entries of the programme."""

    def __init__(self, rng: random.Random, event: str, torch: bool) -> None:
        self.rng, self.event, self.torch = rng, event, torch
        names = ("data", "tensor", "experts") if torch else tuple(TOPOLOGIES)
        self.topology = "data" if event in ELASTIC else rng.choice(names)
        self.barriers = event not in (*MISMATCHES, "finish")
        self.staged = rng.random() < 0.75
        self.groups: dict[str, list[list[int]]] = {}
        self.roles: dict[str, list[int]] = {}
        self.init: list[Line] = []
        self.step: list[Line] = []
        self.final: list[Line] = []
        self.head: dict[str, Any] = {}
        self.watch, self.more_cores, self.pause = 100.0, 0.0, 0.0
        self.seconds = math.exp(rng.triangular(math.log(0.3), math.log(3.0), math.log(0.5)))
        """What a step sleeps, in all."""
        getattr(self, f"_{self.topology}")()
        self.nodes = 2 if event == "node" or rng.random() < 0.4 else 1
        waits = ("block", "block", "poll", "spin" if self.world <= 3 else "poll")
        self.wait = "block" if torch else rng.choice(waits)
        self._finish()

    @property
    def everybody(self) -> list[int]:
        return list(range(self.world))

    def lists(self, line: Line) -> list[list[int]]:
        """The members of each group that meet in a collective."""
        name = line.get("group", "world")
        if name != "world":
            return self.groups[name]
        return list(self.roles.values()) or [self.everybody]

    # Topologies

    def _data(self) -> None:
        self.world = self.rng.randint(2, 4 if self.torch else 12)
        self._mixed(["world"], "world", self.rng.randint(0, 4))

    def _tensor(self) -> None:
        inner, outer = self._grid()
        self.groups["tp"] = [[r * inner + i for i in range(inner)] for r in range(outer)]
        self.groups["dp"] = [[r * inner + i for r in range(outer)] for i in range(inner)]
        self.step.append(self._collective("tp"))
        self._mixed(["tp", "dp", "tp"], "dp", self.rng.randint(0, 3))

    def _experts(self) -> None:
        inner, outer = self._grid()
        self.groups["ep"] = [[r * inner + i for i in range(inner)] for r in range(outer)]
        to_all = self._collective("ep", op="all_to_all")
        self.step += [dict(to_all), self._sleep(), dict(to_all)]
        self._mixed(["ep", "world"], "world", self.rng.randint(0, 2))

    def _pipeline(self) -> None:
        self.world = self.rng.randint(2, 6)
        self._stages(self.world)

    def _pipelines(self) -> None:
        depth, _ = self._grid()
        self.groups["dp"] = [list(range(stage, self.world, depth)) for stage in range(depth)]
        self._stages(depth)
        self.step.append(self._collective("dp"))

    def _stages(self, depth: int) -> None:
        later = [rank for rank in self.everybody if rank % depth]
        earlier = [rank for rank in self.everybody if (rank + 1) % depth]
        self.step += [
            {"do": "recv", "peer": "previous", "ranks": later},
            self._sleep(),
            {"do": "send", "peer": "next", "ranks": earlier},
        ]
        self.in_turn = 1
        if self.rng.random() < 0.6:
            self.in_turn = depth
            self.step += [
                {"do": "recv", "peer": "next", "ranks": earlier},
                self._sleep(),
                {"do": "send", "peer": "previous", "ranks": later},
            ]

    def _queue(self) -> None:
        self._two_roles(queue=True, together=self.rng.random() < 0.5)

    def _sync(self) -> None:
        self._two_roles(queue=False, together=True)

    def _two_roles(self, queue: bool, together: bool) -> None:
        trainers, rollouts = self.rng.randint(1, 6), self.rng.randint(1, 4)
        self.world = trainers + rollouts
        train, roll = self.everybody[:trainers], self.everybody[trainers:]
        self.roles = {"train": train, "rollout": roll}
        self.step.append(self._sleep(ranks=roll, stage="rollout"))
        if rollouts > 1:  # else one that hangs would leave its share to the others
            self.step.append(self._collective("world", ranks=roll, stage="rollout"))
        if queue:
            depth = rollouts * self.rng.randint(1, 2)
            take: Line = {"do": "get", "queue": "samples", "ranks": [0]}
            self.step.append({"do": "put", "queue": "samples", "depth": depth, "ranks": roll})
            self.step += [dict(take) for _ in roll]
        self.step.append(self._sleep(ranks=train, stage="train"))
        if trainers > 1:
            self.step.append(self._collective("world", ranks=train, stage="train"))
        if together:
            self.groups["sync"] = [self.everybody]
            self.step.append(self._collective("sync", stage="weights_update"))

    def _grid(self) -> tuple[int, int]:
        most = 4 if self.torch else 12
        sizes = [(a, b) for a in range(2, 5) for b in range(2, 7) if a * b <= most]
        inner, outer = self.rng.choice(sizes)
        self.world = inner * outer
        return inner, outer

    def _mixed(self, groups: list[str], last: str, count: int) -> None:
        """Work and collectives at random, and one that all must meet in."""
        self.step.append(self._sleep())
        for _ in range(count):
            what = self.rng.choice(("sleep", "compute", "batch", "collective", "async"))
            if what == "compute":
                self.step.append({"do": self.rng.choice(("compute", "loop")), "seconds": 0.02})
            elif what == "batch" and self.world <= 6:
                self.step.append({"do": "batch", "seconds": round(self.rng.uniform(0.05, 0.3), 2)})
            elif what == "collective":
                self.step.append(self._collective(self.rng.choice(groups)))
            elif what == "async":
                later = self._collective(self.rng.choice(groups)) | {"async": True}
                self.step += [later, self._sleep(), {"do": "wait"}]
            else:
                self.step.append(self._sleep())
        self.step.append(self._collective(last))

    def _sleep(self, **more: Any) -> Line:
        spread = self.rng.choice((0, 0, 0.1, 0.2, 0.4))
        return {"do": "sleep", "seconds": 1.0, **({"spread": spread} if spread else {}), **more}

    def _collective(self, group: str, op: str = "", **more: Any) -> Line:
        ops: tuple[str, ...] = TORCH_OPS if self.torch else OPS
        if self.barriers and self.rng.random() < 0.15:
            ops = ("barrier",)
        elements = self.rng.choice((100, 1000, 1000, 4000))
        line = {"do": "collective", "op": op or self.rng.choice(ops), "elements": elements}
        return line | ({} if group == "world" else {"group": group}) | more

    def _finish(self) -> None:
        """Durations, stages, the beginning; how many steps there are before the trigger."""
        rng, in_turn = self.rng, getattr(self, "in_turn", 1)
        sleeps = [line for line in self.step if line["do"] == "sleep"]
        shares = [rng.uniform(0.5, 1.5) for _ in sleeps]
        beat = 0.03 * len(self.step) + 0.05
        for line, share in zip(sleeps, shares, strict=True):
            least = max(0.1, self.seconds * share / sum(shares) / in_turn)
            line["seconds"] = round(least, 2)
            beat += in_turn * least * math.exp(1.3 * line.get("spread", 0))
        beat += sum(line["seconds"] for line in self.step if line["do"] == "batch")
        self._declare()
        if self.event != "end" and rng.random() < 0.25:
            seconds, every = round(rng.uniform(0.5, 2.5), 1), rng.randint(5, 12)
            beat += seconds / every
            stage = {"stage": rng.choice(("checkpoint", "eval"))} if self.staged else {}
            self.step.append({"do": "sleep", "seconds": seconds, "every": every, **stage})
        self.at = min(36, max(4, int(rng.uniform(0.8, 1.0) * 27 / beat)))
        if rng.random() < 0.5:
            self.init.append({"do": "sleep", "seconds": round(rng.uniform(0.3, 2), 1)})
            if self.staged:
                self.init[-1]["stage"] = "init"
        if rng.random() < 0.4 or (self.torch and self.event == "init"):
            self.init.append({"do": "init_group"})

    def _declare(self) -> None:
        """Put the entries into stages, in the order of a step, or into none."""
        if not self.staged:
            for line in self.step:
                line.pop("stage", None)
            if self.topology in ("pipeline", "queue") or self.rng.random() < 0.5:
                self.step.insert(0, {"do": "step_mark"})
            return
        names = [*sorted(self.rng.sample(range(len(STAGES) - 1), self.rng.randint(0, 2))), 4]
        places = sorted(self.rng.choice(names) for _ in self.step)
        for line, place in zip(self.step, places, strict=True):
            if not self.roles and self.rng.random() < 0.9:
                line["stage"] = STAGES[place if "pipeline" not in self.topology else 4]

    # What happens

    def fault(self) -> Story:
        """Put the fault in."""
        if self.event in MISMATCHES:
            return self._mismatch()
        if self.event in ("hang", *ENDS):
            ranks = self._whom()
            return self._happens(ranks, *self._act(self.event, ranks))
        story: Story = getattr(self, f"_fault_{self.event}")()
        return story

    def _fault_init(self) -> Story:
        deeds = ("hang", "hang", "stop") if self.torch else ("hang", "hang", "stop", "kill")
        ranks = self._whom()
        line, _, _, what = self._act(self.rng.choice(deeds), ranks)
        meets = [number for number, one in enumerate(self.init) if one["do"] == "init_group"]
        stage = {"stage": "init"} if self.staged else {}
        place = self.rng.randint(0, min([*meets, len(self.init)]))
        self.init.insert(place, line | {"ranks": ranks} | stage | {"trigger": True})
        source = GITHUB + "pytorch/pytorch/issues/15638"
        return Story(f"{what} in init", "init", source, {"culprits": ranks, "page": "may"})

    def _fault_end(self) -> Story:
        if self.roles and "sync" not in self.groups:
            raise _Unsuitable  # the other role would be gone already
        ranks = self._whom()
        line, _, _, what = self._act(self.rng.choice(("hang", "hang", "stop")), ranks)
        self.head["steps"] = self.at
        stage = {"stage": "checkpoint"} if self.staged and self.rng.random() < 0.5 else {}
        group = {"group": "sync"} if self.roles else {}
        meet = {"do": "collective", "op": "barrier"} | group | stage
        self.final = [line | {"ranks": ranks} | stage | {"trigger": True}, meet]
        source = GITHUB + "radixark/miles/pull/1763"
        return Story(f"{what} at the end", "end", source, {"culprits": ranks, "page": "may"})

    def _fault_finish(self) -> Story:
        ranks = self._whom()
        if min(len(lists) for lists in self.roles.values() or [self.everybody]) < 3:
            raise _Unsuitable  # one against one, or one alone
        self.final = [{"do": "collective", "op": "barrier"}]
        source = GITHUB + "pytorch/pytorch/issues/141069"
        what = f"{_named(ranks, 'leave')} the loop before the others"
        return self._happens(ranks, {"do": "finish"}, "collective", source, what)

    def _fault_child(self) -> Story:
        ranks = self._whom()
        line = {"do": "child", "seconds": 86400, "how": "sleep"}
        source = GITHUB + "MasterVito/SvS/issues/3"
        what = f"{_named(ranks, 'wait')} for a child that does not end"
        return self._happens(ranks, line, "process", source, what)

    def _fault_mount(self) -> Story:
        ranks = self._whom(alone=1.0)
        line = {"do": "io", "on": "fuse", "mode": "write", "fault": "hang"}
        source = GITHUB + "PrimeIntellect-ai/prime-rl/pull/2142"
        return self._happens(
            ranks, line, "io", source, f"{_named(ranks, 'write')} to a mount that hangs"
        )

    def _fault_livelock(self) -> Story:
        ranks = self._whom(alone=1.0)
        marks = self.rng.choice(("heartbeat", "stage", "none"))
        line = {"do": "livelock", "period": self.rng.choice((0.2, 0.5, 1.0)), "marks": marks}
        source = GITHUB + "vllm-project/vllm-ascend/issues/16315"
        what = f"{_named(ranks, 'repeat')} an attempt for ever ({marks})"
        return self._happens(ranks, line, "livelock", source, what, stage=marks != "stage")

    def _fault_node(self) -> Story:
        node = self.rng.randrange(2)
        ranks = [rank for rank in self.everybody if rank * 2 // self.world == node]
        line = {"do": "kill_node", "node": node, "ranks": [0], "at": self.at, "trigger": True}
        self.step.insert(self._place(), line)
        expect = {"culprits": "node", "node": node, "accept": [ranks]} | self._page("")
        return Story(f"node {node} is gone", "node", ARXIV + "2407.21783", expect)

    def _fault_lost(self) -> Story:
        groups = list(self.groups) if self.roles else ["world", *self.groups]
        if not groups:
            raise _Unsuitable  # no group has everybody in a list
        line = self._collective(self.rng.choice(groups)) | {"lost": True}
        coupled = self.topology not in ("data", "tensor", "experts")
        place = 0 if coupled else self._place()  # where all come to, though none gets further
        stage = self._stage_at(place, special=False)
        self.step.insert(place, line | {"at": self.at} | stage | {"trigger": True})
        expect = {"culprits": "nobody"} | self._page("")
        return Story("the network loses a collective", "collective", ARXIV + "2406.04594", expect)

    def _mismatch(self) -> Story:
        """A minority of a group of three or more is elsewhere, or does otherwise, than the rest."""
        rng = self.rng
        spots = [
            (number, members)
            for number, line in enumerate(self.step)
            if line["do"] == "collective" and "async" not in line
            for members in self.lists(line)
            if len(members) >= 3 and set(members) <= set(line.get("ranks", self.everybody))
        ]
        if not spots:
            raise _Unsuitable
        place, members = rng.choice(spots)
        line = self.step[place]
        most = (len(members) - 1) // 2 if rng.random() < 0.4 else 1
        ranks = sorted(rng.sample(members, rng.randint(1, most)))
        other = {"op": rng.choice([op for op in (*OPS, "barrier") if op != line["op"]])}
        now = {"ranks": ranks, "at": self.at, "trigger": True}
        if self.event == "skip":
            self.step[place : place + 1] = [{"do": "skip"} | now, line, line | other]
        elif self.event == "extra":
            barrier = line | {"op": "barrier", "elements": 1000}
            self.step.insert(place, barrier | now)
        else:
            if self.event == "elements":
                other = {"elements": line["elements"] + rng.choice((1, 500))}
            others = [one for one in line.get("ranks", self.everybody) if one not in ranks]
            self.step[place : place + 1] = [
                line | {"ranks": others},
                line | {"ranks": ranks, "until": self.at - 1},
                line | other | {"ranks": ranks, "from": self.at, "trigger": True},
            ]
        what, source = MISMATCHES[self.event]
        expect = {"culprits": ranks} | self._page(line.get("stage", ""))
        verb, what = what.split(" ", 1)
        what = f"{_named(ranks, verb)} {what}"
        return Story(what, "collective", GITHUB + source, expect)

    def healthy(self) -> Story:
        """Put the oddity in."""
        if self.event in PAUSES:
            return self._pauses()
        what: str = getattr(self, f"_healthy_{self.event}")()
        kind, source = OTHER_HEALTHY[self.event]
        self.watch = max(60.0, self.pause + 40)
        return Story(what, kind, GITHUB + source)

    def _pauses(self) -> Story:
        rng, event = self.rng, self.event
        own = {"eval": "eval", "save": "checkpoint"}.get(event)
        place = self._place()
        stage = self._stage_at(place, special=False)
        if own and self.staged:
            stage = {"stage": own}
        ranks = self._some() if event in ("eval", "save", "child", "compile") else self._one()
        announced = rng.random() < 0.3
        seconds = round(rng.uniform(12, 55 if stage or announced else 40))
        line: Line = {"do": "sleep", "seconds": seconds}
        if event in ("child", "compile"):
            busy = event == "compile" and len(ranks) == 1
            line = {"do": "child", "seconds": seconds, "how": "compute" if busy else "sleep"}
            self.more_cores = float(busy)
        elif event == "threads":
            line["do"], self.more_cores = "threads", 1.0
        elif event == "batch":
            line["do"] = "batch"
        elif event == "read" or (event == "save" and len(ranks) == 1):
            line |= {"do": "io", "mode": "write" if event == "save" else "read"}
        now = {"ranks": ranks, "at": self.at}
        self.step.insert(place, line | now | stage | {"trigger": True})
        if announced:
            self.step.insert(place, {"do": "expect", "seconds": seconds + 15} | now)
        kind, source = PAUSES[event]
        self.watch = seconds + 40.0
        said = ", as announced" if announced else ""
        what = f"{_named(ranks, 'pause')} for {seconds} s ({event}){said}"
        return Story(what, kind, GITHUB + source)

    def _healthy_loading(self) -> str:
        ranks = self._some()
        self.pause = round(self.rng.uniform(12, 55 if self.staged else 40))
        stage = {"stage": "init"} if self.staged else {}
        line = {"do": "sleep", "seconds": self.pause, "ranks": ranks} | stage
        self.init.insert(0, line | {"trigger": True})
        return f"{_named(ranks, 'load')} for {self.pause} s"

    def _healthy_suspend(self) -> str:
        self.pause = round(self.rng.uniform(12, 45))
        ranks = self.rng.choice((self.everybody, self._some()))
        self._odd({"do": "suspend", "seconds": self.pause, "whom": ranks, "ranks": [0]})
        return f"{_named(ranks, 'sleep')} for {self.pause} s, suspended"

    def _healthy_agent(self) -> str:
        down = self.rng.randint(5, 25)
        node = self.rng.randrange(self.nodes)
        self.pause = float(down)
        self._odd({"do": "restart_agent", "node": node, "down": down, "ranks": [0]})
        return f"the agent of node {node} is away for {down} s"

    def _healthy_up(self) -> str:
        return self._reform(self.world + self.rng.randint(1, 3))

    def _healthy_down(self) -> str:
        if self.world < 3:
            raise _Unsuitable
        return self._reform(self.rng.randint(max(2, self.world - 3), self.world - 1))

    def _reform(self, world: int) -> str:
        more = {"on_node": 1} if world > self.world and self.nodes == 2 else {}
        self._odd({"do": "reform", "world": world, **more}, place=0)
        return f"the world goes from {self.world} to {world}"

    def _healthy_replaced(self) -> str:
        rank = self.rng.randrange(self.world)
        if self.rng.random() < 0.5:
            self._odd({"do": "reform", "world": self.world, "fresh": [rank]}, place=0)
            return f"rank {rank} is replaced"
        kill: Line = {"do": "signal", "name": "KILL", "ranks": [rank]}
        wait: Line = {"do": "sleep", "seconds": self.rng.randint(3, 9), "at": self.at}
        form: Line = {"do": "reform", "world": self.world, "gone": [rank], "at": self.at}
        if self.rng.random() < 0.5:
            form["rejoin"] = False
        self.step[0:0] = [kill | {"at": self.at, "trigger": True}, wait, form]
        return f"rank {rank} is killed and replaced"

    def _healthy_ends(self) -> str:
        self.head["steps"] = self.at
        seconds = round(self.rng.uniform(0.5, 4), 1)
        line: Line = {"do": "sleep", "seconds": seconds, "spread": 0.3, "trigger": True}
        self.final = [line, *self._barrier()]
        return "it ends properly"

    def _healthy_last_save(self) -> str:
        self.head["steps"] = self.at
        self.pause = round(self.rng.uniform(12, 50 if self.staged else 40))
        stage = {"stage": "checkpoint"} if self.staged else {}
        line: Line = {"do": self.rng.choice(("io", "sleep")), "seconds": self.pause, "ranks": [0]}
        self.final = [line | stage | {"trigger": True}, *self._barrier()]
        return f"rank 0 saves for {self.pause} s at the end"

    def _healthy_tail(self) -> str:
        seconds, chance = self.rng.randint(5, 14), round(0.3 / self.world, 3)
        line = {"do": "sleep", "seconds": seconds, "spread": 0.3, "chance": chance}
        place = self._place()
        line |= {"from": self.at} | self._stage_at(place, special=False)
        self.step.insert(place, line | {"trigger": True})
        self.pause = 50.0
        return f"now and then a rank takes {seconds} s more"

    def _healthy_spread(self) -> str:
        spread, hold = self.rng.choice((0.5, 0.7, 0.9)), self.rng.randint(1, 4)
        place = self._place()
        line = {"do": "sleep", "seconds": 0.5, "spread": spread, "hold": hold, "from": self.at}
        self.step.insert(place, line | self._stage_at(place, special=False) | {"trigger": True})
        self.pause = 50.0
        return "the ranks begin to differ"

    # Helpers of these

    def _place(self) -> int:
        return self.rng.randint(0, len(self.step))

    def _stage_at(self, place: int, special: bool = True) -> Line:
        """The stage there, or one of its own."""
        if self.staged and special and self.rng.random() < 0.15:
            return {"stage": self.rng.choice(("checkpoint", "eval"))}
        near = self.step[min(place, len(self.step) - 1)].get("stage") if self.staged else None
        return {"stage": near} if near else {}

    def _page(self, stage: str) -> Line:
        marks = self.staged or any(line["do"] == "step_mark" for line in self.step)
        return {"page": "may"} if stage in PATIENT or self.at <= 11 or not marks else {}

    def _whom(self, alone: float = 0.75) -> list[int]:
        """One rank, or a few of a role: less than half."""
        ranks = self.rng.choice(list(self.roles.values()) or [self.everybody])
        most = min(3, (len(ranks) - 1) // 2)
        if most < 2 or self.rng.random() < alone:
            return [self.rng.choice(ranks)]
        return sorted(self.rng.sample(ranks, self.rng.randint(2, most)))

    def _one(self) -> list[int]:
        return [self.rng.randrange(self.world)]

    def _some(self) -> list[int]:
        """One, all, all of a role, or those of a node."""
        node = [rank for rank in self.everybody if rank * 2 // self.world == 1]
        halves = [node] if self.nodes == 2 else []
        return self.rng.choice([self._one(), self.everybody, *self.roles.values(), *halves])

    def _act(self, event: str, ranks: list[int]) -> tuple[Line, str, str, str]:
        """What they do, its kind and source, and how to say it."""
        if event in ENDS:
            line, source = ENDS[event]
            verb = "stop" if event == "stop" else "end"
            return line, "process", source, f"{_named(ranks, verb)} ({event})"
        how = self.rng.choice([one for one in HOWS if len(ranks) == 1 or one not in BUSY])
        self.more_cores = BUSY.get(how, 0.0)
        kind, source = HOWS[how]
        return {"do": "hang", "how": how}, kind, GITHUB + source, f"{_named(ranks, 'hang')} ({how})"

    def _happens(
        self, ranks: list[int], line: Line, kind: str, source: str, what: str, stage: bool = True
    ) -> Story:
        """At the beginning of a step where several are to reach it, else anywhere in it."""
        place = self._place() if len(ranks) == 1 else 0
        where = self._stage_at(place) if stage else {}
        self.step.insert(place, line | {"ranks": ranks, "at": self.at} | where | {"trigger": True})
        expect = {"culprits": ranks} | self._page(where.get("stage", ""))
        return Story(what, kind, source, expect)

    def _odd(self, line: Line, place: int | None = None) -> None:
        where = self._place() if place is None else place
        self.step.insert(where, line | {"at": self.at, "trigger": True})

    def _barrier(self) -> list[Line]:
        return [{"do": "collective", "op": "barrier"}] if self.rng.random() < 0.6 else []

    def text(self, seed: int, healthy: bool, story: Story) -> str:
        """The file."""
        rng = self.rng
        title = f"Drawn: {story.what}"
        head: dict[str, Any] = {"title": title, "source": story.source}
        head["taken"] = (
            f"Only the class of the incident; drawn at random: {TOPOLOGIES[self.topology]}, "
            f"{self.world} ranks, {story.what}."
        )
        head |= {"kind": story.kind, "seed": seed, "world": self.world, "nodes": self.nodes}
        head |= {"healthy": True} if healthy else {}
        head |= {"backend": "torch"} if self.torch else {"wait": self.wait}
        if not self.torch:
            head["report"] = rng.choice(("with", "call"))
            if self.event in ("op", "elements", "extra") and head["report"] == "call":
                head["blind_spot"] = "The calls tell neither operations nor sizes."
            if self.event == "init" and not self.staged:
                head["blind_spot"] = "Nobody has told anything yet."
        if self.event == "init" and self.more_cores:
            head["blind_spot"] = "To keep a core busy is what a beginning does, for half an hour."
        if self.topology == "queue":
            ways = NEAR if self.nodes == 1 else FAR
            head["via"] = random.Random(f"via {seed}").choice(ways)
        head |= {"jitter": rng.choice((0.05, 0.1, 0.2)), "watch": round(self.watch)} | self.head
        if self.more_cores:
            each = 0.2 if self.torch else 0.3 if self.wait == "spin" else 0.05
            head["cores"] = round(each * self.world + self.more_cores, 2)
        lines = [f"{key} = {json.dumps(value)}" for key, value in head.items()]
        for name in ("init", "step", "final"):
            if entries := getattr(self, name):
                lines += [f"{name} = [", *(f"    {_inline(entry)}," for entry in entries), "]"]
        if self.groups:
            lines.append("\n[groups]")
            lines += [f"{name} = {json.dumps(lists)}" for name, lists in self.groups.items()]
        for name, ranks in self.roles.items():
            lines += ["\n[[role]]", f'name = "{name}"', f"ranks = {json.dumps(ranks)}"]
        if story.expect:
            lines.append("\n[expect]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in story.expect.items()]
        return "\n".join(lines) + "\n"
