/** Devices, what they are, and their memory (rdma-core tests/test_device.py). */
import * as assert from 'uvu/assert';
import {
  GidType,
  NodeType,
  PortState,
  getDeviceList,
  nodeTypeStr,
  portStateStr,
  type DeviceAttributes,
  type DeviceMemory,
} from '../../../host/index.js';
import { everywhere, type World } from './world.js';

const PAGE = 4096;

everywhere('dev_list', 'every address of this machine is a device', async () => {
  const devices = getDeviceList();
  assert.ok(devices.some(({ gid }) => gid.toString() === '127.0.0.1'));
  assert.is(new Set(devices.map(({ name }) => name)).size, devices.length);
});

everywhere('open_dev', 'a device opens, from the list as elsewhere', async (world) => {
  const context = await world.open();
  assert.not(context.device.closed);
  const listed = getDeviceList().find(({ gid }) => gid.toString() === '127.0.0.1');
  const other = await listed!.open({ port: 0, memoryBytes: 4 * 2 ** 20 });
  assert.is(other.local.gid.toString(), '127.0.0.1');
  await other.close();
});

function checkAttributes(attributes: DeviceAttributes): void {
  assert.match(attributes.nodeGuid, /^[0-9a-f]{4}(:[0-9a-f]{4}){3}$/);
  assert.match(attributes.sysImageGuid, /[1-9a-f]/);
  assert.ok(attributes.maxMrSize > PAGE && attributes.pageSizeCap >= PAGE);
  const { maxQp, maxQpWr, maxSge, maxCq, maxCqe, maxMr, maxPd, maxPkeys, vendorId } = attributes;
  for (const value of [maxQp, maxQpWr, maxSge, maxCq, maxCqe, maxMr, maxPd, maxPkeys, vendorId]) {
    assert.ok(Number.isInteger(value) && value > 0, `${value}`);
  }
  assert.ok(attributes.maxSgeRd >= 0);
  assert.is(attributes.nodeType, NodeType.CA);
  assert.is(nodeTypeStr(attributes.nodeType), 'channel adapter');
}

everywhere('query_device', 'what a device is and how much it has', async (world) => {
  const context = await world.open({ queuePairsMax: 3, regionsMax: 16 });
  const attributes = context.queryDevice();
  checkAttributes(attributes);
  assert.is(attributes.maxQp, 3);
  // Two devices are not taken for one.
  const other = await world.open();
  if (world.name !== 'udp') assert.is.not(other.queryDevice().nodeGuid, attributes.nodeGuid);
});

everywhere('query_pkey', 'the table of P_Keys: the default one', async (world) => {
  const context = await world.open();
  assert.is(context.queryPkey(1, 0), 0xffff);
  assert.throws(() => context.queryPkey(1, 1), /EINVAL/);
  assert.throws(() => context.queryPkey(2, 0), /EINVAL/);
  const limited = await world.open({ pkey: 0x1234 });
  assert.is(limited.queryPkey(1, 0), 0x1234);
  assert.is(limited.getPkeyIndex(1, 0x1234), 0);
});

everywhere('get_pkey_index', 'a P_Key’s place in the table', async (world) => {
  const context = await world.open();
  assert.is(context.getPkeyIndex(1, context.queryPkey(1, 0)), 0);
  assert.throws(() => context.getPkeyIndex(1, 0x1234), /EINVAL/);
});

everywhere('query_gid', 'the GID is the address', async (world) => {
  const context = await world.open();
  assert.is(context.queryGid().toString(), context.local.gid.toString());
  assert.is(context.queryGid(1, 0).toString(), context.local.gid.toString());
});

everywhere('query_gid_table', 'the table of GIDs', async (world) => {
  const context = await world.open();
  let entries = 0;
  for (let port = 1; port <= context.queryDevice().physPortCnt; port++) {
    entries += context.queryPort(port).gidTblLen;
  }
  const table = context.queryGidTable(entries);
  assert.is(table.length, entries);
  assert.is(table[0]!.gidType, GidType.ROCE_V2);
});

everywhere('query_gid_table_bad_flow', 'a table that does not fit is refused', async (world) => {
  const context = await world.open();
  assert.throws(() => context.queryGidTable(0), /EINVAL/);
});

everywhere('query_gid_ex', 'an entry of the table', async (world) => {
  const context = await world.open();
  const entry = context.queryGidEx(1, 0);
  assert.equal([entry.gidIndex, entry.portNum], [0, 1]);
  assert.is(entry.gid.toString(), context.local.gid.toString());
});

everywhere('query_gid_ex_bad_flow', 'an entry that is not there', async (world) => {
  const context = await world.open();
  const empty = context.queryPort(1).gidTblLen;
  assert.throws(() => context.queryGidEx(1, empty), /ENODATA/);
  assert.throws(() => context.queryGid(1, empty), /ENODATA/);
  assert.throws(() => context.queryGidEx(2, 0), /EINVAL/);
});

