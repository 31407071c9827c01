/** Counters of a node, and their text (seed 003, /proc/driver/rds/stats). */
import type { OutgoingMessage } from './message.js';

/** Counters of a node since it was made. */
export interface RdsStatistics {
  xmitBytes: number;
  xmitPackets: number;
  loopbackPacketsDropped: number;
  recvBytes: number;
  recvPackets: number;
  recvPacketsDropped: number;
  stallsSent: number;
  unstallsSent: number;
  stallsReceived: number;
  unstallsReceived: number;
  enobufsReturned: number;
  ewouldblocksReturned: number;
  /** The most messages that ever waited for readers, of all sockets. */
  recvPendingMost: number;
  /** Times that memory for a receive had to be fetched. */
  rxCacheMiss: number;
  /** Stall messages for a port that was slow already, or is not bound. */
  stallEventsIgnored: number;
  // Counters that the text of /proc/driver/rds/stats lacks.
  /** Messages sent again because their connection broke. */
  retransmitted: number;
  /** Messages that came twice. */
  duplicates: number;
  /** Messages taken from applications and not delivered: their path failed. */
  lost: number;
  /** Connections ended because of what came over them. */
  protocolErrors: number;
  /** Bytes copied between applications' memory and the node's: once on each side. */
  bytesCopied: number;
}

export function noStatistics(): RdsStatistics {
  return {
    xmitBytes: 0,
    xmitPackets: 0,
    loopbackPacketsDropped: 0,
    recvBytes: 0,
    recvPackets: 0,
    recvPacketsDropped: 0,
    stallsSent: 0,
    unstallsSent: 0,
    stallsReceived: 0,
    unstallsReceived: 0,
    enobufsReturned: 0,
    ewouldblocksReturned: 0,
    recvPendingMost: 0,
    rxCacheMiss: 0,
    stallEventsIgnored: 0,
    retransmitted: 0,
    duplicates: 0,
    lost: 0,
    protocolErrors: 0,
    bytesCopied: 0,
  };
}

/** Current values. */
export interface RdsGauges {
  readonly socketsOpen: number;
  readonly nodesConnected: number;
  readonly isCounting: boolean;
  readonly recvPending: number;
  readonly stalledPorts: number;
  /** Bytes of memory for receives. */
  readonly rxMemory: number;
}

/** The text of /proc/driver/rds/stats. */
export function statsText(statistics: RdsStatistics, gauges: RdsGauges): string {
  const line = (name: string, value: number | string): string => `${name.padEnd(35)}${value}`;
  const s = statistics;
  return [
    'Rds Statistics:',
    `    Sockets open:        ${gauges.socketsOpen}`,
    `    End Nodes connected: ${gauges.nodesConnected}`,
    `    Performance Counters: ${gauges.isCounting ? 'ON' : 'OFF'}`,
    '    Transmit:',
    line('      Xmit bytes', s.xmitBytes),
    line('      Xmit packets', s.xmitPackets),
    line('      Loopback packets dropped', s.loopbackPacketsDropped),
    '    Receive:',
    line('      Recv bytes', s.recvBytes),
    line('      Recv packets', s.recvPackets),
    line('      Recv packets pending', gauges.recvPending),
    line('      Recv packets dropped', s.recvPacketsDropped),
    line('    Stalled Ports:', gauges.stalledPorts),
    line('      Stalls   Sent', s.stallsSent),
    line('      Unstalls Sent', s.unstallsSent),
    line('      Stalls   Recvd', s.stallsReceived),
    line('      Unstalls Recvd', s.unstallsReceived),
    '    Debug Stats:',
    line('      ENOBUFs (105) returned', s.enobufsReturned),
    line('      EWOULDBLOCKs(11) returned', s.ewouldblocksReturned),
    line('      Rx alloc memory', gauges.rxMemory),
    line('      Rx cache miss', s.rxCacheMiss),
    line('      Rx pkts pending HWM', s.recvPendingMost),
    line('      Stall events ignored', s.stallEventsIgnored),
    '',
  ].join('\n');
}

/** A message is about to be sent. */
export function countSend(
  statistics: RdsStatistics,
  isCounting: boolean,
  { isRetransmitted, isThere, length }: OutgoingMessage,
): void {
  if (isRetransmitted) statistics.retransmitted++;
  if (!isCounting || !isThere) return;
  statistics.xmitPackets++;
  statistics.xmitBytes += length;
}
