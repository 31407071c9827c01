/** The examples, and what each prints when all is well. Where order is chance, several patterns. */
export interface Example {
  readonly name: string;
  readonly says: readonly RegExp[];
  readonly args?: readonly string[];
}

/** In order, from the first connection on; each at most 80 lines. */
export const COURSE: readonly Example[] = [
  { name: '01-connect', says: [/the server says: welcome/, /127\.0\.0\.1 asks[^]*disconnected/] },
  { name: '02-send', says: [/received: rdma anywhere/, /received: RDMA ANYWHERE/] },
  { name: '03-write', says: [/written: SUCCESS/, /found in memory: written from afar/] },
  { name: '04-read', says: [/read: to be read/] },
  { name: '05-atomics', says: [/before the last addition: 45/, /counted to 50/] },
  {
    name: '06-cm',
    says: [/ADDR_RESOLVED[^]*ROUTE_RESOLVED/, /received 33 bytes: no memory/, /answered: here/],
  },
  { name: '07-srq', says: [/3 clients, 4 \+ 4 \+ 4 messages/] },
  { name: '08-datagrams', says: [/64 bytes of queue pair \d+: a datagram for any reader/] },
  {
    name: '09-windows',
    says: [/SUCCESS: an open window/, /is shut/, /once more: REM_ACCESS_ERR/],
  },
  { name: '10-layouts', says: [/column 5: 5, 105, 205, 305 …, 0 cells wrong/] },
  { name: '11-shared-domain', says: [/3 processes counted to 150 by one key/] },
  { name: '12-pool', says: [/the last one wrote: write 7/, /8 keys; 8 of 8 regions were our own/] },
  { name: '13-persistent', says: [/1 record, in a file .*: flushed, then killed/] },
  { name: '14-replicated-log', says: [1, 2].map((n) => new RegExp(`${n}: 20, .*record 20`)) },
  { name: '15-reliable-datagrams', says: [/2 clients, 200 messages, each once and in order/] },
  { name: '16-nvme', says: [/2048 blocks of 512 bytes[^]*read back: sector seven/] },
  { name: '17-faults', says: [/262144 bytes written, 0 of them wrong/, /NAK 0x62/] },
];

/** Verbs; from there on what is built on them. Two test files, since each has its time. */
export const FIRST_HALF = 9;

/** Larger programs. */
export const PROGRAMS: readonly Example[] = [
  { name: 'matrix', says: [/128 columns read, 128 written/, /16384 cells, 0 of them wrong/] },
  { name: 'halo', says: [/50 steps: 2048 cells, 0 of them wrong[^]*50 steps: 2048 cells, 0 of/] },
  {
    name: 'all-to-all',
    says: [0, 1, 2, 3].map((rank) => new RegExp(`rank ${rank}: 4000 bytes, 0 of them wrong`)),
  },
  {
    name: 'heaps',
    says: [
      /3 heaps of 4 pieces read by one connection: 0 bytes wrong/,
      /\d+ more pieces are left, then ENOMEM/,
      /one was killed: its 4 pieces were free after \d+ ms/,
      /what another process has: SUCCESS/,
    ],
  },
  {
    name: 'pressure',
    says: [/[1-9]\d* granules changed hands/, /80 reads by one key, 0 of them wrong/],
  },
  {
    name: 'shmem',
    says: [0, 1, 2, 3].map((number) => new RegExp(`process ${number}: 200 sums, 0 of them wrong`)),
  },
  {
    name: 'proxy',
    says: [0, 1].map(
      (number) => new RegExp(`worker ${number}: overlap [1-9]\\d* %, 0 bytes wrong`),
    ),
  },
  {
    name: 'initiators',
    says: [/4 initiators read 32 blocks, 0 of them wrong/, /registered once/],
    args: ['4'],
  },
];
