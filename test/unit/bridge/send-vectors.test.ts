/**
 * The hot path of the batching link in C (host/bridge/datagrams.c) is that of the sidecar
 * (host/link/udp/send-messages.ts): the same packets and the same answers of the kernel, the same
 * system calls with the same messages.
 */
import { execFileSync } from 'node:child_process';
import { constants } from 'node:os';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { redirectWarnings } from '../../../host/base/warning.js';
import { Endpoint, Gid } from '../../../host/link/endpoint.js';
import type { PacketBatch } from '../../../host/link/link.js';
import type { Posix } from '../../../host/link/posix.js';
import { CONTROL, HEADER, HEADER_BYTES, IOVEC } from '../../../host/link/udp/message-header.js';
import { SendMessages } from '../../../host/link/udp/send-messages.js';
import { Random } from '../../simulation/random.js';
import { isBuilt } from '../../support/c-program.js';
import { root } from '../../support/paths.js';
import { Workspace } from '../../support/processes.js';

const test = suite('unit/bridge/send-vectors');

// Each link warns of packets that are too long.
redirectWarnings(() => {});

const MEMORY_BYTES = 4 * 2 ** 20;
/** Where the headers of the TypeScript side lie, and the packets begin. */
const HEADERS = 3 * 2 ** 20;
const PACKETS = 65536;
const { EAGAIN, EINTR, EINVAL, EIO, EMSGSIZE, ENOMEM } = constants.errno;
const SCENARIOS = 60;

type Line =
  | { readonly kind: 'P'; readonly own: number; readonly port: number; readonly host: number }
  | {
      readonly kind: 'K';
      readonly at: number;
      readonly length: number;
      readonly path: number;
      readonly slot: number;
    }
  | { readonly kind: 'R' | 'W'; readonly value: number }
  | { readonly kind: 'S' };

function textOf(line: Line): string {
  if (line.kind === 'P')
    return `P ${line.own} ${line.port} ${(line.host * 2 ** 24 + 10).toString(16)}`;
  if (line.kind === 'K')
    return `K ${line.at.toString(16)} ${line.length} ${line.path} ${line.slot}`;
  return line.kind === 'S' ? 'S' : `${line.kind} ${line.value}`;
}

/** Calls of datagrams.c, one a line. */
function answersOfC(program: string, lines: readonly Line[]): string[] {
  const input = lines.map(textOf).join('\n');
  return execFileSync(program, { input, encoding: 'utf8' }).trim().split('\n');
}

type Packet = Extract<Line, { kind: 'K' }>;

class Recorder {
  readonly calls: string[] = [];
  readonly #words: Uint32Array;
  readonly #results: number[] = [];
  readonly #waits: number[] = [];

  constructor(memory: Uint8Array) {
    this.#words = new Uint32Array(memory.buffer);
  }

