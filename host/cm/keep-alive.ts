/**
 * Detects dead peers: a killed process or a failed machine sends no DREQ. The queue pair of an idle
 * connection sends keep-alive probes (transport/shared/keep-alive.ts). The peer's transport
 * answers, whatever its application does. Sans-IO, as the state machine that calls it.
 */
import { PeerState } from '#build/abi.js';
import type { QueuePair } from '../verbs/queues/queue-pair.js';
import { idsOf, type Connection, type Watch } from './connection.js';
import type { CmProtocol } from './protocol.js';

/** Default of `keepAliveMillis`. */
export const KEEP_ALIVE_MILLIS = 20_000;
export const KEEP_ALIVE_MILLIS_MIN = 100;
export const KEEP_ALIVE_MILLIS_MAX = 24 * 60 * 60 * 1000;
/** Probes without an answer after which a peer counts as dead. */
const PROBES = 3;
/**
 * Checks after which a peer that answers with RNR NAKs only counts as dead: 15 times the limit of
 * silence, five minutes by default. rnr_retry 7 has no end of its own (IBA 9.7.5.2.8).
 */
const NOT_READY_CHECKS = 15 * (PROBES + 1);
/** Interval of the probes of a doubted connection: three probes and their answers take 2 s. */
const DOUBT_MICROS = 650e3;
/** A timer of a busy process may fire this late. */
const LATE_MICROS = 250e3;
/** Checks fall on a time grid, so that many connections share one timer. */
const GRIDS = 64;

/** Checks this queue pair for a sign of life: a `PeerState`; SILENT if it is no longer connected. */
export function lookFor(qp: QueuePair | undefined): number {
  if (!qp || qp.incarnation === 0) return PeerState.SILENT;
  const { device } = qp.pd.context;
  // Packets that already arrived count as a sign of life.
  device.settle();
  const { arena, engine, clock } = device;
  const peerState = arena.exports.postProbe(engine.context, qp.handle, clock.now());
  engine.drain();
  return peerState;
}

/** `limitMillis`: a connection ends after this time without a sign of life; 0: no keep-alive. */
export function makeWatch(limitMillis: number, look: () => number): Watch {
  const stepMicros = (limitMillis * 1000) / (PROBES + 1);
  return { look, stepMicros, silent: 0, notReady: 0, isDoubted: false, nextMicros: 0 };
}

function onGrid(micros: number, { stepMicros }: Watch): number {
  const grid = stepMicros / GRIDS;
  return (Math.floor(micros / grid) + 1) * grid;
}

/** Starts the keep-alive of an established connection. */
export function keepWatch(
  core: CmProtocol,
  now: number,
  connection: Connection,
  watch: Watch,
): void {
  if (connection.state !== 'ESTABLISHED') return;
  connection.watch = watch;
  // The checks of connections that began together are spread over one interval.
  const share = (connection.localId % 256) / 256;
  if (watch.stepMicros > 0) plan(core, connection, onGrid(now + share * watch.stepMicros, watch));
}

/** Stops the keep-alive: the connection is no longer established. */
export function stopWatch(core: CmProtocol, connection: Connection): void {
  connection.watch = undefined;
  core.watched.delete(connection);
}

function plan(core: CmProtocol, connection: Connection, micros: number): void {
  connection.watch!.nextMicros = micros;
  core.watched.add(connection);
  core.extend(connection, micros);
}

/**
 * A REQ names a connected queue pair: the peer may have restarted, or the REQ may be forged. Probes
 * the connected peer every DOUBT_MICROS. A connection is doubted once at a time, however many such
 * messages arrive.
 */
export function doubt(core: CmProtocol, now: number, connection: Connection): void {
  const { watch } = connection;
  if (!watch || watch.isDoubted) return;
  watch.isDoubted = true;
  // Earlier packets do not count. While requests are outstanding, the transport's retries decide.
  const isSilent = watch.look() === PeerState.SILENT || watch.look() === PeerState.SILENT;
  watch.silent = isSilent ? 1 : 0;
  plan(core, connection, now + DOUBT_MICROS);
}

/** Checks an established connection when its time has come. */
export function lookAfter(core: CmProtocol, now: number, connection: Connection): void {
  const watch = connection.watch!;
  // A process that was itself stopped or busy received no packets: it must not end connections.
  const step = watch.isDoubted ? DOUBT_MICROS : watch.stepMicros;
  const isLate = now - watch.nextMicros > step + LATE_MICROS;
  const peerState = watch.look();
  if (peerState !== PeerState.NOT_READY) watch.notReady = 0;
  if (peerState !== PeerState.SILENT || isLate) {
    watch.silent = 0;
    watch.isDoubted = false;
    if (peerState === PeerState.NOT_READY && watch.notReady++ === NOT_READY_CHECKS) {
      return endLost(core, now, connection);
    }
  } else if (watch.silent++ === PROBES) {
    endLost(core, now, connection);
    return;
  }
  if (watch.isDoubted) plan(core, connection, now + DOUBT_MICROS);
  else if (watch.stepMicros > 0) plan(core, connection, onGrid(now + watch.stepMicros, watch));
  else core.watched.delete(connection);
}

/** The peer is dead. Sends one DREQ in case the peer still receives; does not wait for the DREP. */
function endLost(core: CmProtocol, now: number, connection: Connection): void {
  core.counters.lost++;
  core.transmit(connection, 'DREQ', { ...idsOf(connection), remoteQpn: connection.remoteQpn });
  core.enterTimeWait(now, connection);
  core.tell(connection, { kind: 'disconnected', privateData: new Uint8Array(0) });
}