everywhere('query_device_ex', 'what more a device is', async (world) => {
  const context = await world.open();
  const extended = context.queryDeviceEx();
  checkAttributes(extended.origAttr);
  assert.equal(extended.origAttr, context.queryDevice());
  assert.ok(extended.maxDmSize > 0);
});

everywhere('phys_port_cnt_ex', 'both counts of ports agree', async (world) => {
  const { origAttr, physPortCntEx } = (await world.open()).queryDeviceEx();
  assert.is(origAttr.physPortCnt, Math.min(physPortCntEx, 255));
});

everywhere('query_port', 'what a port is', async (world) => {
  const context = await world.open();
  const port = context.queryPort(1);
  assert.is(port.state, 'ACTIVE');
  assert.is(portStateStr(PortState[port.state]), 'active');
  assert.ok(port.activeMtu >= 1 && port.activeMtu <= port.maxMtu && port.maxMtu <= 5);
  assert.ok(port.maxMsgSz > 0x1000);
  assert.ok(port.linkLayer.length > 0);
  await context.close();
  assert.is(context.queryPort(1).state, 'DOWN');
});

everywhere('query_port_bad_flow', 'a port that is not there', async (world) => {
  const context = await world.open();
  const { physPortCnt } = context.queryDevice();
  for (const port of [0, physPortCnt + 1, physPortCnt + 10]) {
    assert.throws(() => context.queryPort(port), /queryPort: portNum must be .*EINVAL/);
  }
});

everywhere('query_port_speed', 'a link does not know its speed: 0', async (world) => {
  const context = await world.open();
  assert.is(context.queryPortSpeed(1), 0);
  assert.throws(() => context.queryPortSpeed(2), /EINVAL/);
});

/** Half of what one may have. */
async function deviceMemory(world: World): Promise<DeviceMemory> {
  const context = await world.open();
  const length = Math.floor(context.queryDeviceEx().maxDmSize / 2 / 4) * 4;
  return context.allocDm({ length });
}

everywhere('create_dm', 'device memory is allocated', async (world) => {
  const dm = await deviceMemory(world);
  assert.ok(dm.length > 0);
  assert.ok(dm.memcpyFrom(0, dm.length).every((byte) => byte === 0));
});

everywhere('destroy_dm', 'freed device memory may be had again', async (world) => {
  const dm = await deviceMemory(world);
  for (let count = 0; count < 100; count++) dm.context.allocDm({ length: dm.length }).free();
  dm.free();
});

everywhere('create_dm_bad_flow', 'more device memory than there is', async (world) => {
  const context = await world.open();
  const { maxDmSize } = context.queryDeviceEx();
  assert.throws(() => context.allocDm({ length: maxDmSize + 1 }), /EINVAL/);
  assert.throws(() => context.allocDm({ length: 0 }), /length/);
  assert.throws(() => context.allocDm({ length: 4.5 }), /length/);
  context.allocDm({ length: maxDmSize }).free();
});

everywhere('destroy_dm_bad_flow', 'device memory is freed once', async (world) => {
  const dm = await deviceMemory(world);
  dm.free();
  assert.throws(() => dm.free(), /is freed already/);
  assert.throws(() => dm.memcpyFrom(0, 4), /is freed/);
  dm[Symbol.dispose]();
});

everywhere('dm_write', 'bytes are copied into device memory', async (world) => {
  const dm = await deviceMemory(world);
  dm.memcpyTo(8, new Uint8Array(16).fill(0x61));
  assert.equal([...dm.memcpyFrom(4, 8)], [0, 0, 0, 0, 0x61, 0x61, 0x61, 0x61]);
});

everywhere('dm_write_bad_flow', 'copies keep to multiples of 4, and inside', async (world) => {
  const dm = await deviceMemory(world);
  const data = new Uint8Array(16).fill(0x61);
  for (const offset of [1, 2, 3, dm.length - 12, dm.length, -4, 2 ** 53, NaN]) {
    assert.throws(() => dm.memcpyTo(offset, data), /EINVAL/);
  }
  assert.throws(() => dm.memcpyTo(0, data.subarray(3)), /EINVAL/);
  assert.ok(dm.memcpyFrom(0, dm.length).every((byte) => byte === 0));
});

everywhere('dm_read', 'device memory is read as it was written', async (world) => {
  const dm = await deviceMemory(world);
  const data = Uint8Array.from({ length: dm.length - 64 }, (_, index) => index & 255);
  dm.memcpyTo(64, data);
  const copy = dm.memcpyFrom(64, data.length);
  assert.equal(copy, data);
  copy.fill(0);
  assert.equal(dm.memcpyFrom(64, data.length), data, 'a copy is a copy');
});

everywhere.run();
