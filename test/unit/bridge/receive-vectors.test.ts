/**
 * The receiving half of the batching link in C (host/bridge/datagrams.c) is that of the sidecar
 * (host/link/udp/receive-slots.ts): the same arrivals, the same descriptors and the same next call.
 */
import { execFileSync } from 'node:child_process';
import { constants } from 'node:os';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { LinkReceiver } from '../../../host/link/link.js';
import * as sys from '../../../host/link/posix.js';
import { CONTROL, HEADER, HEADER_BYTES, IOVEC } from '../../../host/link/udp/message-header.js';
import { ReceiveSlots } from '../../../host/link/udp/receive-slots.js';
import { Random } from '../../simulation/random.js';
import { isBuilt } from '../../support/c-program.js';
import { root } from '../../support/paths.js';
import { Workspace } from '../../support/processes.js';

const test = suite('unit/bridge/receive-vectors');

/** So large that there are 16 slots. */
const MEMORY_BYTES = 17 * 2 ** 20;
const SLOT_BYTES = 65536;
const SLOTS = 16;
const SCENARIOS = 40;
const CALLS = 30;
const ADDRESS = 65536;
const CE = 3;

interface Datagram {
  readonly length: number;
  /** Bytes of a segment; 0: no run. */
  readonly segment: number;
  readonly tos: number;
  readonly port: number;
  /** The address in the order of its bytes. */
  readonly host: number;
}

interface Call {
  /** Datagrams that are there, or a negated errno. */
  readonly found: number;
  readonly datagrams: readonly Datagram[];
}

class World {
  readonly #memory = new Uint8Array(new ArrayBuffer(MEMORY_BYTES));
  readonly #words = new Uint32Array(this.#memory.buffer);
  readonly #slots: ReceiveSlots;
  #call: Call | undefined;
  /** In the words of receive-vectors.c. */
  #text = '';
  /** The input of receive-vectors.c. */
  readonly input: string[] = [];

  constructor() {
    const calls: Partial<sys.Posix> = {
      prefersSingle: false,
      receiveMessages: (_fd, headers, asked) => this.#receive(headers, asked),
    };
    const posix = calls as sys.Posix;
    this.#slots = new ReceiveSlots(posix, 3, true, this.#memory, 0, ADDRESS);
  }

  #receive(headers: number, asked: number): number {
    const { found, datagrams } = this.#call!;
    const filled = Math.min(found, asked);
    this.#text = `asked ${asked}:`;
    this.input.push(String(filled));
    for (const [slot, one] of datagrams.slice(0, Math.max(0, filled)).entries()) {
      const { length, segment, tos, port, host } = one;
      this.input.push(`${length} ${segment} ${tos} ${port} ${host.toString(16)}`);
      this.#arrive((headers + slot * HEADER_BYTES) >>> 2, one);
    }
    return filled;
  }

  #arrive(header: number, { length, segment, tos, port, host }: Datagram): void {
    const words = this.#words;
    const name = words[header + HEADER.name]! >>> 2;
    const control = words[header + HEADER.control]! >>> 2;
    const at = words[words[header + HEADER.iov]! / 4 + IOVEC.base]!;
    this.#memory.fill(0, at, at + length);
    words[header + HEADER.length] = length;
    words[name] = sys.AF_INET | (((port & 255) << 24) | ((port >>> 8) << 16));
    words[name + 1] = host;
    words.set([17, 0, sys.SOL_IP, sys.IP_TOS, tos, 0], control);
    if (segment) words.set([20, 0, sys.SOL_UDP, sys.UDP_GRO, segment, 0], control + 6);
    assert.is(CONTROL.data, 4);
    words[header + HEADER.controlLength] = segment ? 48 : 24;
  }

  receive(call: Call): string {
    this.#call = call;
    const filled = this.#slots.receive();
    const receiver: LinkReceiver = {
      segments: (address, length, size, { gid, port }) => {
        let marked = 0;
        for (let at = 4; at < length; at += size || length) {
          if (this.#memory[address + at] === 0x80) marked++;
        }
        const source = (gid.words[3]! >>> 0).toString(16).padStart(8, '0');
        const slot = (address - ADDRESS) / SLOT_BYTES;
        this.#text += ` ${slot}+${length}/${size} from ${source}:${port} marked ${marked}`;
      },
      packet: (bytes) => assert.is(bytes.length, 0),
      flush: () => undefined,
      failed: () => assert.unreachable(),
    };
    for (let slot = 0; slot < filled; slot++) this.#slots.deliver(slot, receiver, true);
    return this.#text;
  }
}

function datagram(random: Random): Datagram {
  const isRun = random.below(3) === 0;
  const segment = isRun ? 16 + 4 * random.below(300) : 0;
  const length = isRun
    ? Math.min(SLOT_BYTES, segment * (1 + random.below(20)) - random.below(12))
    : random.below(6) * random.below(300);
  const tos = random.below(4) === 0 ? CE : random.below(3);
  return { length, segment, tos, port: 1 + random.below(65535), host: 1 + random.below(2 ** 31) };
}

function call(random: Random): Call {
  const { EAGAIN, EINTR, ENOMEM } = constants.errno;
  const errors = [-EAGAIN, -EINTR, -ENOMEM];
  const found = random.below(4) === 0 ? errors[random.below(3)]! : random.below(SLOTS + 3);
  return { found, datagrams: Array.from({ length: Math.max(0, found) }, () => datagram(random)) };
}

test('the same datagrams give the same descriptors, and the same next call', () =>
  Workspace.use(async (space) => {
    if (!isBuilt) return;
    const program = space.path('receive-vectors');
    const folder = fileURLToPath(new URL('host/bridge/', root));
    const harness = fileURLToPath(new URL('test/unit/bridge/receive-vectors.c', root));
    const abi = fileURLToPath(new URL('build/bridge', root));
    const flags = ['-std=gnu11', '-O1', '-Dsyscall=scripted_call', `-I${folder}`, `-I${abi}`];
    execFileSync('gcc', [...flags, harness, `${folder}datagrams.c`, '-o', program]);
    for (let seed = 1; seed <= SCENARIOS; seed++) {
      const random = new Random(seed);
      const world = new World();
      const wanted = Array.from({ length: CALLS }, () => world.receive(call(random)));
      const input = world.input.join('\n');
      const made = execFileSync(program, { input, encoding: 'utf8' }).trim().split('\n');
      assert.equal(made, wanted, `seed ${seed}`);
    }
  }));

test.run();
