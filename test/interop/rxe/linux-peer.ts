/** Linux rxe in a guest, by way of remote-verbs.c. */
import { createConnection, type Socket } from 'node:net';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { AccessFlag, WrOpcode } from '../../../host/index.js';
import { Gid } from '../../../host/link/endpoint.js';
import { root } from '../../support/paths.js';
import type { Guest } from './guest.js';
import type { Lab } from './lab.js';
import {
  EVENT_MILLIS,
  FIRST_WAIT_MILLIS,
  MEMORY_BYTES,
  QKEY,
  type Completion,
  type ConnectOptions,
  type Peer,
  type PeerOptions,
  type Region,
  type Request,
} from './peer.js';

const SOURCE = fileURLToPath(new URL('test/interop/rxe/remote-verbs.c', root));
const PORT = 7778;
const ANSWER_SECONDS = 120;
const QUEUE_ENTRIES = 512;
/** rxe has no REMOTE_… without LOCAL_WRITE, and windows need MW_BIND. */
const ACCESS =
  AccessFlag.LOCAL_WRITE |
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_ATOMIC |
  AccessFlag.MW_BIND;
/** GIDs of rxe's port: a link-local address first, then the test's in the order they were added. */
const GID_INDEX_IPV4 = 1;
const GID_INDEX_IPV6 = 2;
/** Words of a completion in the answer to `poll`. */
const COMPLETION_WORDS = 7;

/** Compiles and starts the program; it serves any number of peers. */
export async function startRemoteVerbs(lab: Lab, guest: Guest): Promise<void> {
  const program = await lab.compile(SOURCE);
  await guest.spawn(`${program} ${PORT}`).printed(/ready/, 20);
}

export class LinuxPeer implements Peer {
  readonly name = 'Linux';
  readonly qpType: number;
  readonly address: string;
  readonly qpn: number;
  readonly region: Region;
  readonly #remote: Remote;
  #peerQpn = 0;

  private constructor(
    remote: Remote,
    made: Pick<LinuxPeer, 'qpType' | 'address' | 'qpn' | 'region'>,
  ) {
    this.#remote = remote;
    this.qpType = made.qpType;
    this.address = made.address;
    this.qpn = made.qpn;
    this.region = made.region;
  }

  static async open(guest: Guest, options: PeerOptions): Promise<LinuxPeer> {
    const { qpType, isIpv6, sgesMax = 4 } = options;
    const remote = await Remote.open(guest.ipv4);
    try {
      const index = isIpv6 ? GID_INDEX_IPV6 : GID_INDEX_IPV4;
      const [gid = '', addr = '0'] = await remote.ask('open', index, MEMORY_BYTES);
      const address = new Gid(Buffer.from(gid, 'hex')).toString();
      const [lkey, rkey] = await remote.numbers('mr', ACCESS, 0, MEMORY_BYTES);
      const [qpn] = await remote.numbers('qp', qpType, QUEUE_ENTRIES, QUEUE_ENTRIES, sgesMax);
      const region = { addr: BigInt(addr), length: MEMORY_BYTES, lkey: lkey!, rkey: rkey! };
      return new LinuxPeer(remote, { qpType, address, qpn: qpn!, region });
    } catch (error) {
      remote.close();
      throw error;
    }
  }

  async regMr(access: number, offset: number, length: number): Promise<Region> {
    const [lkey, rkey] = await this.#remote.numbers('mr', access, offset, length);
    return { addr: this.region.addr + BigInt(offset), length, lkey: lkey!, rkey: rkey! };
  }

  /** `length` bytes of persistent memory, which the guest has made (guest/persistent-memory). */
  async regDax(access: number, length: number): Promise<Region> {
    const [addr = '0', lkey, rkey] = await this.#remote.ask('dax', access, length);
    return { addr: BigInt(addr), length, lkey: Number(lkey), rkey: Number(rkey) };
  }

  /** A type 2 memory window. */
  async regInvalidatable(offset: number, length: number): Promise<Region> {
    const access = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ;
    const [rkey] = await this.#remote.numbers('mw', this.region.rkey, offset, length, access);
    return { addr: this.region.addr + BigInt(offset), length, lkey: 0, rkey: rkey! };
  }

  async connect(peer: Peer, options: ConnectOptions): Promise<void> {
    const { mtuBytes, sqPsn, rqPsn, timeout, retryCnt, rnrRetry, minRnrTimer } = options;
    const gid = Buffer.from(Gid.parse(peer.address).bytes).toString('hex');
    this.#peerQpn = peer.qpn;
    await this.#remote.ask('rtr', mtuBytes, peer.qpn, rqPsn, gid, 16, minRnrTimer);
    await this.#remote.ask('rts', sqPsn, timeout, retryCnt, rnrRetry, 16);
  }

