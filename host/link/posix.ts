/**
 * System calls that Node does not have, by way of koffi or node:ffi (`native-calls.ts`). Linux only;
 * numbers are those of its headers, the same on every little-endian architecture that these two
 * support. A call is a method that throws `PosixError`, as fs does.
 */
import { endianness } from 'node:os';
import type { Gid } from './endpoint.js';
import { loadNativeCalls, type NativeCalls } from './native-calls.js';

export const AF_INET = 2;
export const AF_INET6 = 10;
const AF_PACKET = 17;
const SOCK_DGRAM = 2;
const SOCK_RAW = 3;
/** Every protocol of a network interface, as the network orders its bytes. */
const ETH_P_ALL = Uint8Array.of(0, 3);
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;

export const SOL_IP = 0;
export const SOL_SOCKET = 1;
export const SOL_UDP = 17;
export const SOL_PACKET = 263;
/** Each frame begins with a virtio_net_hdr, which has the length of segments. */
export const PACKET_VNET_HDR = 15;
const PACKET_STATISTICS = 6;
/** struct timespec: when the last frame of a socket arrived. */
const SIOCGSTAMPNS = 0x8907;
export const SOL_IPV6 = 41;

export const SO_REUSEADDR = 2;
/** Several sockets of one user share a port, each getting a part of what arrives. */
export const SO_REUSEPORT = 15;
/** A classic BPF program says which of them gets a packet. */
export const SO_ATTACH_REUSEPORT_CBPF = 51;
export const SO_ATTACH_FILTER = 26;
export const SO_DETACH_FILTER = 27;
export const SO_SNDBUF = 7;
export const SO_RCVBUF = 8;
/** Of a socket of AF_UNIX: `struct ucred`. */
const SO_PEERCRED = 17;
const SO_MEMINFO = 55;
/** `SK_MEMINFO_VARS`, `SK_MEMINFO_DROPS` (linux/sock_diag.h). */
const MEMINFO_WORDS = 9;
const MEMINFO_DROPS = 8;
const UCRED_WORDS = 3;
export const SO_SNDBUFFORCE = 32;
export const SO_RCVBUFFORCE = 33;
/** Linux 5.0; without privileges since 5.7. */
export const SO_BINDTOIFINDEX = 62;
export const IP_MTU_DISCOVER = 10;
export const IPV6_MTU_DISCOVER = 23;
/** Value of both options: sets "do not fragment" and ignores path MTUs that ICMP reports. */
export const PMTUDISC_PROBE = 3;
/** Accept packets over IPv6 that have no UDP checksum. */
export const UDP_NO_CHECK6_RX = 102;
/** One message leaves as datagrams of this many bytes; also the control message that says so. */
export const UDP_SEGMENT = 103;
/** Datagrams of one sender arrive as one message; also the control message with their length. */
export const UDP_GRO = 104;
/** Arriving packets bring their type of service, in a control message IP_TOS, one byte. */
export const IP_RECVTOS = 13;
export const IP_TOS = 1;
/** The same of IPv6: IPV6_TCLASS, four bytes. */
export const IPV6_RECVTCLASS = 66;
export const IPV6_TCLASS = 67;
export const IP_MULTICAST_TTL = 33;
export const IP_ADD_MEMBERSHIP = 35;
export const IP_DROP_MEMBERSHIP = 36;
/** 1, the default: also datagrams to groups that other sockets of the machine have joined. */
export const IP_MULTICAST_ALL = 49;
export const IPV6_MULTICAST_IF = 17;
export const IPV6_MULTICAST_HOPS = 18;
export const IPV6_ADD_MEMBERSHIP = 20;
export const IPV6_DROP_MEMBERSHIP = 21;
export const IPV6_MULTICAST_ALL = 29;
export const POLLIN = 0x001;
export const POLLOUT = 0x004;
const POLLHUP = 0x010;

const PR_SET_PDEATHSIG = 1;
/** Of x86-64. */
const SYS_FUTEX_X64 = 202;
const FUTEX_WAKE = 1;
const INT_MAX = 2 ** 31 - 1;
const SIGKILL = 9;
const MSG_DONTWAIT = 0x40;
const MSG_CMSG_CLOEXEC = 0x40000000;
const EFD_NONBLOCK = 0o4000;
const EFD_CLOEXEC = 0o2000000;
const EPOLL_CLOEXEC = 0o2000000;
const EPOLL_CTL_ADD = 1;
const EPOLL_CTL_DEL = 2;
/** struct epoll_event, of which only the events are used: its first word on every architecture. */
const EPOLL_EVENT_BYTES = 16;

