/** A peer's bound ports, and those that are slow, from its control messages. */
import { CongestionMap } from '../wire/congestion-map.js';
import { ControlKind, type Control } from '../wire/peer-control.js';
import type { RdsStatistics } from './statistics.js';

const MASK_BITS = 64;

/** `RDS_CONG_MONITOR_BIT`: 64 bits for all ports. */
export function monitorBit(port: number): bigint {
  return 1n << BigInt(port % MASK_BITS);
}

export class RemotePorts {
  readonly bound = new CongestionMap();
  readonly slow = new CongestionMap();
  areKnown = false;

  /** Applies a PORTS or STALLS message. Returns the monitor bits of ports no longer slow. */
  apply(control: Control, statistics: RdsStatistics): bigint {
    if (control.kind === ControlKind.PORTS) {
      if (control.isReset) this.bound.clear();
      for (const port of control.ports) this.bound.set(port, control.isSet);
      this.areKnown = true;
      return 0n;
    }
    let bits = control.isReset ? this.#clearSlow() : 0n;
    for (const port of control.ports) {
      if (!this.slow.set(port, control.isSet)) statistics.stallEventsIgnored++;
      else if (control.isSet) statistics.stallsReceived++;
      else {
        statistics.unstallsReceived++;
        bits |= monitorBit(port);
      }
    }
    return bits;
  }

  /** Applies the congestion map of Linux. Returns the monitor bits of ports no longer slow. */
  replaceMap(bytes: Uint8Array): bigint {
    let bits = 0n;
    this.slow.bytes.forEach((byte, index) => {
      const cleared = byte & ~bytes[index]!;
      for (let bit = 0; cleared >> bit; bit++) {
        if ((cleared >> bit) & 1) bits |= monitorBit(index * 8 + bit);
      }
    });
    this.slow.bytes.set(bytes);
    return bits;
  }

  /** The peer is gone: senders that wait for its readers must not wait for ever. */
  clear(): bigint {
    this.areKnown = false;
    this.bound.clear();
    return this.#clearSlow();
  }

  #clearSlow(): bigint {
    let bits = 0n;
    this.slow.forEach((port) => (bits |= monitorBit(port)));
    this.slow.clear();
    return bits;
  }
}
