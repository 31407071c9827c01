/** Messages between the page and its Worker. */
import type { Scene, Slider } from '../acts/act.js';
import type { Kill } from '../wire-tap.js';
import type { Inspection } from './inspection.js';

export type Pane = 'ours' | 'theirs';
/** From and to, in points of the picture. */
export type Line = readonly [number, number, number, number];

export type ToWorker =
  | {
      readonly kind: 'start';
      readonly ours: OffscreenCanvas;
      readonly theirs: OffscreenCanvas;
      /** 256 colours, as ImageData has them. */
      readonly palette: Uint32Array;
      /** Milliseconds since 1970 at which the page began to load. */
      readonly origin: number;
      /** Of the page's address. */
      readonly search: string;
      /** No server of the demo is behind the page: its files come from any web host. */
      readonly isStatic: boolean;
    }
  | { readonly kind: 'palette'; readonly palette: Uint32Array }
  | { readonly kind: 'paint'; readonly pane: Pane; readonly line: Line; readonly colour: number }
  | { readonly kind: 'clear' }
  /** A hidden page refreshes less often. */
  | { readonly kind: 'visible'; readonly isVisible: boolean }
  | { readonly kind: 'select'; readonly peer: string }
  | { readonly kind: 'play'; readonly act: string; readonly value: number }
  /** The button of the act that plays is pressed again. */
  | { readonly kind: 'press'; readonly act: string }
  /** The page shows packets and counters from now on, or does not. */
  | { readonly kind: 'inside'; readonly isOpen: boolean }
  /** Asks for an invitation, which `pasteText` brings; and what the other side sent. */
  | { readonly kind: 'invite' }
  | { readonly kind: 'paste'; readonly text: string }
  | { readonly kind: 'set'; readonly act: string; readonly value: number }
  | { readonly kind: 'kill'; readonly packetKind: string; readonly kill: Kill }
  | { readonly kind: 'packet'; readonly bytes: Uint8Array }
  /** To a second Worker: the port of the Worker that sends its requests. */
  | { readonly kind: 'second'; readonly port: MessagePort }
  /** The second Worker is no more. */
  | { readonly kind: 'secondEnded' }
  /** Answered by `inspected`. */
  | { readonly kind: 'inspect' };

export interface ActCard {
  readonly id: string;
  readonly title: string;
  readonly sentence: string;
  readonly slider?: Slider;
  readonly plot?: string;
}

export interface PeerEntry {
  readonly address: string;
  readonly name: string;
  readonly isTab: boolean;
}

/** Four times a second. Rates are per second, NaN is nothing measured. */
export interface Figures {
  readonly megabytes: number;
  readonly delayP50: number;
  readonly delayP99: number;
  /** Of a reliable data channel through the same loss. */
  readonly reliableP50: number;
  readonly reliableP99: number;
  readonly inFlight: number;
  readonly retransmits: number;
  /** WRITEs that the peer has acknowledged, and that arrived here. */
  readonly written: number;
  readonly arrived: number;
  /** Here, and as it is READ there. */
  readonly callbacksHere: number;
  readonly callbacksThere: number;
  readonly packets: number;
  readonly killed: number;
}

/** Packets of one kind that came one after the other; PSN and bytes are the last one's. */
export interface StripRun {
  readonly count: number;
  readonly isSent: boolean;
  readonly kind: string;
  readonly psn: number;
  /** BTH to ICRC: a held strip outlives the packets that the tap keeps. */
  readonly bytes: Uint8Array;
  readonly isKilled: boolean;
}

export type FromWorker =
  | { readonly kind: 'acts'; readonly acts: readonly ActCard[] }
  /** Missing requirement, or progress, as a sentence for people. */
  | { readonly kind: 'note'; readonly sentence: string; readonly isTrouble: boolean }
  | {
      readonly kind: 'peers';
      readonly address: string;
      readonly link: string;
      readonly peers: readonly PeerEntry[];
      readonly selected: string;
      /** Of the brush of this tab: another one than those of the tabs that it met. */
      readonly colour: number;
    }
  /** Milliseconds from the beginning of the load until the first WRITE was acknowledged. */
  | { readonly kind: 'firstWrite'; readonly millis: number }
  | { readonly kind: 'figures'; readonly figures: Figures }
  | { readonly kind: 'strip'; readonly runs: readonly StripRun[]; readonly kills: Kills }
  | { readonly kind: 'said'; readonly act: string; readonly sentences: readonly string[] }
  /** Of one of the three acts. */
  | { readonly kind: 'shown'; readonly act: string; readonly scene: Scene }
  /** For the other side of copy and paste; and a sentence about it. */
  | { readonly kind: 'pasteText'; readonly text: string }
  | { readonly kind: 'pasteSaid'; readonly sentence: string }
  /** The next point of an act's plot. */
  | {
      readonly kind: 'drawn';
      readonly act: string;
      readonly values: readonly number[];
      readonly text: string;
    }
  | {
      readonly kind: 'played';
      readonly act: string;
      readonly sentences: readonly string[];
      readonly figures: Readonly<Record<string, number>>;
      readonly isDone: boolean;
    }
  | { readonly kind: 'packet'; readonly sentence: string; readonly fields: string }
  | { readonly kind: 'inspected'; readonly inspection: Inspection }
  /** Requests a second Worker, which serves the port. */
  | { readonly kind: 'second'; readonly port: MessagePort }
  | { readonly kind: 'secondOver' };

export type Kills = Readonly<Record<string, Kill>>;