const PROT_READ = 1;
const PROT_READ_WRITE = 3;
const MADV_HUGEPAGE = 14;
const MADV_COLLAPSE = 25;
const MAP_SHARED = 0x01;
const MAP_PRIVATE = 0x02;
const MAP_FIXED = 0x10;
const MAP_ANONYMOUS = 0x20;
const MAP_NORESERVE = 0x4000;
const FALLOC_FL_KEEP_SIZE = 1;
const FALLOC_FL_PUNCH_HOLE = 2;
const MS_SYNC = 4;
const POSIX_FADV_DONTNEED = 4;
const SC_PAGESIZE = 30;
/** Locks of an open file description: they end with it, so with its process. */
const F_OFD_GETLK = 36;
const F_OFD_SETLK = 37;
const F_WRLCK = 1;
const F_UNLCK = 2;
const FLOCK_BYTES = 32;

const INT_BYTES = 4;
const SOCKADDR_IN_BYTES = 16;
const SOCKADDR_IN6_BYTES = 28;
const SOCKADDR_LL_BYTES = 20;

/** A message with one descriptor, as 64-bit Linux lays it out: msghdr, iovec, cmsghdr, a byte. */
const PASSING = { header: 0, iovec: 56, control: 72, byte: 96, bytes: 104 } as const;
const SCM_RIGHTS = 1;
/** CMSG_LEN and CMSG_SPACE of a descriptor. */
const CONTROL_LENGTH = 20;
const CONTROL_SPACE = 24;

/** A system call said no. `code` is the errno's name. */
export class PosixError extends Error {
  override readonly name = 'PosixError';

  constructor(
    readonly syscall: string,
    readonly code: string,
  ) {
    super(`${syscall} ${code}`);
  }
}

/** The value that a wake-up writes to an eventfd: a 64-bit 1. */
const EVENT = Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0);

