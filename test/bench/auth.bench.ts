/**
 * The price of authenticated connections: WRITEs of 64 bytes and 1 MiB between two processes,
 * with tags on all packets, with encryption and without; and connecting. OpenSSL alone says what
 * a native implementation needs for one packet.
 */
import { createCipheriv } from 'node:crypto';
import { WrOpcode } from '../../host/index.js';
import { connectMillis, openAuthEnds, PROTECTIONS, type Protection } from './auth-ends.js';
import { flowFigures } from './flow.js';
import { atLeast, atMost, interleave, median, medianOf, medians, Stopwatch } from './harness.js';
import type { Bench, BenchResult, Figures, Pace, Variant } from './harness.js';
import { depthOf, streamOver } from './stream.js';

const SECONDS = 1;
const CONNECTIONS = 100;
/** Seals of OpenSSL in one round. */
const SEALS = 20_000;
const SHAPES = [
  { name: 'write_64', size: 64, bytes: 4 * 2 ** 20, windowPackets: 1024, reorderPackets: 0 },
  { name: 'write_1mib', size: 2 ** 20, bytes: 32 * 2 ** 20 },
] as const;
const CIPHERS = { chacha20_poly1305: 'chacha20-poly1305', aes_256_gcm: 'aes-256-gcm' } as const;
const PACKETS = [64, 4096] as const;
const TAG_BYTES = 16;
/** A BTH, an RETH. */
const HEADER_BYTES = 28;

function writes(shape: (typeof SHAPES)[number], protection: Protection, share: number): Variant {
  return async () => {
    const { size, bytes } = shape;
    const both = await openAuthEnds({
      ...shape,
      protection,
      depth: depthOf(size).deep,
      progress: 'poll',
    });
    const opcode = WrOpcode.RDMA_WRITE;
    const how = { opcode, size, bytes, seconds: SECONDS * share, progress: 'poll' } as const;
    return flowFigures(`${shape.name}_${protection}`, await streamOver(both, how));
  };
}

function connects(protection: Protection, share: number): Variant {
  return async () => {
    const millis = await connectMillis(protection, CONNECTIONS * share);
    return { [`connect_${protection}_p50_ms`]: median(millis) };
  };
}

/** Nanoseconds to encrypt and sign one packet, with keys that are set up for each. */
function openssl(share: number): Figures {
  const figures: Figures = {};
  const [key, nonce] = [new Uint8Array(32).fill(1), new Uint8Array(12)];
  const header = new Uint8Array(HEADER_BYTES);
  for (const [name, cipher] of Object.entries(CIPHERS)) {
    for (const bytes of PACKETS) {
      const payload = new Uint8Array(bytes);
      const count = SEALS * share;
      const watch = new Stopwatch();
      for (let index = 0; index < count; index++) {
        const sealed = createCipheriv(cipher as 'aes-256-gcm', key, nonce, {
          authTagLength: TAG_BYTES,
        });
        sealed.setAAD(header);
        sealed.update(payload);
        sealed.final();
        sealed.getAuthTag();
      }
      figures[`openssl_${name}_${bytes}_cpu_ns`] = (watch.cpuSeconds() * 1e9) / count;
    }
  }
  return figures;
}

async function run(pace: Pace): Promise<BenchResult> {
  const variants = [
    ...SHAPES.flatMap((shape) => PROTECTIONS.map((each) => writes(shape, each, pace.share))),
    ...PROTECTIONS.map((each) => connects(each, pace.share)),
    () => openssl(pace.share),
  ];
  const rounds = await interleave('auth', variants, pace);
  const figures = medians(rounds);
  const ratio = (figure: (protection: Protection) => string, protection: Protection): number =>
    medianOf(rounds, (f) => f[figure(protection)]! / f[figure('plain')]!);
  const small = (each: Protection): string => `write_64_${each}_mps`;
  const large = (each: Protection): string => `write_1mib_${each}_gbps`;
  const connecting = (each: Protection): string => `connect_${each}_p50_ms`;
  const protections = ['auth', 'encrypt'] as const;
  for (const each of protections) {
    figures[`write_64_${each}_to_plain_ratio`] = ratio(small, each);
    figures[`write_1mib_${each}_to_plain_ratio`] = ratio(large, each);
    figures[`connect_${each}_to_plain_ratio`] = ratio(connecting, each);
  }
  return {
    rounds,
    figures,
    bars: [
      atLeast('64-byte WRITEs with `auth` against without', ratio(small, 'auth'), 0.5),
      atLeast('1-MiB WRITEs with `auth` against without', ratio(large, 'auth'), 0.3),
      atLeast('64-byte WRITEs with `encrypt` against without', ratio(small, 'encrypt'), 0.35),
      atLeast('1-MiB WRITEs with `encrypt` against without', ratio(large, 'encrypt'), 0.15),
      atMost('connect with `auth` against without, time', ratio(connecting, 'auth'), 2),
    ],
  };
}

export const bench: Bench = {
  name: 'auth',
  description:
    'WRITEs and connects with `auth` and `encrypt` against without, between two processes',
  run,
};
