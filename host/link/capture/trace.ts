/** One readable line for every packet that a link sends or receives. */
import { checkKeys } from '../../base/options.js';
import type { Endpoint } from '../endpoint.js';
import type { Link, LinkInfo, LinkReceiver, PacketBatch } from '../link.js';
import { passOnPolling } from '../pass-on.js';

/** How `traceLink` puts packets in words. */
export interface TraceOptions {
  /** Says what a packet (BTH to ICRC) is. Must cope with any bytes. */
  explain: (bytes: Uint8Array) => string;
  /** Any clock, in microseconds. Default: `performance.now`. */
  nowMicros?: () => number;
}

/**
 * Wraps `link`. `write` gets lines without a line end:
 * ```
 * 0.001204 send 127.0.0.2:4791 64 B  RC_SEND_ONLY …
 * ```
 * seconds since the link was wrapped, direction, the other end, length, the sentence. A packet
 * counts as sent when the link gets it.
 */
export function traceLink(link: Link, write: (line: string) => void, options: TraceOptions): Link {
  checkKeys('traceLink', options, 'explain nowMicros');
  const { explain, nowMicros = () => performance.now() * 1000 } = options;
  const start = nowMicros();

  function line(direction: string, bytes: Uint8Array, peer: Endpoint): void {
    const seconds = ((nowMicros() - start) / 1e6).toFixed(6);
    const sentence = explain(bytes).replace(/\s*\n\s*/g, ' ');
    write(`${seconds} ${direction} ${peer} ${bytes.length} B  ${sentence}`);
  }

  return {
    ...passOnPolling(link),
    get wakeDescriptor() {
      return link.wakeDescriptor;
    },

    get info(): LinkInfo {
      const { integrity: _, ...info } = link.info;
      return { ...info, name: `trace(${info.name})`, localPath: false };
    },

    async open(receiver: LinkReceiver): Promise<LinkInfo> {
      await link.open({
        packet(bytes, source, group) {
          line('recv', bytes, source);
          receiver.packet(bytes, source, group);
        },
        flush: () => receiver.flush(),
        failed: (reason) => receiver.failed(reason),
        peerGone: (peer, reason) => receiver.peerGone?.(peer, reason),
      });
      return this.info;
    },

    send(batch: PacketBatch): void {
      for (let index = 0; index < batch.count; index++) {
        line('send', batch.bytesOf(index), batch.destinationOf(index));
      }
      link.send(batch);
    },

    join: (group) => link.join?.(group),
    leave: (group) => link.leave?.(group),
    close: () => link.close(),
  };
}