export class Posix {
  readonly #native: NativeCalls;
  readonly #socket: (family: number, type: number, protocol: number) => number;
  readonly #bind: (fd: number, address: Uint8Array, length: number) => number;
  readonly #close: (fd: number) => number;
  readonly #dup3: (from: number, to: number, flags: number) => number;
  readonly #getsockname: (fd: number, address: Uint8Array, length: Uint8Array) => number;
  readonly #setsockopt: (
    fd: number,
    level: number,
    option: number,
    value: Uint8Array,
    length: number,
  ) => number;
  readonly #getsockopt: (
    fd: number,
    level: number,
    option: number,
    value: Uint8Array,
    length: Uint8Array,
  ) => number;
  readonly #ifNametoindex: (name: string) => number;
  // Pointers as numbers: user space ends far below 2^53, and a BigInt would be made per call.
  readonly #sendmmsg: (fd: number, headers: number, count: number, flags: number) => number;
  readonly #sendmsg: (fd: number, header: number, flags: number) => number;
  readonly #recvmsg: (fd: number, header: number, flags: number) => number;
  /** Is one message cheaper by sendmsg and recvmsg, which have fewer arguments? */
  readonly prefersSingle: boolean;
  readonly #recvmmsg: (
    fd: number,
    headers: number,
    count: number,
    flags: number,
    timeout: number,
  ) => number;
  readonly #ppoll: (fds: number, count: number, timeout: number, mask: number) => number;
  readonly #eventfd: (value: number, flags: number) => number;
  readonly #epollCreate: (flags: number) => number;
  readonly #epollControl: (set: number, what: number, fd: number, event: Uint8Array) => number;
  readonly #read: (fd: number, bytes: Uint8Array, length: number) => number;
  readonly #write: (fd: number, bytes: Uint8Array, length: number) => number;
  readonly #sendBytesTo: (
    fd: number,
    bytes: Uint8Array,
    length: number,
    flags: number,
    address: Uint8Array,
    addressLength: number,
  ) => number;
  readonly #receiveFrom: (
    fd: number,
    bytes: Uint8Array,
    length: number,
    flags: number,
    address: Uint8Array,
    addressLength: Uint8Array,
  ) => number;
  readonly #ioctl: (fd: number, request: number, argument: Uint8Array) => number;
  readonly #madvise: (address: number, length: number, advice: number) => number;
  readonly #mmap: (
    address: number,
    length: number,
    protection: number,
    flags: number,
    fd: number,
    offset: number,
  ) => number;
  readonly #munmap: (address: number, length: number) => number;
  readonly #msync: (address: number, length: number, flags: number) => number;
  readonly #mincore: (address: number, length: number, pages: Uint8Array) => number;
  readonly #fadvise: (fd: number, offset: number, length: number, advice: number) => number;
  readonly #fallocate: (fd: number, offset: number, length: number) => number;
  readonly #punchHole: (fd: number, mode: number, offset: number, length: number) => number;
  readonly #fcntl: (fd: number, command: number, argument: Uint8Array) => number;
  readonly #geteuid: () => number;
  readonly #prctl: (...words: number[]) => number;
  readonly #sysconf: (name: number) => number;
  readonly #schedYield: () => number;
  readonly #memmove: (target: Uint8Array, source: Uint8Array, length: number) => number;
  readonly #syscall: (...words: number[]) => number;
  readonly #names: ReadonlyMap<number, string>;
  /** Where what was signalled is read to. */
  readonly #event = new Uint8Array(EVENT.length);

  constructor(libc: NativeCalls) {
    this.#native = libc;
    this.#socket = libc.func('int socket(int, int, int)');
    this.#bind = libc.func('int bind(int, const void *, uint32_t)');
    this.#close = libc.func('int close(int)');
    this.#dup3 = libc.func('int dup3(int, int, int)');
    this.#getsockname = libc.func('int getsockname(int, void *, void *)');
    this.#setsockopt = libc.func('int setsockopt(int, int, int, const void *, uint32_t)');
    this.#getsockopt = libc.func('int getsockopt(int, int, int, void *, void *)');
    this.#ifNametoindex = libc.func('uint32_t if_nametoindex(const char *)');
    this.#sendmmsg = libc.func('int sendmmsg(int, uint64_t, uint32_t, int)');
    this.#sendmsg = libc.func('int sendmsg(int, uint64_t, int)');
    this.#recvmsg = libc.func('int recvmsg(int, uint64_t, int)');
    this.prefersSingle = libc.name === 'node:ffi';
    this.#recvmmsg = libc.func('int recvmmsg(int, uint64_t, uint32_t, int, uint64_t)');
    this.#ppoll = libc.func('int ppoll(uint64_t, uint64_t, uint64_t, uint64_t)');
    this.#eventfd = libc.func('int eventfd(uint32_t, int)');
    this.#epollCreate = libc.func('int epoll_create1(int)');
    this.#epollControl = libc.func('int epoll_ctl(int, int, int, void *)');
    this.#read = libc.func('int64_t read(int, void *, uint64_t)');
    this.#write = libc.func('int64_t write(int, const void *, uint64_t)');
    this.#sendBytesTo = libc.func(
      'int64_t sendto(int, const void *, uint64_t, int, const void *, uint32_t)',
    );
    this.#receiveFrom = libc.func('int64_t recvfrom(int, void *, uint64_t, int, void *, void *)');
    this.#ioctl = libc.func('int ioctl(int, uint64_t, void *)');
    this.#madvise = libc.func('int madvise(uint64_t, uint64_t, int)');
    this.#mmap = libc.func('int64_t mmap(uint64_t, uint64_t, int, int, int, int64_t)');
    this.#munmap = libc.func('int munmap(uint64_t, uint64_t)');
    this.#msync = libc.func('int msync(uint64_t, uint64_t, int)');
    this.#mincore = libc.func('int mincore(uint64_t, uint64_t, void *)');
    this.#fadvise = libc.func('int posix_fadvise(int, int64_t, int64_t, int)');
    this.#fallocate = libc.func('int posix_fallocate(int, int64_t, int64_t)');
    this.#punchHole = libc.func('int fallocate(int, int, int64_t, int64_t)');
    this.#fcntl = libc.func('int fcntl(int, int, void *)');
    this.#geteuid = libc.func('uint32_t geteuid()');
    this.#sysconf = libc.func('int64_t sysconf(int)');
    this.#schedYield = libc.func('int sched_yield()');
    this.#memmove = libc.func('int64_t memmove(void *, const void *, uint64_t)');
    const words = Array.from({ length: 6 }, () => 'uint64_t').join(', ');
    this.#syscall = libc.func(`int64_t syscall(int64_t, ${words})`);
    this.#prctl = libc.func('int prctl(int, uint64_t, uint64_t, uint64_t, uint64_t)');
    // EOPNOTSUPP is what the manual pages of sockets call it; Linux has one number for both.
    const names = Object.entries(libc.errnos)
      .filter(([name]) => name !== 'ENOTSUP')
      .map(([name, errno]) => [errno, name] as const);
    // The first name of a number, EAGAIN before EWOULDBLOCK.
    this.#names = new Map(names.reverse());
  }

  /** A datagram socket that does not block: UDP if `family` is AF_INET or AF_INET6. */
  datagramSocket(family: number, protocol = 0): number {
    const type = SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    return this.#checked('socket', this.#socket(family, type, protocol));
  }

  /**
   * A socket that receives the frames of an interface, or of all ('') with their link headers. Needs
   * CAP_NET_RAW. Does not block. PosixError ENODEV: no such interface.
   */
  packetSocket(name: string): number {
    const index = name === '' ? 0 : this.#ifNametoindex(name);
    if (name !== '' && index === 0) throw new PosixError('if_nametoindex', 'ENODEV');
    // Without a protocol it receives nothing before it is bound, and has its options.
    const type = SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC;
    return this.#checked('socket', this.#socket(AF_PACKET, type, 0));
  }

  /** Begins to receive: the interface as in `packetSocket`. */
  bindPacketSocket(fd: number, name: string): void {
    const address = new Uint8Array(SOCKADDR_LL_BYTES);
    address.set(bytesOf(Uint16Array.of(AF_PACKET)));
    address.set(ETH_P_ALL, 2);
    address.set(bytesOf(Int32Array.of(name === '' ? 0 : this.#ifNametoindex(name))), 4);
    this.#checked('bind', this.#bind(fd, address, address.length));
  }

  /** Reads a frame or a datagram and its sender: how many bytes, or the negated errno. */
  receiveFrom(fd: number, bytes: Uint8Array, address: Uint8Array): number {
    const length = bytesOf(Int32Array.of(address.length));
    const { length: room } = bytes;
    return this.#countOrErrno(this.#receiveFrom(fd, bytes, room, MSG_DONTWAIT, address, length));
  }

  /** When the last frame arrived, in microseconds since 1970; undefined: the kernel has no time. */
  frameMicros(fd: number): number | undefined {
    const time = new BigInt64Array(2);
    if (this.#ioctl(fd, SIOCGSTAMPNS, new Uint8Array(time.buffer)) < 0) return undefined;
    return Number(time[0]! * 1_000_000n + time[1]! / 1000n);
  }

  /** Frames that a packet socket dropped since the last call: its buffer was full. */
  droppedFrames(fd: number): number {
    const counters = new Uint32Array(2);
    const length = bytesOf(Int32Array.of(counters.byteLength));
    const bytes = new Uint8Array(counters.buffer);
    const result = this.#getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, bytes, length);
    this.#checked('getsockopt', result);
    return counters[1]!;
  }

  close(fd: number): void {
    this.#checked('close', this.#close(fd));
  }

  /** From now on descriptor `fd` is the file of `by`, for all threads; `by` is closed. */
  replace(fd: number, by: number): void {
    this.#checked('dup3', this.#dup3(by, fd, SOCK_CLOEXEC));
    this.close(by);
  }

  setOption(fd: number, level: number, option: number, value: number): void {
    this.#setBytes(fd, level, option, bytesOf(Int32Array.of(value)));
  }

  #setBytes(fd: number, level: number, option: number, bytes: Uint8Array): void {
    this.#checked('setsockopt', this.#setsockopt(fd, level, option, bytes, bytes.length));
  }

  /** Joins a multicast group on the interface `name`, for IPv4 the one that has the address `own`. */
  joinGroup(fd: number, group: Gid, own: Gid, name: string): void {
    if (group.isIpv4) this.#setBytes(fd, SOL_IP, IP_ADD_MEMBERSHIP, ipv4Membership(group, own));
    else this.#setBytes(fd, SOL_IPV6, IPV6_ADD_MEMBERSHIP, this.#ipv6Membership(group, name));
  }

  leaveGroup(fd: number, group: Gid, own: Gid, name: string): void {
    if (group.isIpv4) this.#setBytes(fd, SOL_IP, IP_DROP_MEMBERSHIP, ipv4Membership(group, own));
    else this.#setBytes(fd, SOL_IPV6, IPV6_DROP_MEMBERSHIP, this.#ipv6Membership(group, name));
  }

  /** struct ipv6_mreq. */
  #ipv6Membership(group: Gid, name: string): Uint8Array {
    const index = Int32Array.of(this.interfaceIndex(name));
    return Buffer.concat([group.bytes, bytesOf(index)]);
  }

  /** The interface's number; 0: no such interface. */
  interfaceIndex(name: string): number {
    return name === '' ? 0 : this.#ifNametoindex(name);
  }

  /** `program` is of sock_filter, 8 bytes an instruction: it selects a socket of a group. */
  attachReuseportProgram(fd: number, program: Uint8Array): void {
    this.#attachProgram(fd, SO_ATTACH_REUSEPORT_CBPF, program);
  }

  /** The same of a program that returns how many bytes of a datagram are kept; 0: it is dropped. */
  attachFilter(fd: number, program: Uint8Array): void {
    this.#attachProgram(fd, SO_ATTACH_FILTER, program);
  }

  /** Throws ENOENT if no filter is attached. */
  detachFilter(fd: number): void {
    this.setOption(fd, SOL_SOCKET, SO_DETACH_FILTER, 0);
  }

  #attachProgram(fd: number, option: number, program: Uint8Array): void {
    const address = this.addressOf(program.buffer) + program.byteOffset;
    const pointer = new Uint32Array([0, 0, address % 2 ** 32, Math.floor(address / 2 ** 32)]);
    const bytes = bytesOf(pointer);
    bytes.set(bytesOf(Uint16Array.of(program.length / 8)));
    const result = this.#setsockopt(fd, SOL_SOCKET, option, bytes, bytes.length);
    this.#checked('setsockopt', result);
  }

  getOption(fd: number, level: number, option: number): number {
    const value = new Int32Array(1);
    const length = Int32Array.of(INT_BYTES);
    const result = this.#getsockopt(fd, level, option, bytesOf(value), bytesOf(length));
    this.#checked('getsockopt', result);
    return value[0]!;
  }

  /**
   * Datagrams that a socket has dropped, since its receive buffer was full or by its filter: a
   * counter of 32 bits.
   */
  droppedDatagrams(fd: number): number {
    const words = new Uint32Array(MEMINFO_WORDS);
    const length = Int32Array.of(words.byteLength);
    const bytes = new Uint8Array(words.buffer);
    const result = this.#getsockopt(fd, SOL_SOCKET, SO_MEMINFO, bytes, bytesOf(length));
    this.#checked('getsockopt', result);
    return words[MEMINFO_DROPS]!;
  }

  /** The process at the other end of a socket of AF_UNIX, as it was when it connected. */
  peerOf(fd: number): { pid: number; uid: number; gid: number } {
    const words = new Int32Array(UCRED_WORDS);
    const length = Int32Array.of(words.byteLength);
    const bytes = new Uint8Array(words.buffer);
    const result = this.#getsockopt(fd, SOL_SOCKET, SO_PEERCRED, bytes, bytesOf(length));
    this.#checked('getsockopt', result);
    return { pid: words[0]!, uid: words[1]!, gid: words[2]! };
  }

  /** `zone`: the interface of a link-local address, by name. */
  bind(fd: number, gid: Gid, port: number, zone: string): void {
    const address = socketAddress(gid, port, this.interfaceIndex(zone));
    this.#checked('bind', this.#bind(fd, address, address.length));
  }

  /** The port that the socket is bound to. */
  localPort(fd: number): number {
    const address = Buffer.alloc(SOCKADDR_IN6_BYTES);
    const length = Int32Array.of(address.length);
    this.#checked('getsockname', this.#getsockname(fd, address, bytesOf(length)));
    return address.readUInt16BE(2);
  }

  /** sockaddr_in or sockaddr_in6 of a destination. */
  socketAddress(gid: Gid, port: number, zone: string): Uint8Array {
    return socketAddress(gid, port, this.interfaceIndex(zone));
  }

  /** Where the first byte of `buffer` lies in this process. */
  addressOf(buffer: ArrayBufferLike): number {
    return this.#native.addressOf(new Uint8Array(buffer));
  }

  /**
   * sendmmsg of the `count` mmsghdr at `headers`: how many the kernel took, or the negated errno
   * when it did not take the first. Does not block, allocates nothing.
   */
  sendMessages(fd: number, headers: number, count: number): number {
    if (count === 1 && this.prefersSingle) {
      const sent = this.#sendmsg(fd, headers, MSG_DONTWAIT);
      return sent >= 0 ? 1 : -this.#native.errno();
    }
    return this.#countOrErrno(this.#sendmmsg(fd, headers, count, MSG_DONTWAIT));
  }

  /** recvmsg into the msghdr at `header`: bytes of the message, or the negated errno. */
  receiveMessage(fd: number, header: number): number {
    return this.#countOrErrno(this.#recvmsg(fd, header, MSG_DONTWAIT));
  }

  /** recvmmsg into the `count` mmsghdr at `headers`: how many came, or the negated errno. */
  receiveMessages(fd: number, headers: number, count: number): number {
    return this.#countOrErrno(this.#recvmmsg(fd, headers, count, MSG_DONTWAIT, 0));
  }

  /**
   * ppoll of the `count` pollfd at `descriptors`, for as long as the timespec at `timeout` says (0:
   * for ever): how many are ready, or the negated errno. Blocks the thread.
   */
  pollDescriptors(descriptors: number, count: number, timeout: number): number {
    return this.#countOrErrno(this.#ppoll(descriptors, count, timeout, 0));
  }

  /** Is the other end of this socket closed? */
  hasHungUp(fd: number): boolean {
    const buffer = new ArrayBuffer(64);
    const words = new Int32Array(buffer);
    words[0] = fd;
    // Behind the pollfd: a timespec of zeros.
    const at = this.addressOf(buffer);
    this.pollDescriptors(at, 1, at + 8);
    return ((words[1]! >>> 16) & POLLHUP) !== 0;
  }

  /** Gives another process a descriptor over a socket of AF_UNIX. Throws PosixError. */
  passDescriptor(socket: number, fd: number): void {
    const buffer = new ArrayBuffer(PASSING.bytes);
    const view = new DataView(buffer);
    const base = this.addressOf(buffer);
    layOutPassing(view, base);
    view.setBigUint64(PASSING.control, BigInt(CONTROL_LENGTH), true);
    view.setInt32(PASSING.control + 8, SOL_SOCKET, true);
    view.setInt32(PASSING.control + 12, SCM_RIGHTS, true);
    view.setInt32(PASSING.control + 16, fd, true);
    this.#checked('sendmsg', this.#sendmsg(socket, base, MSG_DONTWAIT));
  }

  /** A descriptor that `passDescriptor` has sent; undefined: the socket has no message. */
  receiveDescriptor(socket: number): number | undefined {
    const buffer = new ArrayBuffer(PASSING.bytes);
    const view = new DataView(buffer);
    layOutPassing(view, this.addressOf(buffer));
    if (this.#recvmsg(socket, this.addressOf(buffer), MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0) {
      return undefined;
    }
    const kinds = [
      view.getInt32(PASSING.control + 8, true),
      view.getInt32(PASSING.control + 12, true),
    ];
    const length = Number(view.getBigUint64(PASSING.header + 40, true));
    // The space of one, aligned, has room for two.
    const ofOne = view.getBigUint64(PASSING.control, true) < CONTROL_SPACE;
    if (length >= CONTROL_SPACE && !ofOne) this.close(view.getInt32(PASSING.control + 20, true));
    const isOne = length >= CONTROL_LENGTH && kinds[0] === SOL_SOCKET && kinds[1] === SCM_RIGHTS;
    return isOne ? view.getInt32(PASSING.control + 16, true) : undefined;
  }

  /** This process is killed when its parent ends (PR_SET_PDEATHSIG), however that ends. */
  endWithParent(): void {
    this.#checked('prctl', this.#prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
  }

  /** sched_yield: threads that wait for this processor run first. */
  yieldProcessor(): void {
    this.#schedYield();
  }

  /** FUTEX_WAKE: wakes all threads, also those of other processes, that sleep on the word there. */
  wakeWaiters(address: number): void {
    this.#syscall(SYS_FUTEX_X64, address, FUTEX_WAKE, INT_MAX, 0, 0, 0);
  }

  /** An eventfd that does not block: readable from the first `signalEvent` to `clearEvent`. */
  eventDescriptor(): number {
    return this.#checked('eventfd', this.#eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  }

  /**
   * Wakes the threads that sleep on the eventfd. A full counter is as good as a signal. Other
   * errors are ignored, so that a verb is never half done: no thread sleeps longer than a second
   * (progress-thread.ts).
   */
  signalEvent(fd: number): void {
    this.#write(fd, EVENT, EVENT.length);
  }

  /** An epoll set: readable while one of its descriptors is. */
  descriptorSet(): number {
    return this.#checked('epoll_create1', this.#epollCreate(EPOLL_CLOEXEC));
  }

  addToSet(set: number, fd: number): void {
    const event = new Uint8Array(EPOLL_EVENT_BYTES);
    event[0] = POLLIN;
    this.#checked('epoll_ctl', this.#epollControl(set, EPOLL_CTL_ADD, fd, event));
  }

  removeFromSet(set: number, fd: number): void {
    const event = new Uint8Array(EPOLL_EVENT_BYTES);
    this.#checked('epoll_ctl', this.#epollControl(set, EPOLL_CTL_DEL, fd, event));
  }

  clearEvent(fd: number): void {
    this.#read(fd, this.#event, this.#event.length);
  }

  /** One datagram; false: it was not taken. Does not block. */
  sendDatagram(fd: number, bytes: Uint8Array, address: Uint8Array): boolean {
    const { length } = bytes;
    return this.#sendBytesTo(fd, bytes, length, MSG_DONTWAIT, address, address.length) === length;
  }

  /** Reads and discards all datagrams of a non-blocking socket. */
  discardDatagrams(fd: number): void {
    while (this.#read(fd, this.#event, this.#event.length) >= 0);
  }

  /** Puts `length` bytes of a file, from `offset` on, in the place of memory at `address`. */
  mapFile(fd: number, address: number, length: number, offset = 0): void {
    const flags = MAP_SHARED | MAP_FIXED;
    const mapped = this.#mmap(address, length, PROT_READ_WRITE, flags, fd, offset);
    this.#checked('mmap', mapped === address ? 0 : -1);
  }

  /** madvise(MADV_HUGEPAGE): the kernel backs a mapping by huge pages where it can. */
  adviseHugePages(address: number, length: number): void {
    this.#checked('madvise', this.#madvise(address, length, MADV_HUGEPAGE));
  }

  /** madvise(MADV_COLLAPSE), Linux 6.1: pages that are there become huge pages. False: refused. */
  collapsePages(address: number, length: number): boolean {
    return this.#madvise(address, length, MADV_COLLAPSE) === 0;
  }

  /** Zero memory again where a file was mapped. */
  unmapFile(address: number, length: number): void {
    const flags = MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE;
    const mapped = this.#mmap(address, length, PROT_READ_WRITE, flags, -1, 0);
    this.#checked('mmap', mapped === address ? 0 : -1);
  }

  /** msync(MS_SYNC): these pages of a mapped file are durable when it returns. Blocks. */
  syncMemory(address: number, length: number): void {
    this.#checked('msync', this.#msync(address, length, MS_SYNC));
  }

  /** posix_fadvise(POSIX_FADV_DONTNEED): the kernel evicts clean pages of the file if possible. */
  dropCache(fd: number): void {
    const errno = this.#fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (errno !== 0) throw new PosixError('posix_fadvise', this.errnoName(errno));
  }

  /**
   * mincore: number of pages of [offset, offset + length) of a file in the page cache. A page has
   * `pageBytes` bytes; `offset` must be a multiple.
   */
  cachedPages(fd: number, offset: number, length: number, pageBytes: number): number {
    const address = this.#mmap(0, length, PROT_READ, MAP_SHARED, fd, offset);
    this.#checked('mmap', address === -1 ? -1 : 0);
    try {
      const pages = new Uint8Array(Math.ceil(length / pageBytes));
      this.#checked('mincore', this.#mincore(address, length, pages));
      return pages.reduce((count, page) => count + (page & 1), 0);
    } finally {
      this.#checked('munmap', this.#munmap(address, length));
    }
  }

  /** Bytes per page of memory: sysconf(_SC_PAGESIZE). */
  get pageBytes(): number {
    return this.#sysconf(SC_PAGESIZE);
  }

  /** Gives `length` bytes of a file storage. PosixError ENOSPC when there is no room. */
  allocateFile(fd: number, length: number, offset = 0): void {
    // It returns the errno instead of setting it.
    const errno = this.#fallocate(fd, offset, length);
    if (errno !== 0) throw new PosixError('posix_fallocate', this.errnoName(errno));
  }

  /**
   * These bytes of a file are zeros, and take no storage. PosixError EOPNOTSUPP where the file
   * system knows no holes.
   */
  punchHole(fd: number, offset: number, length: number): void {
    const mode = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE;
    this.#checked('fallocate', this.#punchHole(fd, mode, offset, length));
  }

  /** Locks one byte of a file; false: another owner has the lock. It ends with the descriptor. */
  lockByte(fd: number, offset: number): boolean {
    return this.#setLock(fd, offset, F_WRLCK);
  }

  unlockByte(fd: number, offset: number): void {
    this.#setLock(fd, offset, F_UNLCK);
  }

  /** True if another owner has locked any of these bytes. */
  isLocked(fd: number, offset: number, length = 1): boolean {
    const lock = fileLock(F_WRLCK, offset, length);
    this.#checked('fcntl', this.#fcntl(fd, F_OFD_GETLK, lock));
    return lock.readInt16LE(0) !== F_UNLCK;
  }

  /** All bytes of `source` to the beginning of `target`, which has room; they may overlap. */
  moveMemory(target: Uint8Array, source: Uint8Array): void {
    this.#memmove(target, source, source.length);
  }

  /** Effective user of this process. */
  get effectiveUser(): number {
    return this.#geteuid();
  }

  #setLock(fd: number, offset: number, type: number): boolean {
    const result = this.#fcntl(fd, F_OFD_SETLK, fileLock(type, offset, 1));
    if (result < 0 && (this.errno === 'EAGAIN' || this.errno === 'EACCES')) return false;
    this.#checked('fcntl', result);
    return true;
  }

  /** Package that calls the C library. */
  get by(): NativeCalls['name'] {
    return this.#native.name;
  }

  /** Of this machine: message headers are laid out for 8. */
  get pointerBytes(): number {
    return this.#native.pointerBytes;
  }

  /** Name of the last call's errno. */
  get errno(): string {
    return this.errnoName(this.#native.errno());
  }

  errnoName(errno: number): string {
    return this.#names.get(errno) ?? `errno ${errno}`;
  }

  #countOrErrno(result: number): number {
    return result >= 0 ? result : -this.#native.errno();
  }

  #checked(syscall: string, result: number): number {
    if (result >= 0) return result;
    throw new PosixError(syscall, this.errno);
  }
}

