"""A training script that knows nothing of stagewatch: rank 2 hangs in its reward function."""

import sys
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def length_reward(output: torch.Tensor, step: int) -> torch.Tensor:
    """Rank 2 waits for ever for something that no collective shows."""
    if dist.get_rank() == 2 and step == 8:
        threading.Event().wait()
    return output.sum()


def main(checkpoint: str) -> None:
    """Train until killed."""
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.utils.data.DataLoader([torch.ones(8)] * 64, batch_size=2)
    for step, batch in enumerate(data):
        loss = -length_reward(model(batch), step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 4 and dist.get_rank() == 0:
            torch.save(model.state_dict(), checkpoint)


if __name__ == "__main__":
    main(sys.argv[1])
