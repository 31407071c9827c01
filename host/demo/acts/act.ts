/** What a button of the demo does, and what the page says about it. */
import type { ChannelKind } from '../bare-channels.js';
import type { EchoChannel } from '../echo-channel.js';
import type { Session } from '../session.js';
import type { Station } from '../station.js';

/** Where an act plays. */
export interface Stage {
  readonly station: Station;
  /** Who is looked at. */
  readonly session: Session;
  /** Says something in the meantime. */
  say(sentence: string): void;
  /** A sentence about a WcStatus. */
  explainStatus(status: number): Promise<string>;
  /** A channel without verbs to the same peer. Rejects with LinkError where there is no way. */
  channel(kind: ChannelKind): Promise<EchoChannel>;
  /** Milliseconds that a message takes to and fro on a reliable channel; NaN without one. */
  reliableDelay(share: number): number;
}

/** What came of it. */
export interface Outcome {
  /** What the page says, a sentence a line. */
  readonly sentences: readonly string[];
  /** What was counted, or READ from the other's memory. */
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

export interface Act {
  readonly id: string;
  /** On the button. */
  readonly title: string;
  readonly sentence: string;
  readonly slider?: Slider;
  /** `value`: the slider's. Rejects when the peer has gone meanwhile. */
  play(stage: Stage, value: number): Promise<Outcome>;
}

/** A count with its noun. */
export function counted(count: number, noun: string): string {
  return `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
}

export function millis(value: number): string {
  return Number.isNaN(value) ? '–' : `${value.toFixed(value < 10 ? 2 : 0)} ms`;
}