/** msghdr and iovec of a message with one byte and one descriptor, in a buffer at `base`. */
function layOutPassing(view: DataView, base: number): void {
  const put = (at: number, value: number): void => view.setBigUint64(at, BigInt(value), true);
  put(PASSING.header + 16, base + PASSING.iovec);
  put(PASSING.header + 24, 1);
  put(PASSING.header + 32, base + PASSING.control);
  put(PASSING.header + 40, CONTROL_SPACE);
  put(PASSING.iovec, base + PASSING.byte);
  put(PASSING.iovec + 8, 1);
}

/** sockaddr_in or sockaddr_in6: family in the machine's order, the rest in the network's. */
function socketAddress(gid: Gid, port: number, scope: number): Uint8Array {
  const bytes = Buffer.alloc(gid.isIpv4 ? SOCKADDR_IN_BYTES : SOCKADDR_IN6_BYTES);
  bytes.set(bytesOf(Uint16Array.of(gid.isIpv4 ? AF_INET : AF_INET6)));
  bytes.writeUInt16BE(port, 2);
  if (gid.isIpv4) {
    bytes.set(gid.bytes.subarray(12), 4);
  } else {
    bytes.set(gid.bytes, 8);
    bytes.set(bytesOf(Uint32Array.of(scope)), 24);
  }
  return bytes;
}

