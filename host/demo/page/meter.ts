/** Rates from counters. */
import type { Latencies } from '../latencies.js';
import { Word, readWord } from '../memory-layout.js';
import type { Session } from '../session.js';
import type { DemoEndpoint } from '../endpoint.js';
import type { Figures } from './protocol.js';

export class Meter {
  readonly #endpoint: DemoEndpoint;
  readonly #reliable: Latencies;
  #last: { readonly millis: number; readonly bytes: number; readonly retransmits: number };

  /** `reliable`: delays of the channel that is compared with. */
  constructor(endpoint: DemoEndpoint, reliable: Latencies) {
    this.#endpoint = endpoint;
    this.#reliable = reliable;
    this.#last = this.#now();
  }

  read(session: Session | undefined): Figures {
    const { tap, memory, region } = this.#endpoint;
    const last = this.#last;
    const now = (this.#last = this.#now());
    const seconds = Math.max(now.millis - last.millis, 1) / 1000;
    return {
      megabytes: (now.bytes - last.bytes) / 1e6 / seconds,
      delayP50: session?.delays.quantile(0.5) ?? NaN,
      delayP99: session?.delays.quantile(0.99) ?? NaN,
      reliableP50: this.#reliable.quantile(0.5),
      reliableP99: this.#reliable.quantile(0.99),
      inFlight: session?.painter.inFlight ?? 0,
      retransmits: (now.retransmits - last.retransmits) / seconds,
      written: session?.painter.written ?? 0,
      arrived: region.counters().writes,
      callbacksHere: readWord(memory, Word.CALLBACKS),
      callbacksThere: session?.view.word(Word.CALLBACKS) ?? 0,
      packets: tap.count,
      killed: tap.killed,
    };
  }

  #now() {
    const { sentBytes, rcvdBytes, retransmittedPkts } = this.#endpoint.context.counters();
    return {
      millis: performance.now(),
      bytes: Number(sentBytes + rcvdBytes),
      retransmits: Number(retransmittedPkts),
    };
  }
}
