"""Ten tests in the manner of torch's test/distributed/test_c10d_gloo.py, on torch's own base class."""

import torch
import torch.distributed as c10d
from torch.testing._internal.common_distributed import MultiProcessTestCase


class ProcessGroupGlooTest(MultiProcessTestCase):
    @property
    def world_size(self):
        return 3

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def opts(self, threads=2):
        opts = c10d.ProcessGroupGloo._Options()
        opts._timeout = c10d.distributed_c10d.timedelta(seconds=50)
        opts._devices = [c10d.ProcessGroupGloo.create_device(interface="lo")]
        opts._threads = threads
        return opts

    def group(self):
        store = c10d.FileStore(self.file_name, self.world_size)
        pg = c10d.ProcessGroupGloo(store, self.rank, self.world_size, self.opts())
        c10d.barrier(group=pg)
        return pg

    def test_broadcast_basics(self):
        pg = self.group()
        for root in range(self.world_size):
            tensor = torch.tensor([float(self.rank)])
            opts = c10d.BroadcastOptions()
            opts.rootRank = root
            pg.broadcast([tensor], opts).wait()
            self.assertEqual(torch.tensor([float(root)]), tensor)

    def test_allreduce_basics(self):
        pg = self.group()
        for op, expected in ((c10d.ReduceOp.SUM, 6.0), (c10d.ReduceOp.PRODUCT, 6.0), (c10d.ReduceOp.MAX, 3.0)):
            tensor = torch.tensor([self.rank + 1.0])
            opts = c10d.AllreduceOptions()
            opts.reduceOp = op
            pg.allreduce([tensor], opts).wait()
            self.assertEqual(torch.tensor([expected]), tensor)

    def test_allreduce_coalesced_basics(self):
        pg = self.group()
        tensors = [torch.full((3,), self.rank + float(i)) for i in range(3)]
        pg.allreduce_coalesced(tensors).wait()
        for i, tensor in enumerate(tensors):
            self.assertEqual(torch.full((3,), 3.0 + 3 * i), tensor)

    def test_sparse_allreduce_basics(self):
        pg = self.group()
        tensor = torch.sparse_coo_tensor([[self.rank]], [1.0], (self.world_size,))
        pg.allreduce([tensor]).wait()
        self.assertEqual(torch.ones(self.world_size), tensor.to_dense())

    def test_reduce_basics(self):
        pg = self.group()
        for root in range(self.world_size):
            tensor = torch.tensor([self.rank + 1.0])
            opts = c10d.ReduceOptions()
            opts.rootRank = root
            pg.reduce([tensor], opts).wait()
            if self.rank == root:
                self.assertEqual(torch.tensor([6.0]), tensor)

    def test_scatter_basics(self):
        pg = self.group()
        tensor = torch.tensor([-1.0])
        opts = c10d.ScatterOptions()
        opts.rootRank = 1
        parts = [[torch.tensor([float(i)]) for i in range(self.world_size)]] if self.rank == 1 else []
        pg.scatter([tensor], parts, opts).wait()
        self.assertEqual(torch.tensor([float(self.rank)]), tensor)

    def test_gather_basics(self):
        pg = self.group()
        opts = c10d.GatherOptions()
        opts.rootRank = 2
        parts = [[torch.tensor([-1.0]) for _ in range(self.world_size)]] if self.rank == 2 else []
        pg.gather(parts, [torch.tensor([float(self.rank)])], opts).wait()
        for i, part in enumerate(parts[0] if parts else []):
            self.assertEqual(torch.tensor([float(i)]), part)

    def test_allgather_basics(self):
        pg = self.group()
        parts = [[torch.tensor([-1.0]) for _ in range(self.world_size)]]
        pg.allgather(parts, [torch.tensor([float(self.rank)])]).wait()
        self.assertEqual([torch.tensor([float(i)]) for i in range(self.world_size)], parts[0])

    def test_send_recv_all_to_all(self):
        pg = self.group()
        others = [i for i in range(self.world_size) if i != self.rank]
        came = {i: torch.tensor([-1.0]) for i in others}
        works = [pg.send([torch.tensor([float(self.rank)])], i, 0) for i in others]
        works += [pg.recv([came[i]], i, 0) for i in others]
        for work in works:
            work.wait()
        for i in others:
            self.assertEqual(torch.tensor([float(i)]), came[i])

    def test_barrier_implies_wait(self):
        pg = self.group()
        tensors = [torch.full((100,), float(i + self.rank)) for i in range(10)]
        for tensor in tensors:
            pg.allreduce([tensor])
        pg.barrier().wait()
        for i, tensor in enumerate(tensors):
            self.assertEqual(torch.full((100,), 3.0 * i + 3), tensor)
