/** Actions of the demo's buttons, and the sentences that the page shows about them. */
import type { ChannelKind } from '../bare-channels.js';
import type { EchoChannel } from '../echo-channel.js';
import type { SharingContext, DomainShare } from '../second-context.js';
import type { Session } from '../session.js';
import type { DemoEndpoint } from '../endpoint.js';

/** Drawing state of the page while one of the three acts plays. */
export type Scene =
  /** A frame leaves on both lanes; milliseconds until the last one may leave. */
  | { readonly kind: 'start'; readonly leftMillis: number }
  /** It has arrived on one of them; milliseconds. */
  | {
      readonly kind: 'arrival';
      readonly lane: 'ours' | 'reliable';
      readonly millis: number;
      readonly median: number;
    }
  /** Number of acknowledged records. */
  | { readonly kind: 'records'; readonly acknowledged: number }
  /** The Worker is killed; then its file is read. */
  | { readonly kind: 'killed' };

/** Where an act plays. */
export interface Stage {
  readonly endpoint: DemoEndpoint;
  /** The session that the page shows. */
  readonly session: Session;
  /** Says something in the meantime. */
  say(sentence: string): void;
  /** Draws what happens in one of the three acts. */
  show(scene: Scene): void;
  /** Resolves when the button of the act that plays is pressed again. */
  readonly pressed: Promise<void>;
  /** Draws the next point of the act's plot, a value for each line; `text` is said beside it. */
  draw(values: readonly number[], text: string): void;
  /** A sentence about a WcStatus. */
  explainStatus(status: number): Promise<string>;
  /** A channel without verbs to the same peer. Rejects with LinkError where there is no way. */
  channel(kind: ChannelKind): Promise<EchoChannel>;
  /** Does it while neither peer's page READs what it shows: the wire is for what is measured. */
  quietly<Value>(work: () => Promise<Value>): Promise<Value>;
  /** One more context of the endpoint's device, in a Worker of its own where memory is shared. */
  secondContext(domain: DomainShare): Promise<SharingContext>;
  /**
   * Sets the percentage of lost datagrams to and from this peer, and the milliseconds that a relay
   * delays each.
   */
  lose(percent: number, delayMillis?: number): Promise<Wire>;
}

/** Where packets are lost. */
export interface Wire {
  /** Through the same loss as ours, below both; undefined: they are lost in our link alone. */
  readonly reliable?: EchoChannel;
  /** Why they are. */
  readonly missing?: string;
  /** So far, on purpose: datagrams, or packets in our link. */
  lost(): Promise<number>;
}

/** Result of an act. */
export interface Outcome {
  /** Sentences that the page shows, a line each. */
  readonly sentences: readonly string[];
  /** Counters, or values READ from the peer's memory. */
  readonly figures: Readonly<Record<string, number>>;
}

export interface Slider {
  readonly label: string;
  readonly min: number;
  readonly max: number;
  readonly step: number;
  readonly value: number;
  readonly unit: string;
}

/** One of the acts of the page itself, which has their texts. */
export interface MainAct {
  readonly id: string;
  /** `value`: as chosen. Rejects when the peer has gone meanwhile. */
  play(stage: Stage, value: number): Promise<Outcome>;
}

export interface Act extends MainAct {
  /** On the button. */
  readonly title: string;
  readonly sentence: string;
  readonly slider?: Slider;
  /** Title of what is drawn while it plays. */
  readonly plot?: string;
}

/** A count with its noun. */
export function counted(count: number, noun: string): string {
  return `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
}