  async postRecv(wrId: number, sgList: Request['sgList']): Promise<void> {
    await this.#remote.ask('recv', wrId, ...sgeWords(sgList));
  }

  async postSend(request: Request): Promise<void> {
    const { wrId = 0, opcode, sendFlags = 0, rdma, atomic, flush, qkey = QKEY } = request;
    if (opcode === WrOpcode.FLUSH || opcode === WrOpcode.ATOMIC_WRITE) {
      const where = flush ?? rdma ?? { remoteAddr: 0, rkey: 0 };
      await this.#remote.ask(
        ...['place', wrId, opcode, sendFlags, where.remoteAddr, where.rkey],
        ...[flush?.length ?? 0, flush?.type ?? 0, flush?.level ?? 0, ...sgeWords(request.sgList)],
      );
      return;
    }
    const remote = rdma ?? atomic ?? { remoteAddr: 0, rkey: 0 };
    await this.#remote.ask(
      ...['send', wrId, opcode, sendFlags, request.immData ?? request.invalidateRkey ?? 0],
      ...[remote.remoteAddr, remote.rkey, atomic?.compareAdd ?? 0, atomic?.swap ?? 0],
      ...[this.#peerQpn, qkey, ...sgeWords(request.sgList)],
    );
  }

  async poll(count: number, millis = FIRST_WAIT_MILLIS): Promise<readonly Completion[]> {
    const words = await this.#remote.ask('poll', count, millis);
    const found: Completion[] = [];
    for (let at = 0; at < words.length; at += COMPLETION_WORDS) {
      const [status, opcode, byteLen, wcFlags, immData, srcQp] = words
        .slice(at + 1, at + COMPLETION_WORDS)
        .map(Number) as [number, number, number, number, number, number];
      const wrId = BigInt(words[at]!);
      found.push({ wrId, status, opcode, byteLen, wcFlags, immData, srcQp });
    }
    return found;
  }

  async armSolicited(): Promise<void> {
    await this.#remote.ask('arm', 1);
  }

  async hadEvent(): Promise<boolean> {
    return (await this.#remote.numbers('event', EVENT_MILLIS))[0] === 1;
  }

  async state(): Promise<number> {
    return (await this.#remote.numbers('state'))[0]!;
  }

  async fill(offset: number, length: number, seed: number): Promise<void> {
    await this.#remote.ask('fill', offset, length, seed);
  }

  async same(offset: number, length: number, seed: number): Promise<number> {
    return (await this.#remote.numbers('same', offset, length, seed))[0]!;
  }

  async read(offset: number, length: number): Promise<Buffer> {
    return Buffer.from((await this.#remote.ask('get', offset, length))[0] ?? '', 'hex');
  }

  async write(offset: number, bytes: Uint8Array): Promise<void> {
    await this.#remote.ask('put', offset, Buffer.from(bytes).toString('hex'));
  }

  close(): Promise<void> {
    this.#remote.close();
    return Promise.resolve();
  }
}

function sgeWords(list: Request['sgList'] = []): (number | bigint)[] {
  return list.flatMap(({ addr, length, lkey }) => [addr, length, lkey]);
}

/** A connection to remote-verbs: a line out, a line back. */
class Remote {
  readonly #socket: Socket;
  #text = '';
  #answered: ((line: string) => void) | undefined;
  #failed: ((error: Error) => void) | undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding('latin1').setNoDelay(true);
    socket.on('data', (text: string) => {
      this.#text += text;
      const end = this.#text.indexOf('\n');
      if (end < 0) return;
      const line = this.#text.slice(0, end);
      this.#text = this.#text.slice(end + 1);
      this.#answered?.(line);
    });
    socket.on('close', () => this.#failed?.(new Error('remote-verbs is gone')));
    socket.on('error', () => undefined);
  }

  static async open(host: string): Promise<Remote> {
    const socket = createConnection({ host, port: PORT });
    await once(socket, 'connect');
    return new Remote(socket);
  }

  async ask(...words: readonly (string | number | bigint)[]): Promise<string[]> {
    const line = words.join(' ');
    let timer: NodeJS.Timeout | undefined;
    const answer = await new Promise<string>((resolve, reject) => {
      this.#answered = resolve;
      this.#failed = reject;
      const late = (): void => reject(new Error(`no answer to "${line}"`));
      timer = setTimeout(late, ANSWER_SECONDS * 1000);
      this.#socket.write(`${line}\n`);
    }).finally(() => clearTimeout(timer));
    const [verdict, ...rest] = answer.split(' ');
    if (verdict !== 'ok') throw new Error(`remote-verbs ${line.slice(0, 100)}: ${answer}`);
    return rest;
  }

  async numbers(...words: readonly (string | number)[]): Promise<number[]> {
    return (await this.ask(...words)).map(Number);
  }

  close(): void {
    this.#socket.destroy();
  }
}
