"""pyverbs: a WRITE from a queue pair to another one of the same process."""

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.enums import (
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_QPT_RC, IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS, IBV_WR_RDMA_WRITE,
)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

name = get_device_list()[0].name.decode()
context = Context(name=name)
pd = PD(context)
cq = CQ(context, 16)
access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
source, target = MR(pd, 4096, access), MR(pd, 4096, access)
source.write("bridge", 6)
capabilities = QPCap(max_send_wr=4, max_recv_wr=4)


def attributes(other):
    gid = context.query_gid(1, 0)
    route = AHAttr(gr=GlobalRoute(dgid=gid, sgid_index=0), is_global=1, port_num=1)
    attr = QPAttr(port_num=1)
    attr.dest_qp_num = other.qp_num
    attr.path_mtu = 3
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.min_rnr_timer = 12
    attr.retry_cnt = attr.rnr_retry = 7
    attr.timeout = 14
    attr.qp_access_flags = access
    attr.ah_attr = route
    return attr


pair = [QP(pd, QPInitAttr(IBV_QPT_RC, capabilities, scq=cq, rcq=cq)) for _ in range(2)]
pair[0].to_rts(attributes(pair[1]))
pair[1].to_rts(attributes(pair[0]))
request = SendWR(1, opcode=IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(source.buf, 6, source.lkey)],
                 send_flags=IBV_SEND_SIGNALED)
request.set_wr_rdma(target.rkey, target.buf)
pair[0].post_send(request)
count, completions = 0, []
while count == 0:
    count, completions = cq.poll()
assert completions[0].status == IBV_WC_SUCCESS, completions[0]
print(name, target.read(6, 0).decode())