/** struct ip_mreq. */
function ipv4Membership(group: Gid, own: Gid): Uint8Array {
  return Buffer.concat([group.bytes.subarray(12), own.bytes.subarray(12)]);
}

/** One for all calls, which do not overlap: processes of a device look at locks all the time. */
const flock = Buffer.alloc(FLOCK_BYTES);

/** struct flock: type, whence (from the beginning), offset, length; no pid. */
function fileLock(type: number, offset: number, length: number): Buffer {
  flock.fill(0);
  flock.writeInt16LE(type, 0);
  flock.writeBigInt64LE(BigInt(offset), 8);
  flock.writeBigInt64LE(BigInt(length), 16);
  return flock;
}

function bytesOf(array: Int32Array | Uint16Array | Uint32Array): Uint8Array {
  return new Uint8Array(array.buffer);
}

/** The system calls, or the reason why they are not available. */
export type PosixResult =
  | { readonly posix: Posix; readonly reason?: never }
  | { readonly posix?: never; readonly reason: string };

let loaded: Promise<PosixResult> | undefined;
let found: Posix | undefined;

/** Loads koffi, or node:ffi without it, the first time. Never rejects. */
export function loadPosix(): Promise<PosixResult> {
  loaded ??= load();
  return loaded;
}

async function load(): Promise<PosixResult> {
  if (process.platform !== 'linux') return { reason: `not for ${process.platform}` };
  // Its dgram takes no socket that a system call has made.
  if ('Deno' in globalThis) return { reason: 'not for Deno' };
  if (endianness() !== 'LE') return { reason: `not for ${process.arch}` };
  const { calls, reason } = await loadNativeCalls();
  if (!calls) return { reason };
  found = new Posix(calls);
  return { posix: found };
}

/** The system calls, if `loadPosix` has found them. */
export function loadedPosix(): Posix | undefined {
  return found;
}