  script(kind: 'R' | 'W', value: number): void {
    (kind === 'R' ? this.#results : this.#waits).push(value);
  }

  /** The system calls of a link, recorded and scripted. */
  posix(): Posix {
    const calls: Partial<Posix> = {
      addressOf: () => 0,
      socketAddress: () => new Uint8Array(16),
      errnoName: (errno) =>
        Object.entries(constants.errno).find(([, value]) => value === errno)?.[0] ?? '',
      pollDescriptors: () => {
        this.calls.push('wait');
        return this.#waits.shift() ?? 1;
      },
      sendMessages: (_fd, headers, count) => {
        const texts = Array.from({ length: count }, (_, i) =>
          this.#message(headers + i * HEADER_BYTES),
        );
        this.calls.push(['send', ...texts].join(' '));
        return Math.min(count, this.#results.shift() ?? count);
      },
    };
    return calls as Posix;
  }

  #message(header: number): string {
    const words = this.#words;
    const at = header >>> 2;
    const iovec = words[at + HEADER.iov]! >>> 2;
    const control = words[at + HEADER.control]! >>> 2;
    const segment = words[at + HEADER.controlLength] ? words[control + CONTROL.data]! : 0;
    return `${words[iovec + IOVEC.base]!.toString(16)}+${words[iovec + IOVEC.length]}/${segment}`;
  }
}

/** Calls of send-messages.ts, in the same words. */
function answersOfTypeScript(lines: readonly Line[]): string[] {
  const memory = new Uint8Array(new ArrayBuffer(MEMORY_BYTES));
  const recorder = new Recorder(memory);
  const counters = { sent: 0, sentBytes: 0, sendCalls: 0, sentMessages: 0, sendErrors: new Map() };
  const gid = Gid.parse('127.0.0.1');
  const common = { fd: 3, flows: [], gid, zone: '', canSegment: true, base: 0, counters };
  const posix = recorder.posix();
  const sender = new SendMessages({ ...common, posix, memory, address: HEADERS });
  const peers: Endpoint[] = [];
  let packets: Packet[] = [];
  for (const line of lines) {
    if (line.kind === 'P') {
      peers.push(new Endpoint(Gid.parse(`10.0.0.${line.host}`), line.port));
      if (line.own) sender.setPeerSegments(peers.at(-1)!, true);
    } else if (line.kind === 'K') {
      memory[line.at + 5] = line.slot;
      packets.push(line);
    } else if (line.kind === 'S') {
      sender.send(batchOf(packets, peers, memory, recorder));
      recorder.calls.push('sent');
      packets = [];
    } else {
      recorder.script(line.kind, line.value);
    }
  }
  return recorder.calls;
}

function batchOf(
  packets: readonly Packet[],
  peers: readonly Endpoint[],
  memory: Uint8Array,
  recorder: Recorder,
): PacketBatch {
  return {
    count: packets.length,
    buffer: memory.buffer,
    addressOf: (index) => packets[index]!.at,
    lengthOf: (index) => packets[index]!.length,
    destinationOf: (index) => peers[packets[index]!.path]!,
    bytesOf: () => new Uint8Array(),
    tooLong: (index) => recorder.calls.push(`too long ${index}`),
    release: () => {},
  };
}

/** Runs of equal packets, interrupted now and then, and kernels that refuse now and then. */
function scenario(random: Random): Line[] {
  const lines: Line[] = [1, 1, 0].map((own, index) => ({
    kind: 'P',
    own,
    port: 4791,
    host: index + 1,
  }));
  for (let batch = 0; batch < 3; batch++) {
    const refusals = random.below(6);
    for (let i = 0; i < refusals; i++) {
      const errors = [EAGAIN, EINTR, EINVAL, EIO, EMSGSIZE, ENOMEM, EAGAIN, EAGAIN];
      const value =
        random.below(3) === 0 ? 1 + random.below(4) : -errors[random.below(errors.length)]!;
      lines.push({ kind: 'R', value });
      lines.push({ kind: 'W', value: random.below(2) });
    }
    let at = PACKETS;
    let [length, path, slot] = [64, 0, 1];
    const count = 1 + random.below(random.below(2) ? 20 : 200);
    for (let index = 0; index < count; index++) {
      if (random.below(12) === 0) length = 64 + 4 * random.below(300);
      if (random.below(20) === 0) path = random.below(3);
      if (random.below(30) === 0) slot = random.below(3);
      lines.push({ kind: 'K', at, length, path, slot });
      at += length + (random.below(25) === 0 ? 4 : 0);
    }
    lines.push({ kind: 'S' });
  }
  return lines;
}

test('the same packets leave by the same system calls, whatever the kernel refuses', () =>
  Workspace.use(async (space) => {
    if (!isBuilt) return;
    const program = space.path('send-vectors');
    const folder = fileURLToPath(new URL('host/bridge/', root));
    const harness = fileURLToPath(new URL('test/unit/bridge/send-vectors.c', root));
    const abi = fileURLToPath(new URL('build/bridge', root));
    const flags = ['-std=gnu11', '-O1', '-Dsyscall=scripted_call', `-I${folder}`, `-I${abi}`];
    execFileSync('gcc', [...flags, harness, `${folder}datagrams.c`, '-o', program]);
    for (let seed = 1; seed <= SCENARIOS; seed++) {
      const lines = scenario(new Random(seed));
      const calls = answersOfTypeScript(lines);
      assert.ok(calls.length >= 6);
      assert.equal(answersOfC(program, lines), calls, `seed ${seed}`);
    }
  }));

test.run();
